import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { DmChannel } from '../../src/links/channel.ts'
import { newRequestId } from '../../src/identity/request-id.ts'
import { EXEC_PREFIX } from '../../src/protocol/wire/exec.ts'
import { RATES } from '../../src/protocol/limits/mesh.ts'
import { signalOf } from '../support/hostile-link.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 90_000 }
const PIECE = Buffer.concat([EXEC_PREFIX, Buffer.alloc(60_000)])
/** More bytes than a named machine may send during the test. */
const PIECES = Math.ceil((2 * RATES.named.bytes.burst) / PIECE.length)

const pour = async (channel: DmChannel): Promise<void> => {
  for (let i = 0; i < PIECES && !channel.closed; i++) if (!channel.send(newRequestId(), PIECE)) await channel.drained()
}

test('an agent that was asked may answer at full rate, even if its contact has level unknown', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'unknown')
  await introduce(bob, alice, 'trusted', true)
  bob.dispatcher.route(EXEC_PREFIX, (channel) => void pour(channel))
  // Bob opens the link, because the rule must not depend on who opened it.
  await bob.links.link(alice.agentId, signalOf())
  await until(() => alice.links.list().length === 1)
  assert.equal(alice.node.classOf(bob.machineId), 'named')
  const channel = await alice.links.openChannel(bob.agentId, signalOf())
  assert.equal(alice.counters.get('links_opened'), 1)
  let received = 0
  channel.onBody = () => (received += 1)
  channel.send(newRequestId(), EXEC_PREFIX)
  await until(() => received === PIECES || channel.closed)
  assert.equal(received, PIECES)
  assert.deepEqual(alice.node.refusals().penalties, [])
})

test('an accepted agent is also accepted on a machine that only its link has shown', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'unknown')
  await bob.contacts.importCard({ ...(await alice.card()), addresses: [] }, { trust: 'trusted' })
  await until(() => bob.executorClient.snapshot.contacts.length === 1)
  assert.equal(bob.node.classOf(alice.machineId), 'unlisted')
  await alice.links.link(bob.agentId, signalOf())
  await until(() => bob.node.classOf(alice.machineId) === 'accepted')
  await alice.stop()
  await until(() => bob.node.connections().length === 0)
  assert.equal(bob.node.classOf(alice.machineId), 'unlisted')
})
