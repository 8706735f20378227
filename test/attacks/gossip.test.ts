import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { machineIdOf } from '../../src/mesh/addresses.ts'
import { presence } from '../../src/protocol/wire/card.ts'
import { signalOf } from '../support/hostile-link.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { openGossip, rightlySigned, UnlistedPeer } from '../support/unlisted-peer.ts'
import { PENALTY_MS, MIN_PENALTY_MS } from '../../src/mesh/penalties.ts'

test('a peer that forwards a valid message gets no penalty for an invalid one with the same ID', { timeout: 60_000 }, async (t) => {
  const [bob, alice] = [await startPeer(t, { name: 'bob' }), await startPeer(t, { name: 'alice' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted', true)
  await alice.links.link(bob.agentId, signalOf())
  await until(() => bob.presences.counts.accepted > 0 && alice.presences.counts.accepted > 0)
  const connections = alice.node.connectionsTo(bob.machineId)

  const seed = randomBytes(32)
  const mallory = await UnlistedPeer.start(t, seed)
  const machine_id = machineIdOf(mallory.node.peerId)!
  const toBob = await openGossip(await mallory.connect(bob.node.addresses()[0]!))
  const toAlice = await openGossip(await mallory.connect(alice.node.addresses()[0]!))
  const heardByAlice = async (number: number): Promise<void> => {
    const said_at_ms = Date.now() + number
    const said = { version: 1 as const, agent_id: 'a1'.repeat(32), card_issued_at_ms: 1, said_at_ms, holds_secs: 600, addresses: [] }
    toAlice.send(await rightlySigned(seed, number, presence.encode(said)))
    await until(() => alice.presences.of(machine_id)?.said_at_ms === said_at_ms)
  }
  // One more violation than causes a refusal, because a small part of the penalty expires meanwhile.
  const offences = Math.ceil(MIN_PENALTY_MS / PENALTY_MS.bad_gossip) + 1
  for (let number = 1; number <= offences; number++) {
    toBob.send(await rightlySigned(seed, number, randomBytes(64)))
    await until(() => bob.presences.counts.rejected === number)
    await heardByAlice(number)
  }
  await heardByAlice(offences + 1)
  // The last message arrives after all others, through alice.
  await until(() => bob.presences.list().some((seen) => seen.machine_id === machine_id))
  assert.deepEqual(
    bob.node.refusals().penalties.map(({ source, refused }) => [source, refused]),
    [['127.0.0.1', true]],
  )
  assert.ok(connections.length > 0 && connections.every(({ open }) => open))
})
