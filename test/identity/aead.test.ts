import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { NonceCounter, OpeningKey, SealingKey } from '../../src/identity/link-crypto.ts'
import { primitives } from '../../src/identity/primitives.ts'
import { AEAD_TAG_BYTES } from '../../src/protocol/limits/wire.ts'

const key = new Uint8Array(32).fill(9)
const text = (value: string): Uint8Array => Buffer.from(value)
const isMalformed = (error: unknown): boolean => isAppError(error, 'malformed')

test('frames open in the order in which they were sealed', () => {
  const [sealing, opening] = [new SealingKey(key), new OpeningKey(key)]
  for (const frame of ['one', '', 'one'])
    assert.equal(Buffer.from(opening.open(Buffer.concat(sealing.seal(text(frame))))).toString(), frame)
})

test('a frame sealed in parts equals the frame sealed as a whole, and its parts are not copied together', () => {
  const parts = ['an envelope', '', 'its body'].map(text)
  const sealed = new SealingKey(key).seal(...parts)
  assert.deepEqual(Buffer.concat(sealed), Buffer.concat(new SealingKey(key).seal(Buffer.concat(parts))))
  if (primitives().name === 'native')
    assert.deepEqual(
      sealed.map((part) => part.length),
      [...parts.map((part) => part.length), AEAD_TAG_BYTES],
    )
  assert.equal(Buffer.from(new OpeningKey(key).open(Buffer.concat(sealed))).toString(), 'an envelopeits body')
})

test('the same frame sealed twice gives different bytes', () => {
  const sealing = new SealingKey(key)
  assert.notDeepEqual(Buffer.concat(sealing.seal(text('x'))), Buffer.concat(sealing.seal(text('x'))))
})

test('a frame that is replayed, skipped, altered or sealed with another key does not open', () => {
  const frames = (): Uint8Array[] => {
    const sealing = new SealingKey(key)
    return ['a', 'b'].map((frame) => Buffer.concat(sealing.seal(text(frame))))
  }
  const [first, second] = frames() as [Uint8Array, Uint8Array]
  assert.throws(() => new OpeningKey(key).open(second), isMalformed)
  assert.throws(() => new OpeningKey(new Uint8Array(32)).open(first), isMalformed)
  assert.throws(() => new OpeningKey(key).open(new Uint8Array(0)), isMalformed)
  const opening = new OpeningKey(key)
  opening.open(first)
  assert.throws(() => opening.open(first), isMalformed)
})

test('after one frame that does not open, later frames do not open either', () => {
  const [sealing, opening] = [new SealingKey(key), new OpeningKey(key)]
  opening.open(Buffer.concat(sealing.seal(text('a'))))
  assert.throws(() => opening.open(text('not a sealed frame')), isMalformed)
  assert.throws(() => opening.open(Buffer.concat(sealing.seal(text('b')))), isMalformed)
})

test('nonces count from zero and never wrap around', () => {
  const counter = new NonceCounter()
  assert.equal(Buffer.from(counter.take()).toString('hex'), '000000000000000000000000')
  assert.equal(Buffer.from(counter.take()).toString('hex'), '000000000000000000000001')
  const beyond32Bits = new NonceCounter(2 ** 32)
  assert.equal(Buffer.from(beyond32Bits.take()).toString('hex'), '000000000000000100000000')
  const last = new NonceCounter(Number.MAX_SAFE_INTEGER - 1)
  last.take()
  assert.throws(() => last.take(), /used up/)
  assert.throws(() => last.take(), /used up/)
})
