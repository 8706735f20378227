import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { sha256 } from '../../src/identity/hash.ts'
import { persistentPeers as among } from '../../src/mesh/address-book.ts'
import { toHex } from '../../src/protocol/ids.ts'
import { MAX_STANDING_CONNECTIONS } from '../../src/protocol/limits/wire.ts'

const standingAmong = (self: string, machines: readonly string[]): string[] => among(self, machines, MAX_STANDING_CONNECTIONS)
const fleet = (size: number, seed: number): string[] => Array.from({ length: size }, (_, i) => toHex(sha256(Buffer.from(`${seed} ${i}`))))

test('in a small fleet each machine keeps persistent connections to all others, in any order of the list', () => {
  const machines = fleet(MAX_STANDING_CONNECTIONS + 1, 1)
  for (const self of machines) assert.equal(standingAmong(self, machines).length, MAX_STANDING_CONNECTIONS)
  assert.deepEqual(standingAmong('', ['a', 'a', 'b']), ['a', 'b'])
})

test('in a large fleet each machine keeps few persistent connections, in pairs, and all are a few hops apart', () => {
  fc.assert(
    fc.property(fc.integer({ min: MAX_STANDING_CONNECTIONS + 2, max: 1_000 }), fc.nat(1_000), (size, seed) => {
      const machines = fleet(size, seed)
      const pairs = new Map(machines.map((self) => [self, standingAmong(self, machines)]))
      const most = 2 * Math.ceil(Math.log2(size))
      for (const [self, chosen] of pairs) {
        assert.ok(chosen.length >= 2 && chosen.length <= most, `${chosen.length} of ${size}`)
        assert.ok(!chosen.includes(self))
        for (const one of chosen) assert.ok(pairs.get(one)!.includes(self))
      }
      let reached = new Set([machines[0]!])
      for (let hops = 0; hops <= Math.ceil(Math.log2(size)); hops++)
        reached = new Set([...reached, ...[...reached].flatMap((one) => pairs.get(one)!)])
      assert.equal(reached.size, size)
    }),
    { seed: 20261126, numRuns: 15 },
  )
})

test('the number of persistent connections grows by two with each doubling of the fleet', () => {
  const chosenOf = (size: number): number => {
    const machines = fleet(size, 7)
    return standingAmong(machines[5]!, machines).length
  }
  assert.deepEqual([100, 1_000, 10_000].map(chosenOf), [12, 18, 26])
})
