import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test, type TestContext } from 'node:test'

import { soon } from '../../test/support/local-engine.ts'
import { mcpPlace, startMcp, type McpServer } from '../../test/support/mcp-server.ts'
import { MeshOfDaemons, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { isAlive } from '../../test/support/processes.ts'
import { callOf, RawServer } from '../../test/support/raw-mcp.ts'

// Commands that outlive the session of an AI agent. They are detached runs on another agent or on this machine's own agent.

const GRANTS = { security: 'allow_detach = true\nallow_targets = ["*"]', limits: 'max_detached_ms = 300000' }

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let worker: string
let gated: string

/** PID from the file that the program writes. */
const pidOf = async (name: string): Promise<number> => {
  const read = async (): Promise<string> => readFile(join(mesh.root, `pid-${name}`), 'utf8').catch(() => '')
  assert.ok(await soon(async () => (await read()).endsWith('\n')), name)
  return Number(await read())
}

const beside = async (t: TestContext): Promise<McpServer> => startMcp(t, GRANTS, { env: { X0X_DATA_DIR: alice.dir } })

const asked = (name: string, target: string, command = worker) => ({
  command,
  args: [name],
  target,
  detach: true,
  timeout_seconds: 250,
  idempotency_key: name,
})

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  const begin = `echo $$ > ${mesh.root}/new-$1; mv ${mesh.root}/new-$1 ${mesh.root}/pid-$1; echo one`
  worker = await mesh.program('worker', `${begin}; exec sleep 240`)
  gated = await mesh.program(
    'gated',
    `${begin}; echo x >> ${mesh.root}/count-$1; while [ ! -e ${mesh.root}/go ]; do sleep 0.05; done; echo two; exit 3`,
  )
  const commands = [
    [worker, '<INT>'],
    [gated, '<INT>'],
  ]
  await alice.start()
  await bob.writeAcl([
    { agent: alice, commands, keys: 'detach = true\nmax_detach_secs = 250' },
    { agent: alice, commands: [['echo', '<INT>']] },
  ])
  await bob.start()
  await alice.writeAcl([{ agent: alice, commands, keys: 'detach = true\nmax_detach_secs = 250' }])
  await alice.restart()
  await alice.meet(bob, 'trusted')
  await bob.meet(alice, 'trusted')
})

after(async () => mesh.stop())

test('a detached run continues after any end of its session, and a later session can end it', async (t) => {
  for (const [at, how] of (['end of input', 'SIGTERM', 'SIGKILL'] as const).entries()) {
    const names = [`1${at}`, `2${at}`] as const
    const place = await mcpPlace(t, GRANTS)
    const server = await RawServer.start(t, place, { whoami: 'a test', env: { X0X_DATA_DIR: alice.dir }, detached: true })
    server.send(callOf(1, 'exec_capture', { ...asked(names[0], 'bob'), answer_within_ms: 0 }))
    server.send(callOf(2, 'exec_capture', asked(names[1], alice.agentId)))
    const pids = [await pidOf(names[0]), await pidOf(names[1])]
    if (how === 'end of input') server.child.stdin?.end()
    else process.kill(-server.child.pid!, how)
    assert.ok(await soon(() => !isAlive(server.child.pid!)), `${how}: ${JSON.stringify(server.answers)}`)
    assert.ok(pids.every(isAlive), how)
    const later = await beside(t)
    for (const [which, target] of ['bob', alice.agentId].entries()) {
      const again = await later.run('exec_capture', { ...asked(names[which]!, target), answer_within_ms: 0 })
      const { run_id } = again
      assert.ok(await soon(async () => (await later.run('exec_wait', { run_id, answer_within_ms: 100 })).stdout === 'one\n'), how)
      const killed = await later.run('exec_kill', { run_id })
      assert.deepEqual([killed.state, killed.signal, killed.target], ['ended', 'SIGTERM', target])
    }
    assert.ok(!pids.some(isAlive), how)
    await later.close()
  }
})

test('a call that cannot be detached is refused, and the answer says what to do', async (t) => {
  const server = await beside(t)
  const said = async (args: object): Promise<string> => {
    const { isError, content } = await server.ask('exec_with_input', { ...asked('51', 'bob'), stdin: '', ...args })
    assert.equal(isError, true)
    return JSON.stringify(content)
  }
  for (const host of [{}, { host: 'sandbox' }, { host: 'gateway' }])
    assert.match(await said({ target: undefined, ...host }), /bad_request: detach: needs target, .*x0x id/)
  assert.match(await said({ idempotency_key: undefined }), /bad_request: detach: needs idempotency_key/)
  assert.match(await said({ stdin: 'x' }), /bad_request: detach: a detached run cannot have stdin/)
  assert.match(await said({ detach: 'yes' }), /bad_request: detach: /)
  const denied = await server.run('exec_status', { ...asked('51', 'bob'), command: 'echo', args: ['1'] })
  assert.equal(denied.denial_reason, 'detach_not_allowed')
  const ungranted = await startMcp(t, { security: 'allow_targets = ["*"]' }, { env: { X0X_DATA_DIR: alice.dir } })
  const refused = await ungranted.run('exec_status', asked('51', 'bob'))
  assert.match(`${refused.denial_reason}: ${refused.denial_detail}`, /unsupported_capability: .*security\.allow_detach grants it/)
  const alone = await startMcp(t, GRANTS, { env: { X0X_DATA_DIR: join(mesh.root, 'nobody') } })
  const missing = await alone.run('exec_status', asked('51', 'bob'))
  assert.match(String(missing.launch_error?.message), /a target needs x0xd on this machine: start it/)
})
