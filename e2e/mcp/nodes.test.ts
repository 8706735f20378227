import assert from 'node:assert/strict'
import { after, before, test, type TestContext } from 'node:test'

import type { LocalRequestEvent } from '../../src/journal/events.ts'
import { startMcp, type McpServer } from '../../test/support/mcp-server.ts'
import { WatchingHuman } from '../../test/support/mesh-approvals.ts'
import { aliceBobCharlie, MeshOfDaemons, until, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'

// O13: a command on an agent of the mesh that a call, or the configuration, names.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;({ alice, bob } = await aliceBobCharlie(mesh, [['echo', '<INT>']], '', [['echo', 'asked']]))
})

after(async () => mesh.stop())

const beside = async (t: TestContext, tools: string, security = 'allow_targets = ["bob"]'): Promise<McpServer> =>
  startMcp(t, { security, mcp: `\n[tools.exec]\n${tools}` }, { env: { X0X_DATA_DIR: alice.dir } })

const ECHO = { command: 'echo', args: ['42'] }
const OPEN = 'security = "full"\nask = "off"\nallowed_hosts = ["node"]\n'

test('O13: a node is named by its id, the beginning of it, or its name however it is written, and the result says where it ran', async (t) => {
  const server = await beside(t, OPEN)
  for (const node of ['bob', 'BOB', bob.agentId, bob.agentId.slice(0, 8)]) {
    const result = await server.run('exec_capture', { ...ECHO, host: 'node', node })
    assert.deepEqual([result.success, result.stdout], [true, '42\n'], JSON.stringify(result))
    assert.deepEqual(result.ran_on, { host: 'node', agent_id: bob.agentId, name: 'bob' })
  }
  const target = await server.run('exec_capture', { ...ECHO, target: 'bob' })
  assert.deepEqual(target.ran_on, { host: 'node', agent_id: bob.agentId, name: 'bob' })
  const request = (await server.lines()).find(({ event }) => event === 'request') as LocalRequestEvent | undefined
  assert.deepEqual([request?.target, request?.ran_on?.agent_id], [bob.agentId, bob.agentId])
})

test('a command that waits for a human over there is seen to, and runs when he allows it', async (t) => {
  const server = await beside(t, OPEN)
  const human = await WatchingHuman.at(bob)
  const asked = server.run('exec_capture', { command: 'echo', args: ['asked'], host: 'node', node: 'bob' })
  const pending = await human.next()
  await until('it is seen to wait', async () => {
    const { runs } = (await server.ask('exec_list')).structuredContent as { runs: { state: string }[] }
    return runs.some(({ state }) => state === 'waiting_for_approval')
  })
  await human.decide(pending, 'allow_once')
  assert.equal((await asked).stdout, 'asked\n')
  human.close()
})

test('O20: who is meant by nobody, or by no word, is an error, and one that is not allowed is denied', async (t) => {
  const server = await beside(t, OPEN)
  const kindOf = async (more: Record<string, unknown>): Promise<unknown> => {
    const { launch_error, denial_reason } = await server.run('exec_capture', { ...ECHO, host: 'node', ...more })
    return launch_error?.kind ?? denial_reason
  }
  assert.equal(await kindOf({ node: 'nobody' }), 'config')
  assert.equal(await kindOf({}), 'config')
  assert.equal(await kindOf({ node: 'ab'.repeat(32) }), 'unsupported_capability')
})

test('O5: a node is bound by the configuration, and by default nothing runs there', async (t) => {
  const bound = await beside(t, `host = "node"\nnode = "bob"\nsecurity = "full"\nask = "off"\n`)
  assert.deepEqual((await bound.run('exec_capture', ECHO)).ran_on?.agent_id, bob.agentId)
  const other = await bound.run('exec_capture', { ...ECHO, node: 'charlie' })
  assert.equal(other.denial_reason, 'command_denied')
  const closed = await beside(t, 'host = "node"\nnode = "bob"\n')
  assert.equal((await closed.run('exec_capture', ECHO)).denial_reason, 'command_denied')
  const here = await beside(t, '')
  const refused = await here.run('exec_capture', { ...ECHO, target: 'bob' })
  assert.equal(refused.denial_reason, 'command_denied')
})
