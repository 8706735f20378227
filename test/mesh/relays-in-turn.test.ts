import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import { systemClock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { LOOKED_AT_ONCE, Relays } from '../../src/mesh/relays.ts'
import { MAX_OWN_RELAYS } from '../../src/protocol/limits/mesh.ts'
import { fake } from '../support/fake.ts'

/** A daemon that is connected to these machines. Those in `offering` relay. */
const setUp = (t: TestContext, machines: readonly string[], offering: readonly string[], { reachable = false } = {}) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const places = new Set<string>()
  const mesh = { asked: [] as string[], accepts: true, looked: 0 }
  const reach = {
    accepts: () => mesh.accepts,
    onAddresses: () => undefined,
    places: {
      isOffered: async (machineId: string) => {
        mesh.asked.push(machineId)
        return offering.includes(machineId)
      },
      reserve: async (machineId: string) => void places.add(machineId),
      release: (machineId: string) => void places.delete(machineId),
      reservedUntil: (machineId: string) => (places.has(machineId) ? 1 : null),
    },
  }
  const connections = () => {
    mesh.looked += 1
    return machines.map((machineId) => ({ machineId, relay: null }))
  }
  const node = { connections, directAddresses: () => [], reach }
  const relays = new Relays(
    { node: node as never, book: fake({ addressesOf: () => [] }), clock: systemClock, log: silentLogger },
    { configured: [], reachable },
  )
  relays.start()
  t.after(() => relays.stop())
  const look = async (): Promise<string[]> => {
    mesh.asked = []
    t.mock.timers.tick(1_000)
    for (let turns = 0; turns < 5; turns++) await turn()
    return mesh.asked
  }
  return { mesh, places, look }
}

const machinesOf = (count: number): string[] => Array.from({ length: count }, (_, index) => index.toString(16).padStart(64, '0'))

test('a few contacts are checked each time until all had their turn, and own reservations every time', async (t) => {
  const machines = machinesOf(5 * LOOKED_AT_ONCE)
  const offering = machines.at(-1)!
  const { places, look } = setUp(t, machines, [offering])
  const seen = new Set<string>()
  for (let looks = 0; looks < 5; looks++) {
    const some = await look()
    assert.equal(some.length, LOOKED_AT_ONCE)
    for (const machineId of some) seen.add(machineId)
  }
  assert.equal(seen.size, machines.length)
  assert.ok(places.has(offering))
  for (let looks = 0; looks < 5; looks++) {
    const some = await look()
    assert.ok(some.includes(offering))
    assert.ok(some.length <= LOOKED_AT_ONCE + 1)
  }
})

test('a daemon with enough reservations checks only these, and releases them when it needs none', async (t) => {
  const machines = machinesOf(8)
  const { mesh, places, look } = setUp(t, machines, machines)
  await look()
  assert.equal(places.size, MAX_OWN_RELAYS)
  assert.deepEqual((await look()).toSorted(), [...places].toSorted())
  mesh.accepts = false
  await look()
  assert.equal(places.size, 0)
})

test('a daemon with a configured public address looks for no relay', async (t) => {
  const machines = machinesOf(8)
  const { mesh, look } = setUp(t, machines, machines, { reachable: true })
  assert.deepEqual([await look(), mesh.looked], [[], 0])
})
