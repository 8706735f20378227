import assert from 'node:assert/strict'
import { test } from 'node:test'

import { newRequestId } from '../../src/identity/request-id.ts'
import { directPing, directPong, PING_PREFIX, PONG_PREFIX } from '../../src/protocol/wire/dm.ts'
import { PING_BURST } from '../../src/protocol/limits/wire.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 30_000 }
const soon = (): AbortSignal => AbortSignal.timeout(20_000)

test('pings of an accepted agent are answered up to a rate, and pings of an unlisted agent are ignored', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'known')
  const refused = { code: 'peer_rejected', message: /^the agent was reached but does not answer/ }
  await assert.rejects(alice.pings.ping(bob.agentId, soon()), refused)
  assert.deepEqual([bob.counters.get('pings_ignored'), bob.counters.get('pings_answered')], [1, 0])
  await introduce(bob, alice, 'known')
  await until(() => bob.links.list().some(({ decision }) => decision === 'accept_with_flag'))
  const { agent_id, machine_id, version, own_version, rtt_ms } = await alice.pings.ping(bob.agentId, soon())
  assert.deepEqual([agent_id, machine_id, version, own_version], [bob.agentId, bob.machineId, '9.9.9', '9.9.9'])
  assert.ok(rtt_ms > 0)
  const flood = await Promise.allSettled(Array.from({ length: 2 * PING_BURST }, async () => alice.pings.ping(bob.agentId, soon())))
  const answered = flood.filter(({ status }) => status === 'fulfilled').length
  assert.ok(answered >= PING_BURST - 1 && answered < 2 * PING_BURST, `${answered} answered`)
})

test('only the first ping of a stream is answered, and an unexpected pong is dropped', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'known')
  await introduce(bob, alice, 'known')
  const ping = Buffer.concat([PING_PREFIX, directPing.encode({ program_version: 'x' })])
  const channel = await alice.links.openChannel(bob.agentId, soon())
  let heard = 0
  channel.onBody = () => (heard += 1)
  const closed = Promise.withResolvers<unknown>()
  channel.onClosed = closed.resolve
  for (let at = 0; at < 5; at++) channel.send(newRequestId(), ping)
  assert.equal(await closed.promise, null)
  assert.equal(heard, 1)
  // A pong without a ping counts as an unknown prefix.
  const stray = await alice.links.openChannel(bob.agentId, soon())
  stray.send(newRequestId(), Buffer.concat([PONG_PREFIX, directPong.encode({ program_version: 'x', received_at_ms: 1 })]))
  await until(() => bob.counters.get('unknown_prefix') === 1)
  stray.abort()
})
