import assert from 'node:assert/strict'
import { createHash, createHmac, randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, copyFile, mkdir, readFile, rename, stat, symlink, unlink, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'

import { askingMcp, startDesk, type DeskProcess } from '../../test/support/approvals-place.ts'
import { startMcp } from '../../test/support/mcp-server.ts'

const ALLOWLIST = { security: 'allowlist' } as const

const touch = (file: string): { command: string; args: string[] } => ({ command: 'touch', args: [file] })

/**
 * Connects to the approval service with this key, as a minimal client of the documented protocol. Returns the bodies that arrive until the
 * connection is closed.
 */
const connectAs = async (desk: DeskProcess, role: 'engine' | 'human', key: Uint8Array, bodies: readonly object[]): Promise<string[]> => {
  const socket = connect(desk.paths.approvalsSocket)
  socket.on('error', () => undefined)
  const answers: string[] = []
  const lines = createInterface({ input: socket })
  // The iterator also reports an error of the socket.
  lines.on('error', () => undefined)
  let nonce: string | null = null
  lines.on('line', (line) => {
    const parsed = JSON.parse(line) as { type?: string; nonce: string; body: string }
    if (parsed.type !== 'hello') return answers.push(parsed.body)
    nonce = parsed.nonce
    for (const body of bodies) {
      const [text, own, ts] = [JSON.stringify(body), randomBytes(16).toString('base64url'), Date.now()]
      const sum = createHash('sha256').update(text).digest('hex')
      const mac = createHmac('sha256', key).update(`x0x-desk-v1\n${role}\nto_desk\n${nonce}\n${own}\n${ts}\n${sum}`).digest('hex')
      socket.write(`${JSON.stringify({ body: text, nonce: own, ts, mac })}\n`)
    }
    return 0
  })
  // The approval service resets a connection that sends more than it reads.
  await new Promise<void>((resolve) => socket.once('close', () => resolve()))
  return answers
}

const socketToken = async ({ paths }: DeskProcess): Promise<Buffer> => {
  const { socket } = JSON.parse(await readFile(paths.approvals, 'utf8')) as { socket: { token: string } }
  return Buffer.from(socket.token, 'base64')
}

test('a client with the token of engines can ask but not decide, in either role', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', ALLOWLIST)
  const agent = await askingMcp(t, desk)
  const human = await desk.human()
  const running = agent.run('exec_status', touch(join(agent.root, 'x')))
  const { question_id, question } = await human.question()
  const decide = { type: 'decide', id: 1, question_id, permit_sha256: question.permit_sha256, decision: 'allow_once' }
  const token = await socketToken(desk)
  const asEngine = await connectAs(desk, 'engine', token, [{ type: 'open', role: 'engine', name: 'x' }, decide])
  const asHuman = await connectAs(desk, 'human', token, [{ type: 'open', role: 'human', name: 'x' }, decide])
  const crossed = await connectAs(desk, 'engine', token, [{ type: 'open', role: 'human', name: 'x' }, decide])
  for (const answers of [asEngine, asHuman, crossed]) assert.ok(!answers.some((body) => /"result"|allow/.test(body)), answers.join('\n'))
  assert.ok(!human.news.some(({ type }) => type === 'settled'))
  await human.decide({ question_id, question, asked_at_ms: 0, expires_at_ms: 0, engine: '', decisions: ['deny'] }, 'deny')
  assert.equal((await running).success, false)
})

test('a call that claims to be approved, elevated or of another kind is refused or limited to the configuration', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('operator', { security: 'full', ask: 'off' })
  const agent = await askingMcp(t, desk)
  const file = join(agent.root, 'x')
  for (const claim of [{ approved: true }, { approval: 'q_1' }, { kind: 'read' }, { elevated: 'full' }, { whoami: 'operator' }]) {
    const { isError, content } = await agent.ask('exec_status', { ...touch(file), ...claim })
    assert.equal(isError, true, JSON.stringify(content))
  }
  // A mode wider than the configuration is cut to it. The store allows this agent no command, so the call is then denied.
  const wide = await agent.run('exec_status', { ...touch(file), security: 'full', ask: 'off' })
  assert.equal(wide.success, false)
  assert.ok(!existsSync(file))
})

test('the file tools of an AI agent cannot reach the approval store, the operator key or its own configuration', async (t) => {
  const desk = await startDesk(t)
  const agent = await askingMcp(t, desk, { security: 'allow_write = true' })
  const before = await readFile(desk.paths.approvals, 'utf8')
  for (const path of [desk.paths.approvals, desk.paths.operatorKey, desk.paths.approvalsJournal, desk.paths.config]) {
    assert.equal((await agent.ask('read_file', { path })).isError, true, path)
    assert.equal((await agent.ask('write_file', { path, content: '{}' })).isError, true, path)
  }
  assert.equal((await agent.ask('write_file', { path: agent.config, content: '' })).isError, true)
  assert.equal(await readFile(desk.paths.approvals, 'utf8'), before)
  for (const path of [desk.paths.approvals, desk.paths.operatorKey, desk.paths.approvalsSocket])
    assert.equal((await stat(path)).mode & 0o077, 0, path)
})

test('a script that changes after it was shown needs a new permit, so the approved call does not run it', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', ALLOWLIST)
  const agent = await askingMcp(t, desk)
  const human = await desk.human()
  const [script, file] = [join(agent.root, 'deploy.sh'), join(agent.root, 'made')]
  await writeFile(script, 'true\n')
  const running = agent.run('exec_status', { command: 'sh', args: [script] })
  const asked = await human.question()
  assert.equal(asked.question.script?.sha256, createHash('sha256').update('true\n').digest('hex'))
  await writeFile(script, `touch ${file}\n`)
  await human.decide(asked, 'allow_once')
  const result = await running
  assert.equal(result.success, false)
  assert.equal(result.denial_reason, 'approval_mismatch')
  assert.ok(!existsSync(file))
})

