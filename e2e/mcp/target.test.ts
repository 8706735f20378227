import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import type { ToolResult } from '../../src/doors/tools/tool-result.ts'
import { soon } from '../../test/support/local-engine.ts'
import { startMcp, type McpServer } from '../../test/support/mcp-server.ts'
import { aliceBobCharlie, MeshOfDaemons, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'

// A tool with a target: its command is a run of the mesh, which that agent's ACL permits or denies, and its result is that of a run here.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;({ alice, bob } = await aliceBobCharlie(mesh, [['echo', '<INT>'], ['sha256sum'], ['sleep', '<INT>'], ['seq', '<INT>'], ['false']]))
})

after(async () => mesh.stop())

const beside = async (t: Parameters<typeof startMcp>[0]): Promise<McpServer> =>
  startMcp(t, { security: 'allow_targets = ["bob", "nobody"]' }, { env: { X0X_DATA_DIR: alice.dir } })

/** What may differ between two runs of the same thing, and between here and there. */
const comparable = ({ duration_ms, run_id, cwd: _cwd, target: _target, ...rest }: ToolResult) => {
  assert.ok(duration_ms >= 0)
  return { ...rest, handle: run_id !== null }
}

test('the same command has the same result here and on a target, field by field', async (t) => {
  const server = await beside(t)
  const cases: readonly [name: string, args: Record<string, unknown>][] = [
    ['exec_status', { command: 'false' }],
    ['exec_capture', { command: 'echo', args: ['42'] }],
    ['exec_capture', { command: 'seq', args: ['30000'], max_stdout_bytes: 1_000 }],
    ['exec_with_input', { command: 'sha256sum', stdin: 'x'.repeat(100_000) }],
    ['exec_status', { command: 'sleep', args: ['30'], timeout_seconds: 1 }],
  ]
  for (const [name, args] of cases) {
    const [here, there] = [await server.run(name, args), await server.run(name, { ...args, target: 'bob' })]
    assert.deepEqual(comparable(there), comparable(here), JSON.stringify(args))
    assert.deepEqual([here.cwd, here.target, there.cwd, there.target], [server.root, null, null, 'bob'])
    assert.deepEqual(Object.keys(there), Object.keys(here))
  }
})

test('a time above what this host or the target allows is clamped, and the result says so in the same fields', async (t) => {
  const grants = { security: 'allow_targets = ["bob"]', limits: 'hard_timeout_ms = 100000' }
  const server = await startMcp(t, grants, { env: { X0X_DATA_DIR: alice.dir } })
  const wide = await startMcp(t, { ...grants, limits: 'hard_timeout_ms = 600000' }, { env: { X0X_DATA_DIR: alice.dir } })
  const timeOf = async ({ run }: McpServer, more: Record<string, unknown>): Promise<unknown> => {
    const { timeout_ms, timeout_clamped } = await run('exec_status', { command: 'echo', args: ['1'], ...more })
    return [timeout_ms, timeout_clamped]
  }
  const target = 'bob'
  for (const where of [{}, { target }]) {
    assert.deepEqual(await timeOf(server, { ...where, timeout_seconds: 100 }), [100_000, false])
    assert.deepEqual(await timeOf(server, { ...where, timeout_seconds: 101 }), [100_000, true])
  }
  // The cap of bob's ACL is 300 s, which it does not say.
  const asked = { timeout_seconds: 400, idempotency_key: 'clamped there' }
  assert.deepEqual(await timeOf(wide, { timeout_seconds: 400 }), [400_000, false])
  assert.deepEqual(await timeOf(wide, { ...asked, target }), [null, true])
})

test('a denial of the target names its reason, and what a target does not have is denied here', async (t) => {
  const server = await beside(t)
  const denied = await server.run('exec_capture', { command: 'cat', args: ['/etc/shadow'], target: 'bob' })
  assert.deepEqual([denied.success, denied.denial_reason, denied.launch_error, denied.exit_code], [false, 'argv_not_allowed', null, null])
  assert.match(String(denied.denial_detail), /bob denied ".*" \(\w+\): /)
  const elsewhere = await server.run('exec_capture', { command: 'echo', args: ['1'], target: 'bob', cwd: '/' })
  assert.deepEqual([elsewhere.denial_reason, elsewhere.launch_error], ['unsupported_capability', null])
  const unknown = await server.run('exec_capture', { command: 'echo', args: ['1'], target: 'nobody' })
  assert.deepEqual([unknown.denial_reason, unknown.launch_error?.kind], [null, 'config'])
  const forbidden = await server.run('exec_capture', { command: 'echo', args: ['1'], target: 'charlie' })
  assert.equal(forbidden.denial_reason, 'unsupported_capability')
  assert.equal((await bob.journal()).filter(({ event, argv }) => event === 'denial' && String(argv) === 'cat,/etc/shadow').length, 1)
})

test('a run of a target is waited for and ended by its handle, and a key runs it once', async (t) => {
  const server = await beside(t)
  const asked = { command: 'sleep', args: ['299'], timeout_seconds: 300, target: 'bob', idempotency_key: 'once' }
  const begun = await server.run('exec_status', { ...asked, answer_within_ms: 0 })
  assert.ok(begun.state === 'queued' || begun.state === 'running')
  const { run_id } = begun
  const running = async (): Promise<boolean> => (await server.run('exec_wait', { run_id, answer_within_ms: 0 })).state === 'running'
  assert.ok(await soon(running))
  assert.equal((await server.run('exec_status', { ...asked, answer_within_ms: 0 })).run_id, run_id)
  const killed = await server.run('exec_kill', { run_id })
  assert.deepEqual([killed.state, killed.success, killed.signal, killed.target], ['ended', false, 'SIGTERM', 'bob'])
  const started = (await bob.journal()).filter(({ event, argv }) => event === 'request' && String(argv) === 'sleep,299')
  assert.equal(started.length, 1)
})

test('a target is reached and proves itself without a run, our own daemon too, and one that is not known is a mistake', async (t) => {
  const { ask } = await startMcp(t, { security: 'allow_targets = ["*"]' }, { env: { X0X_DATA_DIR: alice.dir } })
  const runs = async (): Promise<number> => (await bob.journal()).filter(({ event }) => event === 'request').length
  const before = await runs()
  const check = async (target: string): Promise<unknown[]> => {
    const { structuredContent, content, isError } = await ask('check_host', { target })
    const { reachable, agent_id, machine_id, trust, problem } = (structuredContent ?? {}) as Record<string, unknown>
    assert.equal(isError, false, JSON.stringify(content))
    return [reachable, agent_id, machine_id, trust, problem]
  }
  assert.deepEqual(await check('bob'), [true, bob.agentId, bob.machineId, 'accept_with_flag', null])
  assert.deepEqual(await check(alice.agentId), [true, alice.agentId, alice.machineId, 'accept', null])
  const unknown = await ask('check_host', { target: 'nobody' })
  assert.equal(unknown.isError, true)
  assert.match(JSON.stringify(unknown.content), /unknown_agent/)
  const which = await ask('which_command', { command: 'echo', target: 'bob' })
  assert.equal((which.structuredContent as Record<string, unknown>)['found'], null)
  assert.equal(await runs(), before)
})
