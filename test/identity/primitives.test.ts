import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { readFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { hasNativePrimitives, nativePrimitives, MAX_PUBLIC_KEYS } from '../../src/identity/native-primitives.ts'
import { noblePrimitives } from '../../src/identity/noble-primitives.ts'
import type { Primitives } from '../../src/identity/primitives-interface.ts'
import { loadPrimitives, primitives } from '../../src/identity/primitives.ts'
import {
  AEAD_TAG_BYTES,
  AGENT_PUBLIC_KEY_BYTES,
  AGENT_SIGNATURE_BYTES,
  KEM_CIPHERTEXT_BYTES,
  KEM_PUBLIC_KEY_BYTES,
} from '../../src/protocol/limits/wire.ts'

interface AeadVector {
  source: string
  key: string
  nonce: string
  plaintext: string
  ciphertext: string
  tag: string | null
}

const vectors = JSON.parse(readFileSync(new URL('../../proto/vectors/primitives.json', import.meta.url), 'utf8')) as {
  ml_dsa_65: { seed: string; message: string; public_key: string; signature: string }
  ml_kem_768: { seed: string; public_key: string; ciphertext: string; shared_secret: string }
  chacha20_poly1305: AeadVector[]
}

const bytes = (hex: string): Buffer => Buffer.from(hex, 'hex')
const hex = (value: Uint8Array): string => Buffer.from(value).toString('hex')
const message = Buffer.from('a statement')
const isMalformed = (error: unknown): boolean => isAppError(error, 'malformed')

const flipped = (value: Uint8Array, bit: number): Uint8Array => {
  const copy = new Uint8Array(value)
  copy[bit >> 3]! ^= 1 << (bit & 7)
  return copy
}

assert.ok(hasNativePrimitives(), 'the pinned runtime has the post-quantum algorithms')

test('the runtime is preferred over the library', async () => {
  await loadPrimitives()
  assert.equal(primitives().name, process.env['X0X_CRYPTO'] === 'noble' ? 'noble' : 'native')
  assert.equal(primitives(), primitives())
})

for (const one of [nativePrimitives, noblePrimitives]) {
  const other: Primitives = one === nativePrimitives ? noblePrimitives : nativePrimitives

  test(`${one.name} matches the published vector of ML-DSA-65`, () => {
    const vector = vectors.ml_dsa_65
    assert.equal(hex(one.dsaKeygen(bytes(vector.seed)).publicKey), vector.public_key)
    assert.equal(one.dsaVerify(bytes(vector.public_key), bytes(vector.message), bytes(vector.signature)), true)
    assert.equal(one.dsaVerify(bytes(vector.public_key), Buffer.from('Hello World'), bytes(vector.signature)), false)
  })

  test(`${one.name} matches the published vector of ML-KEM-768`, () => {
    const vector = vectors.ml_kem_768
    const pair = one.kemKeygen(bytes(vector.seed))
    assert.equal(hex(pair.publicKey), vector.public_key)
    assert.equal(hex(one.kemDecapsulate(pair.secret, bytes(vector.ciphertext))), vector.shared_secret)
  })

  for (const vector of vectors.chacha20_poly1305) {
    test(`${one.name} matches ${vector.source} for ChaCha20-Poly1305`, () => {
      const key = one.aeadKey(bytes(vector.key))
      const sealed = Buffer.concat(one.aeadSeal(key, bytes(vector.nonce), [bytes(vector.plaintext)]))
      const length = vector.ciphertext.length / 2
      assert.equal(hex(sealed.subarray(0, length)), vector.ciphertext)
      assert.equal(sealed.length, length + AEAD_TAG_BYTES)
      if (vector.tag !== null) assert.equal(hex(sealed.subarray(length)), vector.tag)
      assert.equal(hex(one.aeadOpen(key, bytes(vector.nonce), sealed)!), vector.plaintext)
    })
  }

  test(`${one.name} derives the same key as ${other.name} and creates signatures that it verifies`, async () => {
    const seed = new Uint8Array(32).fill(3)
    const mine = one.dsaKeygen(seed)
    assert.deepEqual(hex(mine.publicKey), hex(other.dsaKeygen(seed).publicKey))
    assert.equal(mine.publicKey.length, AGENT_PUBLIC_KEY_BYTES)
    const signature = await one.dsaSign(mine.secret, message)
    assert.equal(signature.length, AGENT_SIGNATURE_BYTES)
    assert.equal(other.dsaVerify(mine.publicKey, message, signature), true)
    assert.notEqual(hex(await one.dsaSign(mine.secret, message)), hex(signature), 'signatures are hedged')
  })

  test(`${one.name} refuses a signature or key with a flipped bit or another size`, async () => {
    const { publicKey, secret } = one.dsaKeygen(new Uint8Array(32).fill(4))
    const signature = await one.dsaSign(secret, message)
    fc.assert(
      fc.property(fc.nat(AGENT_SIGNATURE_BYTES * 8 - 1), (bit) => !one.dsaVerify(publicKey, message, flipped(signature, bit))),
      { seed: 1, numRuns: 60 },
    )
    fc.assert(
      fc.property(fc.nat(AGENT_PUBLIC_KEY_BYTES * 8 - 1), (bit) => !one.dsaVerify(flipped(publicKey, bit), message, signature)),
      { seed: 1, numRuns: 60 },
    )
    const empty = new Uint8Array(0)
    for (const wrong of [empty, signature.subarray(1), Buffer.concat([signature, Uint8Array.of(0)])]) {
      assert.equal(one.dsaVerify(publicKey, message, wrong), false)
    }
    for (const wrong of [empty, publicKey.subarray(1), new Uint8Array(AGENT_PUBLIC_KEY_BYTES).fill(255)]) {
      assert.equal(one.dsaVerify(wrong, message, signature), false)
    }
  })

  test(`${one.name} encapsulates a key that ${other.name} decapsulates, from the same seed`, () => {
    const seed = new Uint8Array(64).fill(5)
    const theirs = other.kemKeygen(seed)
    const { ciphertext, sharedSecret } = one.kemEncapsulate(theirs.publicKey)
    assert.equal(ciphertext.length, KEM_CIPHERTEXT_BYTES)
    assert.equal(hex(other.kemDecapsulate(theirs.secret, ciphertext)), hex(sharedSecret))
    const mine = one.kemKeygen(seed)
    assert.equal(hex(one.kemDecapsulate(mine.secret, ciphertext)), hex(sharedSecret))
    const altered = flipped(ciphertext, 77)
    const rejected = one.kemDecapsulate(mine.secret, altered)
    assert.notEqual(hex(rejected), hex(sharedSecret))
    assert.equal(hex(other.kemDecapsulate(theirs.secret, altered)), hex(rejected), 'implicit rejection is deterministic')
  })

  test(`${one.name} generates a new working KEM pair each time`, () => {
    const [a, b] = [one.kemKeygen(), one.kemKeygen()]
    assert.equal(a.publicKey.length, KEM_PUBLIC_KEY_BYTES)
    assert.notEqual(hex(a.publicKey), hex(b.publicKey))
    const { ciphertext, sharedSecret } = one.kemEncapsulate(a.publicKey)
    assert.equal(hex(one.kemDecapsulate(a.secret, ciphertext)), hex(sharedSecret))
    assert.notEqual(hex(one.kemDecapsulate(b.secret, ciphertext)), hex(sharedSecret))
  })

  test(`${one.name} reports a KEM key or ciphertext that FIPS 203 refuses as malformed`, () => {
    const { publicKey, secret } = one.kemKeygen()
    // Every coefficient is 4095, above the modulus 3329.
    const outOfRange = new Uint8Array(KEM_PUBLIC_KEY_BYTES).fill(255)
    for (const wrong of [new Uint8Array(0), publicKey.subarray(1), outOfRange]) {
      assert.throws(() => one.kemEncapsulate(wrong), isMalformed)
    }
    for (const length of [0, KEM_CIPHERTEXT_BYTES - 1, KEM_CIPHERTEXT_BYTES + 1]) {
      assert.throws(() => one.kemDecapsulate(secret, new Uint8Array(length)), isMalformed)
    }
  })

  test(`${one.name} seals data that ${other.name} opens, and altered data does not open`, () => {
    const secret = new Uint8Array(32).fill(6)
    const [key, otherKey] = [one.aeadKey(secret), other.aeadKey(secret)]
    const nonce = new Uint8Array(12).fill(7)
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 3000 }), fc.nat(), (plaintext, position) => {
        const cut = position % (plaintext.length + 1)
        const sealed = Buffer.concat(one.aeadSeal(key, nonce, [plaintext.subarray(0, cut), plaintext.subarray(cut)]))
        assert.equal(hex(other.aeadOpen(otherKey, nonce, sealed)!), hex(plaintext))
        assert.equal(one.aeadOpen(key, nonce, flipped(sealed, position % (sealed.length * 8))), null)
      }),
      { seed: 2 },
    )
    const sealed = Buffer.concat(one.aeadSeal(key, nonce, [message]))
    assert.equal(one.aeadOpen(one.aeadKey(flipped(secret, 0)), nonce, sealed), null)
    assert.equal(one.aeadOpen(key, flipped(nonce, 0), sealed), null)
    for (let length = 0; length < sealed.length; length += 1) assert.equal(one.aeadOpen(key, nonce, sealed.subarray(0, length)), null)
  })
}

