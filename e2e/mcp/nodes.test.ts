import assert from 'node:assert/strict'
import { after, before, test, type TestContext } from 'node:test'

import type { LocalRequestEvent } from '../../src/journal/events.ts'
import { startMcp, type McpServer } from '../../test/support/mcp-server.ts'
import { aliceBobCharlie, MeshOfDaemons, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'

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
