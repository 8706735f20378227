import assert from 'node:assert/strict'
import { test } from 'node:test'

import { checkMesh, type MeshReport } from '../../src/doctor/mesh-check.ts'
import { startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const linesOf = (mesh: MeshReport): string[] => checkMesh(mesh).map(({ standing, topic, text }) => `${standing} ${topic}: ${text}`)

test('the doctor shows how much of the mesh a daemon sees, its persistent connections and its DHT role', async (t) => {
  const server = await startPeer(t, { name: 'server', dht: 'server' })
  const bootstrap = server.node.addresses()
  const client = await startPeer(t, { name: 'client', dht: 'client', bootstrap })
  await until(() => client.view.diagnostics().hash_table.peers === 1 && client.view.diagnostics().presences.heard === 1)
  await until(() => client.view.diagnostics().cards.known === 1)
  const [mesh, table] = linesOf(client.view.diagnostics())
  assert.equal(mesh, 'ok mesh: 1 machine heard of, 1 agent known, 1 of 1 persistent connection, 1 connected')
  assert.equal(table, 'ok DHT: client: 1 peer (1 connected), 0 records stored, own record published 0 times, 0 of 0 look-ups succeeded')
  await server.stop()
  await until(() => client.node.connections().length === 0)
  const [meshAfter, tableAfter] = linesOf(client.view.diagnostics())
  assert.match(meshAfter!, /^warn mesh: .*0 of 1 persistent connection, 0 connected$/)
  assert.match(tableAfter!, /^ok DHT: client: 1 peer \(0 connected\)/, 'it keeps its place in the table')
})

test('the doctor warns about a DHT client without peers, but not about a daemon without a DHT', async (t) => {
  const alone = await startPeer(t, { name: 'alone', dht: 'client' })
  assert.match(linesOf(alone.view.diagnostics())[1]!, /^warn DHT: client: 0 peers \(0 connected\)/)
  const off = await startPeer(t, { name: 'off' })
  assert.match(linesOf(off.view.diagnostics())[1]!, /^ok DHT: off: /)
})