test('native signatures do not block the event loop', async () => {
  const { secret } = nativePrimitives.dsaKeygen(new Uint8Array(32).fill(8))
  let signed = false
  const signature = nativePrimitives.dsaSign(secret, message).then(() => (signed = true))
  await Promise.resolve()
  assert.equal(signed, false)
  await signature
})

test('a public key in use is imported only once, and each signature is valid only for its key', async (t) => {
  const agents = Array.from({ length: MAX_PUBLIC_KEYS + 1 }, (_, i) =>
    nativePrimitives.dsaKeygen(crypto.hash('sha256', `agent ${i}`, 'buffer')),
  )
  const signatures = await Promise.all(agents.slice(0, 3).map(async ({ secret }) => nativePrimitives.dsaSign(secret, message)))
  const { mock } = t.mock.method(crypto, 'createPublicKey')
  syncBuiltinESMExports()
  t.after(() => {
    mock.restore()
    syncBuiltinESMExports()
  })
  const verify = (key: number, signature: number): boolean =>
    nativePrimitives.dsaVerify(agents[key]!.publicKey, message, signatures[signature]!)
  for (let i = 0; i < agents.length; i++) {
    for (const [of] of signatures.entries()) assert.equal(verify(i, of), i === of)
    assert.equal(verify(1, 1), true)
  }
  assert.equal(mock.callCount(), agents.length)
  // The cache dropped the first key for the last one. The second key was in use all the time.
  assert.equal(verify(1, 1), true)
  assert.equal(mock.callCount(), agents.length)
  assert.equal(verify(0, 0), true)
  assert.equal(mock.callCount(), agents.length + 1)
})
