import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { mkdir, realpath, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { PendingApprovalRequest } from '../../../src/protocol/desk/messages.ts'
import { MAX_SHOWN_QUESTION } from '../../../src/protocol/limits/approvals.ts'
import { runCli } from '../../support/fake-daemon.ts'
import { questionOf } from '../../support/approval-request.ts'
import { scriptedDesk, welcoming, type DeskConnection } from '../../support/scripted-desk.ts'
import { tempDir } from '../../support/temp-dir.ts'
import { typedCli } from '../../support/typed-cli.ts'

const [FIRST, SECOND, THIRD] = [`q_abcdef${'A'.repeat(16)}`, `q_abcdeg${'B'.repeat(16)}`, `q_zzzzzz${'C'.repeat(16)}`]
const BELL = '\u0007'
const GRANT = `g_${'G'.repeat(22)}`

const pendingOf = (question_id: string, changed: Partial<PendingApprovalRequest> = {}): PendingApprovalRequest => ({
  question_id,
  question: questionOf(),
  asked_at_ms: Date.now(),
  expires_at_ms: Date.now() + 100_000,
  engine: 'x0x mcp',
  decisions: ['allow_once', 'allow_always', 'deny'],
  ...changed,
})

interface Desk {
  readonly dir: string
  readonly asked: Record<string, unknown>[]
  readonly connections: DeskConnection[]
}

/** A fake approval service with these approval requests. It records decisions and has no other effect. */
const deskOf = async (
  t: TestContext,
  questions: readonly PendingApprovalRequest[],
  answers: Record<string, object> = {},
): Promise<Desk> => {
  const [asked, connections]: [Record<string, unknown>[], DeskConnection[]] = [[], []]
  const { dir } = await scriptedDesk(
    t,
    welcoming((body, connection) => {
      asked.push(body)
      if (!connections.includes(connection)) connections.push(connection)
      const type = String(body['type'])
      if (answers[type] !== undefined) return answers[type]
      if (type === 'decide')
        return {
          question_id: body['question_id'],
          decision: body['decision'],
          grant_id: body['decision'] === 'allow_always' ? GRANT : null,
        }
      return { questions, floods: [] }
    }),
  )
  return { dir, asked, connections }
}

/** Rows of an older release, in which a pattern covered all programs, and rows of this release. */
const ALLOWLIST = [
  { pattern: '/usr/bin/*', lastUsedAt: 1, lastUsedCommand: 'rg x', lastResolvedPath: '/usr/bin/rg' },
  { pattern: '/usr/bin/git', lastUsedAt: 0, lastUsedCommand: '', lastResolvedPath: '' },
  { pattern: '/usr/bin/df' },
  { pattern: '/usr/bin/make', opaque: true },
]

test('approvals pending shows each request in full with the time left, and --json lists the requests', async (t) => {
  const { dir } = await deskOf(t, [pendingOf(FIRST), pendingOf(SECOND, { question: questionOf({ argv: ['rm', '-rf', 'a b'] }) })])
  const { status, stdout } = await runCli(['--data-dir', dir, 'approvals', 'pending'])
  assert.equal(status, 0)
  assert.match(stdout, new RegExp(`^${FIRST} {3}(100|99) s left, then it is denied\nasked by {4}"reviewer"`))
  assert.ok(stdout.includes('         2  "a b"\n'))
  const json = JSON.parse((await runCli(['--data-dir', dir, '--json', 'approvals', 'pending'])).stdout) as {
    questions: PendingApprovalRequest[]
  }
  assert.deepEqual(
    json.questions.map(({ question_id }) => question_id),
    [FIRST, SECOND],
  )
})

test('without an approval service, every command exits with 255 and one line that says what to start', async (t) => {
  const { dir } = await deskOf(t, [])
  const empty = await tempDir(t)
  const { copyFile } = await import('node:fs/promises')
  await copyFile(`${dir}/operator.key`, `${empty}/operator.key`)
  for (const argv of [['pending'], ['approve', FIRST], ['list'], ['revoke', GRANT], ['history'], ['watch']]) {
    const { status, stderr } = await runCli(['--data-dir', empty, 'approvals', ...argv])
    assert.equal(status, 255, argv.join(' '))
    assert.match(stderr, /^x0x: no approval service runs in .*: start x0xd --init, or x0x desk without a daemon\n$/)
  }
  assert.equal((await runCli(['--data-dir', empty, 'exec-mode', 'show', '--agent', 'reviewer'])).status, 255)
})

test('a decision names the permit that was shown, and x0x prints what was decided', async (t) => {
  const { dir, asked } = await deskOf(t, [pendingOf(FIRST), pendingOf(THIRD)])
  const { status, stdout } = await runCli(['--data-dir', dir, 'approvals', 'approve', 'q_abcd'])
  assert.equal(status, 0)
  assert.match(stdout, /0 {2}"git"\n {9}1 {2}"push"\n {9}2 {2}"origin"\n[^]*permit {6}sha256 a{64}\nallowed once: q_abcdef/)
  assert.deepEqual(asked.at(-1), { type: 'decide', question_id: FIRST, permit_sha256: 'a'.repeat(64), decision: 'allow_once', id: 2 })
  await runCli(['--data-dir', dir, 'approvals', 'deny', THIRD])
  assert.equal(asked.at(-1)?.['decision'], 'deny')
  const always = await runCli(['--data-dir', dir, '--json', 'approvals', 'allow-always', THIRD, '--for', '8h', '--uses', '3'])
  assert.deepEqual([asked.at(-1)?.['expires_in_ms'], asked.at(-1)?.['uses']], [28_800_000, 3])
  assert.equal((JSON.parse(always.stdout) as { grant_id: string }).grant_id, GRANT)
})

test('an ID needs six characters, and an ID that does not match exactly one request is refused', async (t) => {
  const { dir, asked } = await deskOf(t, [pendingOf(FIRST), pendingOf(SECOND)])
  for (const [id, status, text] of [
    ['q_abc', 2, /too short/],
    ['q_abcde', 1, /more than one ID: q_abcdefA+, q_abcdegB+/],
    ['q_nothing', 1, /no approval request matches .*\n {5}See: x0x .*approvals pending/],
  ] as const) {
    const answer = await runCli(['--data-dir', dir, 'approvals', 'approve', id])
    assert.deepEqual([answer.status, text.test(answer.stderr)], [status, true], answer.stderr)
  }
  assert.ok(!asked.some(({ type }) => type === 'decide'))
})

test('an approval request with another permit than the one given with --permit is not decided', async (t) => {
  const { dir, asked } = await deskOf(t, [pendingOf(FIRST)])
  const changed = await runCli(['--data-dir', dir, 'approvals', 'approve', FIRST, '--permit', 'b'.repeat(64)])
  assert.equal(changed.status, 1)
  assert.match(changed.stderr, /another permit than the one that was shown/)
  assert.equal((await runCli(['--data-dir', dir, 'approvals', 'approve', FIRST, '--permit', 'aa'])).status, 2)
  assert.ok(!asked.some(({ type }) => type === 'decide'))
  assert.equal((await runCli(['--data-dir', dir, 'approvals', 'approve', FIRST, '--permit', 'a'.repeat(12)])).status, 0)
})

test('an approver who decides too late learns who decided and how', async (t) => {
  const { dir } = await deskOf(t, [pendingOf(FIRST)], {
    decide: { code: 'conflict', message: 'settled', won_by: 'human:page', decision: 'deny' },
  })
  const { status, stderr } = await runCli(['--data-dir', dir, 'approvals', 'approve', FIRST])
  assert.deepEqual([status, stderr], [1, 'x0x: deny already, by human:page\n'])
})

test('an approval request that is too long to show can be denied but not allowed', async (t) => {
  const { dir, asked } = await deskOf(t, [
    pendingOf(FIRST, { question: questionOf({ argv: ['sh', '-c', 'x'.repeat(MAX_SHOWN_QUESTION)] }) }),
  ])
  for (const command of ['approve', 'allow-always']) {
    const { status, stderr } = await runCli(['--data-dir', dir, 'approvals', command, FIRST])
    assert.equal(status, 1)
    assert.match(stderr, /this request cannot be approved: it is too long to show/)
  }
  assert.ok(!asked.some(({ type }) => type === 'decide'))
  assert.equal((await runCli(['--data-dir', dir, 'approvals', 'deny', FIRST])).status, 0)
})

test('invalid times and counts exit with 2 before a decision is sent', async (t) => {
  const { dir, asked } = await deskOf(t, [pendingOf(FIRST)])
  for (const argv of [
    ['allow-always', FIRST, '--for', '8'],
    ['allow-always', FIRST, '--for', '9999d'],
    ['allow-always', FIRST, '--uses', '0'],
    ['history', '-n', '0'],
    ['history', '-n', 'many'],
    ['revoke', 'g_'],
  ])
    assert.equal((await runCli(['--data-dir', dir, 'approvals', ...argv])).status, 2, argv.join(' '))
  assert.ok(!asked.some(({ type }) => type === 'decide'))
})

test('at a terminal, x0x asks to confirm a decision, and only y confirms', async (t) => {
  const { dir, asked } = await deskOf(t, [pendingOf(FIRST)])
  for (const [typed, status] of [
    ['n\n', 1],
    ['\n', 1],
    ['yeah\n', 1],
    ['y\n', 0],
  ] as const) {
    const cli = typedCli(['--data-dir', dir, 'approvals', 'approve', FIRST])
    await cli.until(/allow this once\? y\/N $/)
    assert.ok(!asked.some(({ type }) => type === 'decide'))
    cli.type(typed)
    assert.equal(await cli.status, status)
  }
  assert.equal(asked.at(-1)?.['decision'], 'allow_once')
  const cli = typedCli(['--data-dir', dir, 'approvals', 'deny', FIRST, '--yes'])
  assert.equal(await cli.status, 0)
})

test('at a terminal, x0x shows the request before it asks to confirm, even with --json', async (t) => {
  const { dir } = await deskOf(t, [pendingOf(FIRST)])
  const cli = typedCli(['--data-dir', dir, '--json', 'approvals', 'approve', FIRST])
  const before = await cli.until(/[^]*allow this once\? y\/N $/)
  assert.match(before, /1 {2}"push"\n/)
  cli.type('n\n')
  assert.equal(await cli.status, 1)
})

test('grants and patterns are listed, and the first characters of an ID revoke a grant', async (t) => {
  const grant = {
    id: GRANT,
    grant_sha256: 'a'.repeat(64),
    agent: 'reviewer\u202e',
    argv: ['git', 'push'],
    executable: '/usr/bin/git',
    cwd: '/srv',
    created_at_ms: 0,
    expires_at_ms: 86_400_000,
    uses_left: 2,
    by: 'human:x0x approvals',
    last_used_at_ms: null,
  }
  const store = { version: 1, agents: { codex: { allowlist: ALLOWLIST } } }
  const { dir, asked } = await deskOf(t, [], { grants: { grants: [grant] }, store, revoke: { revoked: true } })
  const { status, stdout } = await runCli(['--data-dir', dir, 'approvals', 'list'])
  assert.equal(status, 0)
  assert.match(stdout, new RegExp(`${GRANT} {2}reviewer\\\\u202e {2}2 .* 1970-01-02T00:00:00.000Z .* git push\n`))
  assert.match(stdout, /codex {2}\/usr\/bin\/\*\n/)
  assert.match(stdout, /codex {2}\/usr\/bin\/make {2}--opaque\n/)
  // Rows of an older release, where every pattern covered all programs: the reason why they have no effect, and the command to fix them.
  for (const line of [
    "has no effect: /usr/bin/* of codex: it covers whole directories: its last part must name a program, as /usr/bin/df does\n  Try: x0x approvals allowlist remove codex '/usr/bin/*' && x0x approvals allowlist add codex /usr/bin/rg --opaque\n",
    'has no effect: /usr/bin/git of codex: git can start other programs, so codex could run anything with it\n  Try: x0x approvals allowlist add codex /usr/bin/git --opaque\n',
  ])
    assert.ok(stdout.replaceAll(` --data-dir ${dir}`, '').includes(line), stdout)
  assert.doesNotMatch(stdout, /has no effect: \/usr\/bin\/(make|df)/)
  assert.equal((await runCli(['--data-dir', dir, 'approvals', 'revoke', GRANT.slice(0, 8)])).status, 0)
  assert.deepEqual(asked.at(-1), { type: 'revoke', grant_id: GRANT, id: 2 })
})

test('approvals allowlist adds a pattern for an agent and removes it', async (t) => {
  const { dir, asked } = await deskOf(t, [], { allowlist_add: {}, allowlist_remove: {} })
  const allowlist = async (...words: string[]) => runCli(['--data-dir', dir, 'approvals', 'allowlist', ...words])
  const { status, stdout } = await allowlist('add', 'reviewer', '/usr/bin/df')
  assert.deepEqual([status, stdout], [0, '/usr/bin/df: may run without approval, by reviewer\n'])
  assert.equal((await allowlist('add', 'reviewer', '/usr/bin/git', '--opaque')).status, 0)
  assert.equal((await allowlist('remove', 'reviewer', '/usr/bin/git')).status, 0)
  assert.deepEqual(
    asked.map(({ type, pattern, opaque }) => [type, pattern, opaque]),
    [
      ['allowlist_add', '/usr/bin/df', false],
      ['allowlist_add', '/usr/bin/git', true],
      ['allowlist_remove', '/usr/bin/git', undefined],
    ],
  )
})

test('a pattern for opaque programs needs --opaque, and one for whole directories is always refused', async (t) => {
  const { dir, asked } = await deskOf(t, [], { allowlist_add: {} })
  const add = async (...words: string[]) => runCli(['--data-dir', dir, 'approvals', 'allowlist', 'add', 'reviewer', ...words])
  for (const pattern of ['/usr/bin/git', '/usr/bin/make', '/usr/bin/apt-cache', '/usr/bin/py*', '~/bin/ls', '/usr/bin/no-such-program']) {
    const { status, stderr } = await add(pattern)
    assert.equal(status, 2, pattern)
    assert.match(stderr, / can start other programs, so reviewer could run anything with it/)
    const word = /[*~]/.test(pattern) ? `'${pattern}'` : pattern
    assert.ok(stderr.includes(`Try: x0x --data-dir ${dir} approvals allowlist add reviewer ${word} --opaque\n`), stderr)
  }
  for (const pattern of [
    '/**',
    '/usr/bin/*',
    '/usr/bin/**',
    '~/**',
    '/*/**',
    '/usr/bin/?*',
    '/usr/**/*',
    '*',
    '/',
    'df -h',
    '/usr/bin/df -h',
  ])
    for (const more of [[], ['--opaque']]) {
      const { status, stderr } = await add(pattern, ...more)
      assert.equal(status, 2, pattern)
      assert.match(stderr, /it covers whole directories|it must begin with|it has an empty part|a program without arguments/, pattern)
    }
  assert.deepEqual(asked, [])
})

test('a pattern with brackets or braces is refused if no such file exists, and list names stored ones', async (t) => {
  const place = await realpath(await tempDir(t))
  const store = { version: 1, agents: { codex: { allowlist: [{ pattern: '/usr/bin/[a-z]*', opaque: true }] } } }
  const { dir, asked } = await deskOf(t, [], { allowlist_add: {}, grants: { grants: [] }, store })
  const add = async (pattern: string) => runCli(['--data-dir', dir, 'approvals', 'allowlist', 'add', 'codex', pattern, '--opaque'])
  for (const pattern of ['/usr/bin/[a-z]*', '/usr/bin/{df,du}', '/usr/**/l[sn]', '~/[ab]/tool*', join(place, '[1]', 'x*')]) {
    const { status, stderr } = await add(pattern)
    assert.equal(status, 2, pattern)
    assert.match(stderr, /is not added for codex: brackets and braces are not wildcards; only \*, \? and \*\* are/)
  }
  assert.deepEqual(asked, [])
  await mkdir(join(place, '[1]'))
  assert.equal((await add(join(place, '[1]', 'x*'))).status, 0)
  const { stdout } = await runCli(['--data-dir', dir, 'approvals', 'list'])
  assert.match(stdout, /has no effect: \/usr\/bin\/\[a-z\]\* of codex: brackets and braces are not wildcards/)
})

test('a pattern that contains a link is refused with the resolved path, and list names stored ones', async (t) => {
  const target = await realpath(await tempDir(t))
  const link = join(await realpath(await tempDir(t)), 'link')
  await symlink(target, link)
  await writeFile(join(target, 'tool'), '', { mode: 0o755 })
  const store = { version: 1, agents: { codex: { allowlist: [{ pattern: join(link, 'tool'), opaque: true }] } } }
  const { dir, asked } = await deskOf(t, [], { allowlist_add: {}, grants: { grants: [] }, store })
  const add = async (pattern: string) => runCli(['--data-dir', dir, 'approvals', 'allowlist', 'add', 'codex', pattern, '--opaque'])
  for (const name of ['tool', 't*', '**/tool']) {
    const { status, stderr } = await add(join(link, name))
    assert.equal(status, 2, name)
    assert.ok(stderr.includes(`it is a link to ${join(target, name)}, and only that path is compared`), stderr)
    assert.match(stderr, /Try: x0x --data-dir \S+ approvals allowlist add codex \S+ --opaque\n/)
    assert.equal(asked.length, 0)
  }
  const { stdout } = await runCli(['--data-dir', dir, 'approvals', 'list'])
  const cli = `x0x --data-dir ${dir} approvals allowlist`
  assert.ok(stdout.includes(`${cli} remove codex ${join(link, 'tool')} && ${cli} add codex`), stdout)
  assert.equal((await add(join(target, 'tool'))).status, 0)
})

test('approvals watch shows the oldest request, and accepts keys only after it could be read', async (t) => {
  const desk = await deskOf(t, [pendingOf(SECOND, { asked_at_ms: 2 }), pendingOf(FIRST, { asked_at_ms: 1 })])
  const cli = typedCli(['--data-dir', desk.dir, 'approvals', 'watch', '--bell'])
  await cli.until(new RegExp(`${FIRST}\n[^]*permit`))
  assert.ok(cli.isRaw())
  // Keys that arrive before the text could be read, and pasted keys, are ignored.
  cli.type('a')
  cli.type('aa')
  await cli.until(new RegExp(BELL))
  await cli.until(/s {2}a once {2}A always {2}d deny {2}s later {2}q quit {2}1 more/)
  assert.ok(!desk.asked.some(({ type }) => type === 'decide'))
  cli.type('ad')
  cli.type('d')
  await cli.until(new RegExp(`denied: ${FIRST}\n`))
  assert.deepEqual([desk.asked.at(-1)?.['question_id'], desk.asked.at(-1)?.['decision']], [FIRST, 'deny'])
  await cli.until(new RegExp(`${SECOND}\n[^]*a once`))
  cli.type('A')
  await cli.until(new RegExp(`allowed from now on: ${SECOND}, as ${GRANT}\n`))
  await cli.until(/no open requests/)
  cli.type('q')
  assert.equal(await cli.status, 0)
  assert.equal(cli.isRaw(), false)
  assert.equal(desk.asked.filter(({ type }) => type === 'decide').length, 2)
})

test('a terminal notice names requester and command once per request, without control characters', async (t) => {
  const asker = { kind: 'local', label: 'a\u001b]0;x\u0007b' } as const
  const desk = await deskOf(t, [pendingOf(FIRST, { question: questionOf({ asker }) })])
  const cli = typedCli(['--data-dir', desk.dir, 'approvals', 'watch', '--notify'])
  await cli.until(/a once/)
  cli.type('q')
  assert.equal(await cli.status, 0)
  const notices = cli.text().split('\u001b]9;').slice(1)
  assert.equal(notices.length, 1)
  assert.match(notices[0]!, new RegExp(`^x0x: a command needs your approval: a\\?\\]0,x\\?b requests /[ -~]+${BELL}${BELL}`))
})

test('with notify-send, the notice goes to the desktop as plain text and not to the terminal', async (t) => {
  const asker = { kind: 'local', label: '<b>$(id)\u001b]0;x\u0007' } as const
  const desk = await deskOf(t, [pendingOf(FIRST, { question: questionOf({ asker }) })])
  const bin = await tempDir(t)
  const told = createServer()
  t.after(() => told.close())
  await once(told.listen(join(bin, 'told')), 'listening')
  const script = `#!${process.execPath}\nrequire('node:net').connect(${JSON.stringify(join(bin, 'told'))}).end(JSON.stringify(process.argv.slice(2)))\n`
  await writeFile(join(bin, 'notify-send'), script, { mode: 0o755 })
  const heard = once(told, 'connection') as Promise<[Socket]>
  const cli = typedCli(['--data-dir', desk.dir, 'approvals', 'watch', '--notify'], { DISPLAY: ':0', PATH: `.::${bin}` })
  const [socket] = await heard
  const argv = JSON.parse(Buffer.concat(await socket.toArray()).toString()) as string[]
  assert.deepEqual(argv.slice(0, 4), ['--app-name=x0x', '--urgency=critical', '--', 'x0x: a command needs your approval'])
  assert.match(argv[4]!, /^&lt;b&gt;\$\(id\)\?\]0,x\? requests \/[ -~]+$/)
  await cli.until(/a once/)
  cli.type('q')
  assert.equal(await cli.status, 0)
  assert.ok(!cli.text().includes('\u001b]9;'))
})

