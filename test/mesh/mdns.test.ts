import assert from 'node:assert/strict'
import { test } from 'node:test'

import { signCard, verifyCard } from '../../src/identity/card.ts'
import { CARD_DOMAIN } from '../../src/protocol/wire/card.ts'
import { signalOf } from '../support/hostile-link.ts'
import { noMulticast } from '../support/multicast.ts'
import { startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

/** Other machines on this network may be found as well. The tests look only at the expected ones. */
const LIMIT = { timeout: 60_000, skip: await noMulticast() }

const connected = (who: Peer, other: Peer): boolean => who.node.connectionsTo(other.machineId).length > 0

test('a contact whose card has no address is found on the local network', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob', mdns: true })
  const alice = await startPeer(t, { name: 'alice', mdns: true })
  const now = Date.now()
  const body = {
    version: 1 as const,
    agent_public_key: bob.signer.publicKey,
    machine_id: bob.machineId,
    name: 'bob',
    addresses: [],
    issued_at_ms: now,
    expires_at_ms: now + 60_000,
  }
  await alice.contacts.importCard(verifyCard(await signCard(bob.signer, body, CARD_DOMAIN), CARD_DOMAIN, now), { trust: 'trusted' })
  await alice.contacts.pin(bob.agentId, bob.machineId)
  // It may have been found before it was a contact.
  await until(() => connected(alice, bob) && alice.executorClient.snapshot.contacts.some(({ machines }) => machines.length > 0))
  assert.equal((await alice.links.link(bob.agentId, signalOf())).machineId, bob.machineId)
})

test('a daemon without mDNS is not found on the local network', LIMIT, async (t) => {
  const hidden = await startPeer(t, { name: 'hidden' })
  const alice = await startPeer(t, { name: 'alice', mdns: true })
  const bob = await startPeer(t, { name: 'bob', mdns: true })
  await until(() => connected(alice, bob))
  assert.equal(connected(alice, hidden), false)
})
