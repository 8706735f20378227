import assert from 'node:assert/strict'
import { test } from 'node:test'

import { silentLogger } from '../../src/base/log.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { Beacon, pauseMs } from '../../src/mesh/beacon.ts'
import { MAX_HEARD_UNLISTED, Presences } from '../../src/mesh/presences.ts'
import { presence } from '../../src/protocol/wire/card.ts'
import { ManualClock } from '../support/manual-clock.ts'

const AGENT = 'a1'.repeat(32)
const machineOf = (n: number): string => machineKeyOf(Buffer.alloc(32, `machine${n}`)).machineId

const setUp = () => {
  const clock = new ManualClock()
  const presences = new Presences({ clock, isKnown: () => true, isContact: () => false }, { self: machineOf(0) })
  const said: string[][] = []
  const node = {
    at: ['/ip4/10.0.0.1/tcp/1'],
    addresses: () => node.at,
    joinTopic: () => undefined,
    publish: async (_topic: string, word: Uint8Array) => void said.push([...presence.decode(word).addresses]),
    reach: { onAddresses: (): void => undefined },
  }
  const selfCard = { current: async () => ({ issuedAt: 1, encoded: new Uint8Array() }) }
  const beacon = new Beacon(
    { node: node as never, presences, selfCard, onHeard: () => undefined, clock, log: silentLogger },
    { agentId: AGENT },
  )
  return { clock, presences, node, beacon, said }
}

test('a beacon that is stopped and started again sends presences again', async () => {
  const { clock, beacon, said } = setUp()
  beacon.start()
  await clock.advance(1_000)
  assert.equal(said.length, 1)
  beacon.stop()
  await clock.advance(3_600_000)
  assert.equal(said.length, 1)
  beacon.start()
  await clock.advance(1_000)
  assert.equal(said.length, 2)
  beacon.stop()
})

test('a changed address is announced at once, even in a large mesh', async () => {
  const { clock, presences, node, beacon, said } = setUp()
  const word = { version: 1 as const, agent_id: AGENT, card_issued_at_ms: 1, said_at_ms: clock.now(), holds_secs: 1_800, addresses: [] }
  for (let n = 1; n <= MAX_HEARD_UNLISTED; n++) presences.receive(presence.encode(word), machineOf(n), 'neighbour')
  assert.equal(pauseMs(presences.size), 600_000)
  beacon.start()
  await clock.advance(10_000)
  assert.equal(said.length, 1)
  // libp2p reports other changes as well.
  node.reach.onAddresses()
  await clock.advance(10_000)
  assert.equal(said.length, 1)
  node.at = ['/ip4/10.0.0.2/tcp/1']
  node.reach.onAddresses()
  await clock.advance(1_200)
  assert.deepEqual(said, [['/ip4/10.0.0.1/tcp/1'], ['/ip4/10.0.0.2/tcp/1']])
  beacon.stop()
})
