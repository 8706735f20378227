import assert from 'node:assert/strict'
import { chmod, mkdir, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { LocalRequestEvent } from '../../src/journal/events.ts'
import type { ToolResult } from '../../src/doors/tools/tool-result.ts'
import { deskPlace, type DeskPlaceHandle, type DeskPlaceInit } from '../../test/support/desk-place.ts'
import { decide, watching } from '../../test/support/desk-watcher.ts'
import { soon } from '../../test/support/local-engine.ts'
import { startMcp, type McpServer } from '../../test/support/mcp-server.ts'

// A command of an AI agent that needs approval. x0x mcp asks the approval service of its user over the socket, and checks the policy again
// with the answer.

const ON_HOST = '[tools.exec]\nhost = "gateway"\nsecurity = "allowlist"\nask = "on-miss"\n'

interface Place {
  readonly desk: DeskPlaceHandle
  readonly server: McpServer
}

const placeOf = async (t: TestContext, tools = ON_HOST, init: DeskPlaceInit = {}): Promise<Place> => {
  const desk = await deskPlace(t, init)
  const server = await startMcp(t, { mcp: `\n${tools}` }, { env: { X0X_DATA_DIR: desk.paths.dir } })
  return { desk, server }
}

const states = async (server: McpServer): Promise<unknown[]> =>
  ((await server.ask('exec_list')).structuredContent as { runs: { state: string }[] }).runs.map(({ state }) => state)

const refusal = ({ denial_reason, state, exit_code }: ToolResult): unknown[] => [denial_reason, state, exit_code]

test('O12: a command that waits for an approver has a run_id, and runs after the approver allows it once', async (t) => {
  const { desk, server } = await placeOf(t)
  const { human, next } = await watching(desk)
  const begun = await server.run('exec_capture', { command: 'echo', args: ['hello'], answer_within_ms: 0 })
  const asked = await next()
  const { question, engine } = asked
  assert.deepEqual([engine, question.door, question.argv, question.cwd], ['x0x mcp', 'mcp', ['echo', 'hello'], server.root])
  assert.deepEqual(
    [question.asker, question.target],
    [
      { kind: 'local', label: 'a test' },
      { host: 'gateway', agent_id: null },
    ],
  )
  const waiting = await server.run('exec_wait', { run_id: begun.run_id, answer_within_ms: 0 })
  assert.deepEqual([waiting.state, waiting.approval?.question_id, waiting.ran_on], ['waiting_for_approval', asked.question_id, undefined])
  assert.deepEqual(await states(server), ['waiting_for_approval'])
  await decide(human, asked, 'allow_once')
  const done = await server.run('exec_wait', { run_id: begun.run_id })
  assert.deepEqual([done.state, done.success, done.stdout, done.approval], ['ended', true, 'hello\n', undefined])
  assert.deepEqual([done.ran_on?.host, done.ran_on?.agent_id], ['gateway', null])
  const request = (await server.lines()).find(({ event }) => event === 'request') as LocalRequestEvent | undefined
  assert.equal(request?.ran_on?.host, 'gateway')
  assert.match(String(request?.approved_by), /^human:/)
  // The approval was for one run, so the next one needs approval again.
  const again = server.run('exec_capture', { command: 'echo', args: ['hello'] })
  await decide(human, await next(2), 'deny')
  assert.deepEqual(refusal(await again), ['approval_denied', 'ended', null])
})

test('B20: nothing runs after a denial, a timeout, or without an approval client or approval service', async (t) => {
  const { desk, server } = await placeOf(t, ON_HOST, { askTimeoutMs: 1_200 })
  const marker = join(server.root, 'ran')
  const touch = async (): Promise<ToolResult> => server.run('exec_status', { command: 'touch', args: [marker] })
  const alone = await touch()
  assert.deepEqual(refusal(alone), ['approval_unavailable', 'ended', null])
  const { human, next } = await watching(desk)
  const refused = touch()
  await decide(human, await next(), 'deny')
  assert.deepEqual(refusal(await refused), ['approval_denied', 'ended', null])
  assert.deepEqual(refusal(await touch()), ['approval_timeout', 'ended', null])
  await desk.stop()
  const nobody = await touch()
  assert.deepEqual(refusal(nobody), ['approval_unavailable', 'ended', null])
  assert.match(String(nobody.denial_detail), /start x0xd --init, or x0x desk/)
  const seen = await server.run('exec_capture', { command: 'ls', args: [server.root] })
  assert.equal(seen.denial_reason, 'approval_unavailable')
  await desk.restart()
  assert.deepEqual(refusal(await touch()), ['approval_unavailable', 'ended', null])
  const codes = (await server.lines()).flatMap((line) => (line.event === 'refused' ? [line.code] : []))
  assert.deepEqual(new Set(codes), new Set(['approval_unavailable', 'approval_denied', 'approval_timeout']))
  assert.ok((await server.lines()).every(({ event }) => event !== 'request'))
})

test('if the approval service stops while a command waits, the command does not run', async (t) => {
  const { desk, server } = await placeOf(t)
  const { next } = await watching(desk)
  const waiting = server.run('exec_capture', { command: 'echo', args: ['1'] })
  await next()
  await desk.stop()
  const { denial_reason, exit_code } = await waiting
  assert.ok(['approval_denied', 'approval_unavailable'].includes(String(denial_reason)), String(denial_reason))
  assert.equal(exit_code, null)
})

test('ending a waiting command or its server withdraws the approval request', async (t) => {
  const { desk, server } = await placeOf(t)
  const { human, next, settled } = await watching(desk)
  const { run_id } = await server.run('exec_status', { command: 'true', answer_within_ms: 0 })
  const first = await next()
  const killed = await server.run('exec_kill', { run_id })
  assert.deepEqual([killed.state, killed.success, killed.exit_code], ['ended', false, null])
  assert.ok(await soon(() => settled.includes(first.question_id)))
  await assert.rejects(decide(human, first, 'allow_once'))
  await server.run('exec_status', { command: 'true', answer_within_ms: 0 })
  const second = await next(2)
  await server.close()
  assert.ok(await soon(() => settled.includes(second.question_id)))
})

test('B15, B16: a script or directory that is replaced during the approval ends in approval_mismatch', async (t) => {
  const { desk, server } = await placeOf(t)
  const { human, next } = await watching(desk)
  const script = join(server.dir, 'script')
  const write = async (text: string): Promise<void> => writeFile(script, `#!/bin/sh\n${text}\n`)
  await write('echo harmless')
  await chmod(script, 0o755)
  const changed = server.run('exec_capture', { command: script })
  const first = await next()
  await write('echo harmful')
  await decide(human, first, 'allow_once')
  assert.deepEqual(refusal(await changed), ['approval_mismatch', 'ended', null])
  const [sub, other] = [join(server.root, 'sub'), join(server.root, 'other')]
  for (const directory of [sub, other]) await mkdir(directory)
  const moved = server.run('exec_capture', { command: 'pwd', cwd: sub })
  const second = await next(2)
  await rename(sub, join(server.root, 'away'))
  await rename(other, sub)
  await decide(human, second, 'allow_once')
  assert.deepEqual(refusal(await moved), ['approval_mismatch', 'ended', null])
})

test('O4: a call can narrow its execution mode, learns which preference was cut, and chooses among allowed hosts', async (t) => {
  const { desk, server } = await placeOf(t, `${ON_HOST}allowed_hosts = ["gateway"]\n`, { security: 'full' })
  const { human, next } = await watching(desk)
  const wider = server.run('exec_capture', { command: 'echo', args: ['1'], security: 'full', ask: 'off' })
  const { question } = await next()
  assert.deepEqual([question.security, question.ask], ['allowlist', 'on-miss'])
  await decide(human, await next(), 'allow_once')
  assert.deepEqual(
    (await wider).cut_wishes?.map(({ key, asked, got }) => [key, asked, got]),
    [
      ['security', 'full', 'allowlist'],
      ['ask', 'off', 'on-miss'],
    ],
  )
  const denied = await server.run('exec_capture', { command: 'echo', args: ['1'], security: 'deny' })
  assert.equal(denied.denial_reason, 'command_denied')
  const closed = await server.run('exec_capture', { command: 'echo', args: ['1'], host: 'sandbox' })
  assert.deepEqual([closed.denial_reason, /allowed: gateway/.test(String(closed.denial_detail))], ['command_denied', true])
  const both = await server.ask('exec_capture', { command: 'echo', host: 'node', target: 'bob' })
  assert.equal(both.isError, true)
})

test('O7, B22: an approver can elevate a session and end this with off, and no tool of the AI agent can', async (t) => {
  const { desk, server } = await placeOf(t, ON_HOST, { security: 'full' })
  const { human, asked, next } = await watching(desk)
  const echo = async (): Promise<ToolResult> => server.run('exec_capture', { command: 'echo', args: ['1'] })
  const nothing = { host: null, security: null, ask: null, node: null } as const
  await human.setModes('a test', { ...nothing, elevated: 'full' })
  assert.equal((await echo()).success, true)
  assert.equal(asked.length, 0)
  await human.setModes('a test', { ...nothing, elevated: 'ask' })
  const once = echo()
  await decide(human, await next(), 'allow_once')
  assert.equal((await once).success, true)
  await human.setModes('a test', null)
  const again = echo()
  await decide(human, await next(2), 'deny')
  assert.equal((await again).denial_reason, 'approval_denied')
  const { tools } = await server.client.listTools()
  assert.deepEqual(
    tools.map(({ name }) => name).filter((name) => /mode|approv|elevat|config/.test(name)),
    [],
  )
})

test('O1, O5: the default host is the sandbox, and a command never runs on this machine instead', async (t) => {
  const { server } = await placeOf(t, '[tools.exec]\n')
  const result = await server.run('exec_capture', { command: 'ls', args: ['/'] })
  if (result.denial_reason === null) assert.deepEqual([result.success, result.ran_on?.host], [true, 'sandbox'], JSON.stringify(result))
  else assert.equal(result.denial_reason, 'sandbox_unavailable')
})
