import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { tcp } from '@libp2p/tcp'
import { createLibp2p } from 'libp2p'

import { secretKeyOf } from '../../src/identity/hash.ts'
import { noiseEncrypter, LARGE_MESSAGE } from '../../src/mesh/libp2p/noise.ts'
import { until } from '../support/processes.ts'
import { watchedMuxer } from '../support/watched-muxer.ts'

type Bytes = Uint8Array
interface Crypto {
  encrypt(text: Bytes, nonce: Bytes, ad: Bytes, key: Bytes): Bytes
  decrypt(text: Bytes, nonce: Bytes, ad: Bytes, key: Bytes): Bytes
}

const cryptoOf = (create: ReturnType<typeof noise>): Crypto => {
  const components = { logger: { forComponent: () => () => undefined } } as unknown as Parameters<typeof create>[0]
  return (create(components) as unknown as { crypto: Crypto }).crypto
}

test('messages of every size equal those of plain Noise, and altered ones do not decrypt', () => {
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

test('a key is imported once per byte array', () => {
  const bytes = new Uint8Array(randomBytes(32))
  assert.equal(secretKeyOf(bytes), secretKeyOf(bytes))
  assert.deepEqual(new Uint8Array(secretKeyOf(bytes).export()), bytes)
  assert.notEqual(secretKeyOf(bytes), secretKeyOf(Uint8Array.from(bytes)))
})

/** Number of pieces in which the muxer gets each large message. */
const piecesOf = async (t: TestContext, encrypter: ReturnType<typeof noise>): Promise<number[]> => {
  const counts: number[] = []
  await exchange(t, encrypter, (message) => {
    if (message.byteLength > LARGE_MESSAGE) counts.push([...message].length)
  })
  return counts
}

/** Sends twenty large messages from one node to the other. */
const exchange = async (t: TestContext, encrypter: ReturnType<typeof noise>, seen: Parameters<typeof watchedMuxer>[0]): Promise<void> => {
  const counting = watchedMuxer(seen)
  const common = { transports: [tcp()], connectionEncrypters: [encrypter], streamMuxers: [() => counting(yamux())(undefined)] }
  const here = await createLibp2p({ ...common })
  const there = await createLibp2p({ ...common, addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] } })
  t.after(async () => Promise.all([here.stop(), there.stop()]))
  const text = new Uint8Array(randomBytes(60_000))
  const received: Uint8Array[] = []
  await there.handle('/test/1', (stream) => stream.addEventListener('message', ({ data }) => received.push(data.subarray())))
  const stream = await (await here.dial(there.getMultiaddrs())).newStream('/test/1')
  const messages = 20
  for (let i = 0; i < messages; i++) if (!stream.send(text)) await stream.onDrain()
  await until(() => received.reduce((sum, { length }) => sum + length, 0) === messages * text.length)
  assert.ok(Buffer.concat(received).equals(Buffer.concat(Array.from({ length: messages }, () => text))))
}

test('a large message is passed on in one piece, while plain Noise passes on several', { timeout: 60_000 }, async (t) => {
  const ours = await piecesOf(t, noiseEncrypter())
  assert.ok(ours.length > 0)
  assert.deepEqual(new Set(ours), new Set([1]))
  assert.ok((await piecesOf(t, noise())).some((pieces) => pieces > 1))
})
