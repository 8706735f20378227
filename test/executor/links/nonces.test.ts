import assert from 'node:assert/strict'
import { test } from 'node:test'

import { newLife, Nonces } from '../../../src/executor/links/nonces.ts'
import { randomBytes } from '../../../src/identity/hash.ts'
import { MAX_NONCES_PER_PEER } from '../../../src/protocol/limits/wire.ts'

test('a nonce is valid once, only for the pair that received it', () => {
  const nonces = new Nonces({ life: newLife() })
  const [nonce] = nonces.mint('a', 1)
  assert.equal(nonces.consume('b', nonce!), false)
  assert.equal(nonces.consume('a', nonce!), true)
  assert.equal(nonces.consume('a', nonce!), false)
  assert.equal(nonces.consume('a', randomBytes(32)), false)
})

test('if a pair gets more nonces than the limit, only its own oldest ones become void', () => {
  const nonces = new Nonces({ life: newLife() })
  const [other] = nonces.mint('b', 1)
  const first = nonces.mint('a', MAX_NONCES_PER_PEER)
  const [last] = nonces.mint('a', 1)
  assert.equal(nonces.consume('a', first[0]!), false)
  assert.equal(nonces.consume('a', first[1]!), true)
  assert.equal(nonces.consume('a', last!), true)
  assert.equal(nonces.consume('b', other!), true)
  nonces.forget('a', true)
  assert.equal(nonces.consume('a', first[2]!), false)
})
