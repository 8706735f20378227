import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { noise } from '@chainsafe/libp2p-noise'

import { secretKeyOf } from '../../src/identity/secret-key.ts'
import { noiseEncrypter } from '../../src/mesh/noise.ts'
import { LARGE_MESSAGE } from '../../src/protocol/limits.ts'

type Bytes = Uint8Array
interface Crypto {
  encrypt(text: Bytes, nonce: Bytes, ad: Bytes, key: Bytes): Bytes
  decrypt(text: Bytes, nonce: Bytes, ad: Bytes, key: Bytes): Bytes
}

const cryptoOf = (create: ReturnType<typeof noise>): Crypto => {
  const components = { logger: { forComponent: () => () => undefined } } as unknown as Parameters<typeof create>[0]
  return (create(components) as unknown as { crypto: Crypto }).crypto
}

test('messages of every size are those of plain Noise, and nothing altered opens', () => {
  const [plain, ours] = [cryptoOf(noise()), cryptoOf(noiseEncrypter())]
  const [key, nonce, ad] = [new Uint8Array(randomBytes(32)), new Uint8Array(12).fill(1), new Uint8Array(0)]
  for (const size of [0, 1, 1199, 1200, LARGE_MESSAGE - 1, LARGE_MESSAGE, LARGE_MESSAGE + 16, 65_519]) {
    const text = new Uint8Array(randomBytes(size))
    const sealed = ours.encrypt(text, nonce, ad, key)
    assert.deepEqual(Buffer.from(sealed), Buffer.from(plain.encrypt(text, nonce, ad, key)))
    assert.deepEqual(Buffer.from(ours.decrypt(Uint8Array.from(sealed), nonce, ad, key)), Buffer.from(text))
    sealed[size >> 1]! ^= 1
    assert.throws(() => ours.decrypt(sealed, nonce, ad, key))
  }
})

test('the bytes of a key are imported once', () => {
  const bytes = new Uint8Array(randomBytes(32))
  assert.equal(secretKeyOf(bytes), secretKeyOf(bytes))
  assert.deepEqual(new Uint8Array(secretKeyOf(bytes).export()), bytes)
  assert.notEqual(secretKeyOf(bytes), secretKeyOf(Uint8Array.from(bytes)))
})