test('a request stays open in approvals watch if the approval service refuses the decision', async (t) => {
  const refused = { code: 'rate_limited', message: 'too many lines' }
  const { dir, asked } = await deskOf(t, [pendingOf(FIRST)], { decide: refused })
  const cli = typedCli(['--data-dir', dir, 'approvals', 'watch'])
  await cli.until(/a once {2}A always {2}d deny/)
  cli.type('d')
  await cli.until(/too many lines/)
  await cli.until(/a once {2}A always {2}d deny/)
  cli.type('d')
  await cli.until(/too many lines/)
  assert.equal(asked.filter(({ type }) => type === 'decide').length, 2)
  cli.type('q')
  assert.equal(await cli.status, 0)
})

test('approvals watch shows decisions of others, new requests, floods and the number of open requests', async (t) => {
  const desk = await deskOf(t, [pendingOf(FIRST)])
  const cli = typedCli(['--data-dir', desk.dir, 'approvals', 'watch'])
  await cli.until(/a once/)
  const [connection] = desk.connections
  connection?.send({
    type: 'question',
    ...pendingOf(SECOND, { question: questionOf({ always_ask: 'publishes' }), decisions: ['allow_once', 'deny'] }),
  })
  await cli.until(/1 more/)
  connection?.send({ type: 'flood', asker: 'codex', count: 40, last_at_ms: 1 })
  await cli.until(/40 requests denied: too many at once/)
  connection?.send({ type: 'settled', question_id: FIRST, decision: 'allow', by: 'human:page\u001b[2J' })
  await cli.until(/allow, by human:page\\x1b\[2J: q_abcdef/)
  // A command that always needs approval cannot be allowed for ever.
  await cli.until(/publishes[^]*s {2}a once {2}d deny/)
  cli.type('A')
  cli.type('s')
  await cli.until(/no other open requests; s shows the postponed ones {2}q quit {2}1 later/)
  cli.type('s')
  await cli.until(new RegExp(`${SECOND}\n`))
  assert.ok(!desk.asked.some(({ type }) => type === 'decide'))
  cli.interrupt()
  assert.equal(await cli.status, 0)
})

test('approvals watch connects again after the approval service closes the connection', async (t) => {
  const desk = await deskOf(t, [pendingOf(FIRST)])
  const cli = typedCli(['--data-dir', desk.dir, 'approvals', 'watch'])
  await cli.until(/a once/)
  desk.connections[0]?.socket.destroy()
  await cli.until(/looking for it again/)
  await cli.until(new RegExp(`${FIRST}\n[^]*a once`))
  cli.type('\u0003')
  assert.equal(await cli.status, 0)
})

test('without a terminal, approvals watch prints lines or JSON and accepts no decision', async (t) => {
  const desk = await deskOf(t, [pendingOf(FIRST)])
  for (const [flags, pattern] of [
    [[], new RegExp(`^${FIRST} {3}x0x approvals approve\\|deny ${FIRST}\nasked by[^]*${FIRST} {3}deny, by human:page\n$`)],
    [['--json'], /^\{"type":"question",.*\}\n\{"type":"settled",.*\}\n$/],
  ] as const) {
    let [interrupt, parts]: [(signal: NodeJS.Signals) => void, number] = [() => undefined, 0]
    const result = await runCli(['--data-dir', desk.dir, ...flags, 'approvals', 'watch'], {
      stdin: 'a',
      onSignal: (listener) => {
        interrupt = listener
        return () => undefined
      },
      onOutput: () => {
        parts += 1
        if (parts === 1) desk.connections.at(-1)?.send({ type: 'settled', question_id: FIRST, decision: 'deny', by: 'human:page' })
        else interrupt('SIGINT')
      },
    })
    assert.equal(result.status, 0)
    assert.match(result.stdout, pattern)
  }
  assert.ok(!desk.asked.some(({ type }) => type === 'decide'))
})

const NONE = { host: null, security: null, ask: null, node: null, elevated: null }

test('exec-mode sets, changes, saves and removes single modes', async (t) => {
  const set = { ...NONE, host: 'gateway', ask: 'always' }
  const { dir, asked } = await deskOf(t, [], {
    modes_get: { session: set, security: 'deny', ask: 'on-miss', ask_fallback: 'deny' },
    modes_set: {},
    modes_save: {},
  })
  const mode = async (...argv: string[]): Promise<string> => {
    const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'exec-mode', ...argv])
    assert.equal(status, 0, stderr)
    return stdout
  }
  const changed = (type: string): unknown => asked.findLast((body) => body['type'] === type)
  assert.equal(
    await mode('show', '--agent', 'reviewer'),
    'reviewer: host=gateway ask=always\nthe store says: security=deny ask=on-miss, no approver connected: deny\n',
  )
  await mode('set', 'security=full', 'ask=default', '--agent', 'reviewer')
  assert.deepEqual(changed('modes_set'), {
    type: 'modes_set',
    session: 'reviewer',
    override: { ...NONE, host: 'gateway', security: 'full' },
    id: 2,
  })
  await mode('/elevated', 'ask', '--agent', 'reviewer', '--session', 's1')
  assert.deepEqual(changed('modes_set'), { type: 'modes_set', session: 's1', override: { ...set, elevated: 'ask' }, id: 2 })
  await mode('/exec node=bob host=node', '--agent', 'reviewer')
  assert.deepEqual(changed('modes_set'), { type: 'modes_set', session: 'reviewer', override: { ...set, host: 'node', node: 'bob' }, id: 2 })
  await mode('off', '--agent', 'reviewer')
  assert.deepEqual(changed('modes_set'), { type: 'modes_set', session: 'reviewer', override: null, id: 1 })
  await mode('save', '--agent', 'reviewer')
  assert.deepEqual(changed('modes_save'), { type: 'modes_save', agent: 'reviewer', row: { security: null, ask: 'always' }, id: 2 })
})

