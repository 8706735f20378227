import assert from 'node:assert/strict'
import { test } from 'node:test'

import { NonceSupply, NONCE_BATCH } from '../../src/links/stream-pool.ts'

test('nonces are minted in batches ahead of use, and a refusal reaches the caller that takes one', async () => {
  const calls: number[] = []
  const dropped: number[] = []
  let refuse = false
  const executor = {
    mintNonces: async (_link: number, count: number) => {
      calls.push(count)
      if (refuse) throw new Error('too many')
      return Array.from({ length: count }, (_, i) => new Uint8Array([calls.length, i]))
    },
    dropNonces: (_link: number, nonces: Uint8Array[]) => void dropped.push(...nonces.map((nonce) => nonce[1]!)),
  }
  const supply = new NonceSupply({ executor: executor as never }, { link: 1 })
  const taken = await Promise.all(Array.from({ length: NONCE_BATCH * 3 }, async () => supply.take()))
  assert.equal(new Set(taken.map(String)).size, taken.length)
  assert.ok(calls.length <= 5, String(calls.length))
  refuse = true
  await assert.rejects(async () => {
    for (;;) await supply.take()
  }, /too many/)
  supply.drop(taken[1]!)
  supply.close()
  supply.drop(taken[2]!)
  assert.equal(dropped.length, 1)
  await assert.rejects(supply.take())
})
