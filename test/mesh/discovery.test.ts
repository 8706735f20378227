import assert from 'node:assert/strict'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { isAppError } from '../../src/base/errors.ts'
import { signalOf } from '../support/hostile-link.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 60_000 }

test('alice and charlie find each other through bob, without knowing an address', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const alice = await startPeer(t, { name: 'alice', bootstrap: bob.node.addresses() })
  await until(() => bob.knownAgents.list().some((one) => one.agent_id === alice.agentId))
  const charlie = await startPeer(t, { name: 'charlie', bootstrap: bob.node.addresses() })
  const knows = (who: typeof alice, other: typeof alice): boolean => who.knownAgents.list().some((one) => one.agent_id === other.agentId)
  await until(() => knows(alice, charlie) && knows(charlie, alice))
  assert.deepEqual(alice.node.connectionsTo(charlie.machineId), [])
  assert.deepEqual(alice.executorClient.snapshot.contacts, [])
  const link = await alice.links.link(charlie.agentId, signalOf())
  assert.equal(link.machineId, charlie.machineId)
  await until(() => charlie.links.linkedAgent(alice.machineId) === alice.agentId)
  const row = alice.view.peers().find((peer) => peer.agent_id === charlie.agentId)
  assert.deepEqual(
    { name: row?.name, connected: row?.connected, linked: row?.linked, addresses: row?.addresses },
    { name: 'charlie', connected: true, linked: true, addresses: charlie.node.addresses() },
  )
})

test('a contact with a new address is found again by its presence', LIMIT, async (t) => {
  const hub = await startPeer(t, { name: 'hub' })
  const alice = await startPeer(t, { name: 'alice', bootstrap: hub.node.addresses() })
  const bob = await startPeer(t, { name: 'bob', bootstrap: hub.node.addresses() })
  await introduce(alice, bob, 'trusted')
  await until(() => alice.node.connectionsTo(bob.machineId).length > 0)
  await bob.stop()
  const moved = await startPeer(t, { name: 'bob', dataDir: bob.dataDir, bootstrap: hub.node.addresses() })
  assert.notDeepEqual(moved.node.addresses(), bob.node.addresses())
  await until(() => alice.node.connectionsTo(bob.machineId).length > 0)
  assert.equal((await alice.links.link(bob.agentId, signalOf())).machineId, bob.machineId)
})

test('a listen address that is in use stops the start', LIMIT, async (t) => {
  const alice = await startPeer(t, { name: 'alice' })
  const taken = alice.node.addresses()[0]!.replace(/\/p2p\/.*/, '')
  const { MeshNode } = await import('../../src/mesh/node.ts')
  const { silentLogger } = await import('../../src/base/log.ts')
  const other = new MeshNode(
    { clock: systemClock, machineKey: alice.machineKey, log: silentLogger },
    { listen: [taken], mdns: false, acceptsUnlisted: true },
  )
  t.after(() => other.stop())
  await assert.rejects(other.start(), (error) => isAppError(error, 'conflict') && error.message.includes(`${taken}: the port is in use`))
  assert.deepEqual(other.addresses(), [])
})