test('an unknown mode and a missing agent exit with 2', async (t) => {
  const { dir, asked } = await deskOf(t, [])
  for (const argv of [
    ['set', 'host=moon', '--agent', 'a'],
    ['/elevated', 'yes', '--agent', 'a'],
    ['/exex', '--agent', 'a'],
    ['show'],
    ['set', 'ask=always'],
  ])
    assert.equal((await runCli(['--data-dir', dir, 'exec-mode', ...argv])).status, 2, argv.join(' '))
  assert.deepEqual(asked, [])
})

test('a decision that the request does not offer is not sent, and x0x prints the command to use', async (t) => {
  const { dir, asked } = await deskOf(t, [pendingOf(FIRST, { decisions: ['allow_once', 'deny'] })])
  const shown = await runCli(['--data-dir', dir, 'approvals', 'pending'])
  assert.match(shown.stdout, /left, then it is denied; it can be allowed only once\n/)
  const { status, stderr } = await runCli(['--data-dir', dir, 'approvals', 'allow-always', FIRST])
  assert.equal(status, 2)
  assert.match(stderr, new RegExp(`only once[^]*x0x .*approvals approve ${FIRST}`))
  assert.ok(!asked.some(({ type }) => type === 'decide'))
})

test('no command changes settings for an agent "*"', async (t) => {
  const { dir } = await deskOf(t, [])
  const tried = async (...words: string[]) => runCli(['--data-dir', dir, ...words])
  const added = await tried('approvals', 'allowlist', 'add', '*', '/usr/bin/df')
  assert.match(
    added.stderr,
    /is not added for \*: a row has one agent\n\s+Try: x0x --data-dir \S+ approvals allowlist add AGENT \/usr\/bin\/df\n/,
  )
  const set = await tried('exec-mode', 'show', '--agent', '*')
  assert.deepEqual([added.status, set.status], [2, 2])
  assert.match(set.stderr, /"\*" is not an agent/)
})
