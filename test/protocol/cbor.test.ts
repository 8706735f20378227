import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import fc from 'fast-check'
import { isAppError } from '../../src/base/errors.ts'
import { decodeCbor, encodeCbor, encodeCborHead, type CborValue } from '../../src/protocol/wire/cbor.ts'
import { MAX_CBOR_DEPTH, MAX_CBOR_ITEMS, MAX_PORT_MESSAGE } from '../../src/protocol/limits/wire.ts'
import { record, text } from '../../src/protocol/wire/schema.ts'

const NOTE = record('note', { note: text(MAX_PORT_MESSAGE) })

const hex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'hex'))
const refuses = (bytes: Uint8Array): void =>
  assert.throws(
    () => decodeCbor(bytes),
    (error) => isAppError(error, 'malformed'),
  )

const file = new URL('../../proto/vectors/refused.json', import.meta.url)
const { refused } = JSON.parse(await readFile(file, 'utf8')) as { refused: { what: string; cbor: string }[] }

test('the vectors have more than 20 refused messages', () => assert.ok(refused.length > 20))
for (const { what, cbor } of refused) test(`${what} is refused`, () => refuses(hex(cbor)))

const nested = (depth: number): Uint8Array => hex('81'.repeat(depth) + '00')

test('arrays nested deeper than the limit are refused', () => {
  assert.doesNotThrow(() => decodeCbor(nested(MAX_CBOR_DEPTH)))
  refuses(nested(MAX_CBOR_DEPTH + 1))
  refuses(nested(60_000))
})

test('a message with more items than the limit is refused', () => {
  const array = (count: number): Uint8Array => Buffer.concat([Buffer.from([0x99, count >> 8, count & 0xff]), Buffer.alloc(count)])
  assert.equal((decodeCbor(array(MAX_CBOR_ITEMS - 1)) as number[]).length, MAX_CBOR_ITEMS - 1)
  refuses(array(MAX_CBOR_ITEMS))
})

test('the largest exact integers are decoded unchanged', () => {
  for (const value of [0, 23, 24, 255, 256, 65_535, 65_536, 0xffff_ffff, -1, -0x1_0000_0000])
    assert.equal(decodeCbor(encodeCbor(value)), value)
  assert.equal(decodeCbor(encodeCbor(BigInt(Number.MAX_SAFE_INTEGER))), Number.MAX_SAFE_INTEGER)
})

const value = fc.letrec<{ item: CborValue }>((tie) => ({
  item: fc.oneof(
    { maxDepth: 3, depthIdentifier: 'cbor' },
    fc.integer({ min: -0xffff_ffff, max: 0xffff_ffff }),
    fc.string({ unit: 'grapheme' }),
    fc.boolean(),
    fc.constant(null),
    fc.uint8Array({ maxLength: 300 }),
    fc.array(tie('item'), { maxLength: 6, depthIdentifier: 'cbor' }),
  ),
})).item

const plain = (item: CborValue): unknown => (item instanceof Uint8Array ? [...item] : Array.isArray(item) ? item.map(plain) : item)

test('an encoded value is decoded to the same value', () => {
  fc.assert(
    fc.property(value, (item) => {
      assert.deepEqual(plain(decodeCbor(encodeCbor(item))), plain(item))
    }),
    { seed: 20_260_501, numRuns: 2_000 },
  )
})

test('any bytes are decoded or refused as malformed', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      try {
        decodeCbor(bytes)
      } catch (error) {
        assert.ok(isAppError(error, 'malformed'), String(error))
      }
    }),
    { seed: 20_260_502, numRuns: 20_000 },
  )
})

/** Converts numbers beyond 32 bits to bigints, as the encoder expects them. */
const encoded = (item: CborValue): CborValue => {
  if (typeof item === 'number' && Math.abs(item) > 0xffff_ffff) return BigInt(item)
  return Array.isArray(item) ? item.map(encoded) : item
}

const isOneOf = (bytes: Uint8Array): boolean => {
  let item: CborValue
  try {
    item = decodeCbor(bytes)
  } catch (error) {
    assert.ok(isAppError(error, 'malformed'), String(error))
    return false
  }
  assert.deepEqual(Buffer.from(encodeCbor(encoded(item))), Buffer.from(bytes))
  return true
}

test('every accepted message, even after random changes, is the only encoding of its value', () => {
  let taken = 0
  const change = fc.tuple(fc.nat(), fc.nat({ max: 255 }), fc.constantFrom('set', 'insert', 'remove'))
  const property = fc.property(value, fc.array(change, { minLength: 1, maxLength: 4 }), (item, changes) => {
    const bytes = [...encodeCbor(item)]
    for (const [at, byte, how] of changes)
      bytes.splice(at % (bytes.length + 1), how === 'insert' ? 0 : 1, ...(how === 'remove' ? [] : [byte]))
    if (isOneOf(new Uint8Array(bytes))) taken += 1
  })
  fc.assert(property, { seed: 20_260_503, numRuns: 20_000 })
  // Random bytes start with a valid head more often, so that more messages are accepted.
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 12 }), (bytes) => void isOneOf(bytes)),
    { seed: 20_260_504, numRuns: 20_000 },
  )
  assert.ok(taken > 2_000, `${taken} were taken`)
})

test('a byte order mark stays in its text at every position and length', () => {
  for (const length of [0, 1, 23, 24, 62, 63, 64, 65, 70, 300, 70_000])
    for (const text of [`\ufeff${'x'.repeat(length)}`, `\ufeff\ufeff${'ü'.repeat(length)}`, `${'x'.repeat(length)}\ufeff`])
      assert.equal(decodeCbor(encodeCbor([text]))?.toString(), text)
})

test('texts of every length with all kinds of characters are decoded unchanged', () => {
  const text = fc.string({ unit: 'binary', maxLength: 400 }).filter((one) => one.isWellFormed())
  fc.assert(
    fc.property(text, (one) => assert.equal(decodeCbor(encodeCbor(one)), one)),
    { seed: 20_260_505, numRuns: 3_000 },
  )
})

test('the encoded head and the bytes of the last string equal the whole encoding, at every width of the length', () => {
  for (const length of [0, 1, 23, 24, 255, 256, 65_535, 65_536, 70_000]) {
    const bytes = new Uint8Array(length).fill(7)
    const parts = [encodeCborHead([3, 'text', new Uint8Array(5), new Uint8Array(0)], length), bytes]
    assert.deepEqual(Buffer.concat(parts), Buffer.from(encodeCbor([3, 'text', new Uint8Array(5), bytes])))
  }
})

test('a head is encoded only for a list that ends with an empty byte string', () => {
  for (const value of ['@', [], [64], [1, '@'], [new Uint8Array(1)], [[new Uint8Array(0)]]])
    assert.throws(() => encodeCborHead(value, 1), TypeError)
})

test('a lone surrogate is encoded as the replacement character, at every length of the text', () => {
  for (const length of [0, 1, 30, 300, 70_000])
    for (const [lone, replacement] of [
      ['\ud800', '\ufffd'],
      ['\udc00x', '\ufffdx'],
      ['\ud83d\ude00', '\ud83d\ude00'],
    ] as const) {
      const before = 'x'.repeat(length)
      assert.equal(NOTE.decode(NOTE.encode({ note: `${before}${lone}` })).note, `${before}${replacement}`)
    }
})