test('a working directory that points elsewhere after it was shown needs a new permit', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', ALLOWLIST)
  const agent = await askingMcp(t, desk)
  const human = await desk.human()
  const [link, one, two] = ['link', 'one', 'two'].map((name) => join(agent.root, name)) as [string, string, string]
  await mkdir(one)
  await mkdir(two)
  await symlink(one, link)
  const running = agent.run('exec_status', { ...touch('made'), cwd: link })
  const asked = await human.question()
  assert.equal(asked.question.cwd, one)
  await unlink(link)
  await symlink(two, link)
  await human.decide(asked, 'allow_once')
  const result = await running
  assert.deepEqual([existsSync(join(one, 'made')), existsSync(join(two, 'made'))], [result.success, false])
  assert.equal(result.denial_reason, result.success ? null : 'approval_mismatch')
})

test('a program that is replaced after it was shown needs a new permit', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', ALLOWLIST)
  const agent = await askingMcp(t, desk)
  const human = await desk.human()
  const [program, other, file] = ['tool', 'other', 'made'].map((name) => join(agent.root, name)) as [string, string, string]
  await copyFile('/usr/bin/true', program)
  await copyFile('/usr/bin/touch', other)
  for (const one of [program, other]) await chmod(one, 0o755)
  const running = agent.run('exec_status', { command: program, args: [file] })
  const asked = await human.question()
  await rename(other, program)
  await human.decide(asked, 'allow_once')
  const result = await running
  assert.deepEqual([result.success, result.denial_reason], [false, 'approval_mismatch'])
  assert.ok(!existsSync(file))
})

test('a command that is too long to show whole is refused at once, and no approver sees a part of it', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', ALLOWLIST)
  const agent = await askingMcp(t, desk)
  const human = await desk.human()
  const result = await agent.run('exec_status', { command: 'true', args: [`${'x'.repeat(40_000)}; rm -rf /`] })
  assert.equal(result.success, false)
  assert.ok(!human.news.some(({ type }) => type === 'question'))
})

test('B9: an always-ask command is asked about under any number of wrappers, in any spelling and through links', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', { security: 'full', ask: 'off' })
  const more = '[[tools.exec.always_ask]]\nargv = ["touch", "<ANY...>"]\nreason = "it leaves a file"\n'
  const agent = await askingMcp(t, desk, { modes: { security: 'full', ask: 'off' }, more })
  const human = await desk.human()
  const file = join(agent.root, 'made')
  const link = join(agent.root, 'harmless')
  await symlink('/usr/bin/touch', link)
  const envs = Array.from({ length: 6 }, (_one, at) => Array.from({ length: at + 1 }, () => 'env'))
  const wrapped = [...envs, ['timeout', '5'], ['nice', '-n', '5'], ['nohup'], ['setsid'], ['env', 'timeout', '5', 'nice', 'env', 'A=1']]
  const commands = [
    ...wrapped.map((words) => [...words, 'touch', file]),
    ['/usr/bin/touch', file],
    ['/usr/bin/../bin//touch', file],
    [link, file],
    ['env', link, file],
  ]
  assert.equal((await agent.run('exec_status', { command: 'true' })).success, true)
  for (const [command = '', ...args] of commands) {
    const running = agent.run('exec_status', { command, args })
    const asked = await human.question()
    assert.equal(asked.question.always_ask, 'it leaves a file', command)
    await human.decide(asked, 'deny')
    assert.equal((await running).success, false, `${command} ${args.join(' ')}`)
  }
  assert.ok(!existsSync(file))
})

test('B13: the approver sees the exact argv that runs, and argvs that look alike have different permits', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', ALLOWLIST)
  const agent = await askingMcp(t, desk)
  const human = await desk.human()
  const alike = [['a b'], ['a', 'b'], ['a b '], [' a b'], ['a b', ''], ['"a b"'], ['a\u00a0b'], ['a\\ b']]
  const permits = new Set<string>()
  for (const args of alike) {
    const running = agent.run('exec_capture', { command: 'printf', args: ['<%s>', ...args] })
    const asked = await human.question()
    assert.deepEqual(asked.question.argv, ['printf', '<%s>', ...args])
    permits.add(asked.question.permit_sha256)
    await human.decide(asked, 'allow_once')
    assert.equal((await running).stdout, args.map((token) => `<${token}>`).join(''))
  }
  assert.equal(permits.size, alike.length)
})

test('B14: another value of a variable needs another permit, and values that the requester did not set are hidden', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', ALLOWLIST)
  const first = await askingMcp(t, desk, { security: 'pass_env = ["CI_MODE"]', env: { CI_MODE: 'harmless-value' } })
  const human = await desk.human()
  const running = first.run('exec_status', { command: 'true' })
  const asked = await human.question()
  assert.ok(asked.question.env_names.includes('CI_MODE') && !JSON.stringify(asked).includes('harmless-value'))
  await human.decide(asked, 'allow_always')
  assert.equal((await running).success, true)
  assert.equal((await first.run('exec_status', { command: 'true' })).success, true)
  const env = { X0X_DATA_DIR: desk.paths.dir, CI_MODE: 'another-value' }
  const second = await startMcp(t, {}, { place: first, whoami: 'reviewer', env })
  const other = second.run('exec_status', { command: 'true' })
  const changed = await human.question()
  assert.deepEqual(changed.question.argv, asked.question.argv)
  assert.notEqual(changed.question.permit_sha256, asked.question.permit_sha256)
  await human.decide(changed, 'deny')
  assert.equal((await other).success, false)
})
