import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import { systemClock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { LOOKED_AT_ONCE, Relays } from '../../src/mesh/relays.ts'

test('of many contacts a few are looked at each time, and every one has its turn; a place that we have is looked at each time', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const machines = Array.from({ length: 5 * LOOKED_AT_ONCE }, (_, index) => index.toString(16).padStart(64, '0'))
  const offering = machines.at(-1)!
  const places = new Set<string>()
  let asked: string[] = []
  const reach = {
    accepts: () => true,
    onAddresses: () => undefined,
    places: {
      isOffered: async (machineId: string) => {
        asked.push(machineId)
        return machineId === offering
      },
      reserve: async (machineId: string) => void places.add(machineId),
      reservedUntil: (machineId: string) => (places.has(machineId) ? 1 : null),
    },
  }
  const node = { connections: () => machines.map((machineId) => ({ machineId, relay: null })), directAddresses: () => [], reach }
  const relays = new Relays(
    { node: node as never, book: { addressesOf: () => [] }, clock: systemClock, log: silentLogger },
    { configured: [], reachable: false },
  )
  relays.start()
  t.after(() => relays.stop())
  const look = async (): Promise<string[]> => {
    asked = []
    t.mock.timers.tick(1_000)
    for (let turns = 0; turns < 5; turns++) await turn()
    return asked
  }
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
