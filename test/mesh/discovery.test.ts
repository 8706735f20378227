import assert from 'node:assert/strict'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { isAppError } from '../../src/base/errors.ts'
import { signalOf } from '../support/hostile-link.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 60_000 }

test('bob introduces alice and charlie, whom nobody gave the other’s address', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const alice = await startPeer(t, { name: 'alice', bootstrap: bob.node.addresses() })
  await until(() => bob.knownAgents.list().some((one) => one.agent_id === alice.agentId))
  const charlie = await startPeer(t, { name: 'charlie', bootstrap: bob.node.addresses() })
  const knows = (who: typeof alice, other: typeof alice): boolean => who.knownAgents.list().some((one) => one.agent_id === other.agentId)
  await until(() => knows(alice, charlie) && knows(charlie, alice))
  assert.deepEqual(alice.node.connectionsTo(charlie.machineId), [])
  assert.deepEqual(alice.port.snapshot.contacts, [])
  const link = await alice.links.link(charlie.agentId, signalOf())
  assert.equal(link.machineId, charlie.machineId)
  await until(() => charlie.links.linkedAgent(alice.machineId) === alice.agentId)
  const row = alice.view.peers().find((peer) => peer.agent_id === charlie.agentId)
  assert.deepEqual(
    { name: row?.name, connected: row?.connected, linked: row?.linked, addresses: row?.addresses },
    { name: 'charlie', connected: true, linked: true, addresses: charlie.node.addresses() },
  )
})

test('a known contact is connected without being asked, and again after it was away', LIMIT, async (t) => {
  const alice = await startPeer(t, { name: 'alice' })
  const bob = await startPeer(t, { name: 'bob' })
  await introduce(alice, bob, 'known')
  await until(() => alice.node.connectionsTo(bob.machineId).length === 1)
  const listen = bob.node.addresses()[0]!.replace(/\/p2p\/.*/, '')
  await bob.stop()
  await until(() => alice.reconnect.status()[0]?.last_error !== null && (alice.reconnect.status()[0]?.failures ?? 0) > 0)
  await startPeer(t, { name: 'bob', dataDir: bob.dataDir, listen })
  await until(() => alice.node.connectionsTo(bob.machineId).length === 1)
  assert.deepEqual(
    alice.reconnect.status().map((one) => [one.machine_id, one.connected]),
    [[bob.machineId, true]],
  )
})

test('an unknown or blocked contact is not dialled, and one that stops being wanted is let be', LIMIT, async (t) => {
  const [alice, bob, eve] = [
    await startPeer(t, { name: 'alice' }),
    await startPeer(t, { name: 'bob' }),
    await startPeer(t, { name: 'eve' }),
  ]
  await introduce(alice, eve, 'unknown')
  await introduce(alice, bob, 'trusted')
  await until(() => alice.node.connectionsTo(bob.machineId).length === 1)
  assert.deepEqual(alice.node.connectionsTo(eve.machineId), [])
  await alice.contacts.setTrust(bob.agentId, 'blocked')
  await until(() => alice.reconnect.status().length === 0)
})

test('a contact that moved is found again by its presence', LIMIT, async (t) => {
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

test('dialling an address where another machine answers is refused and says so', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  const stranger = await startPeer(t, { name: 'stranger' })
  const wrong = bob.node.addresses()[0]!.replace(/\/p2p\/.*/, '') + stranger.node.addresses()[0]!.replace(/^.*(?=\/p2p\/)/, '')
  const tried = ['/ip4/127.0.0.1/tcp/1' + wrong.replace(/^.*(?=\/p2p\/)/, ''), bob.node.addresses()[0]!, wrong]
  await assert.rejects(alice.node.dial(stranger.machineId, tried, signalOf()), (error) => {
    assert.ok(isAppError(error, 'peer_unreachable'))
    assert.deepEqual(
      (error.data['addresses'] as { address: string }[]).map((one) => one.address),
      tried,
    )
    return true
  })
  assert.deepEqual(alice.node.connectionsTo(stranger.machineId), [])
})

test('addresses that cannot be listened on stop the start', LIMIT, async (t) => {
  const alice = await startPeer(t, { name: 'alice' })
  const taken = alice.node.addresses()[0]!.replace(/\/p2p\/.*/, '')
  const { MeshNode } = await import('../../src/mesh/node.ts')
  const { silentLogger } = await import('../../src/base/log.ts')
  const other = new MeshNode({ clock: systemClock, machineKey: alice.machineKey, log: silentLogger }, { listen: [taken], mdns: false })
  t.after(() => other.stop())
  await assert.rejects(other.start(), (error) => isAppError(error, 'conflict') && error.message.includes(`${taken}: the port is in use`))
  assert.deepEqual(other.addresses(), [])
})
