import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { SkippedId } from '../../src/protocol/skipped-id.ts'

const idIn = (text: string, size = text.length): unknown => {
  const skipped = new SkippedId()
  const bytes = Buffer.from(text)
  for (let at = 0; at < bytes.length; at += size) skipped.add(bytes.subarray(at, at + size))
  return skipped.take()
}

test('the ID of the outermost object is found at any position and in any notation', () => {
  for (const size of [1, 7, 1_000]) {
    assert.equal(idIn('{"jsonrpc":"2.0","id":1,"method":"x"}', size), 1)
    assert.equal(idIn('{"method":"x","params":{"id":2,"list":[{"id":3}]},"id" : "a b"}', size), 'a b')
    assert.equal(idIn('{"params":{"text":"\\\\\\",\\"id\\":4,"},"\\u0069d":5}', size), 5)
    assert.equal(idIn(' { "id" : -7 } ', size), -7)
    assert.equal(idIn('{"id":1,"id":2}', size), 2)
  }
})

test('a missing or invalid ID, or one outside the outermost object, gives null', () => {
  const long = JSON.stringify('x'.repeat(5_000))
  for (const text of [
    '{"params":{"id":2}}',
    '[{"id":1}]',
    '"id":1',
    '{"id":null}',
    '{"id":{"a":1}}',
    '{"id":[1]}',
    `{"id":${long}}`,
    'x',
    '',
  ])
    assert.equal(idIn(text), null, text.slice(0, 40))
})

test('the search starts again after each message', () => {
  const skipped = new SkippedId()
  skipped.add(Buffer.from('{"id":1,"x":"'))
  assert.equal(skipped.take(), 1)
  skipped.add(Buffer.from('{"x":1}'))
  assert.equal(skipped.take(), null)
})

test('the search finds the same ID as JSON.parse in pieces of any size', () => {
  const id = fc.oneof(fc.integer(), fc.string({ maxLength: 20 }))
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), id, fc.integer({ min: 1, max: 50 }), fc.boolean(), (rest, own, size, first) => {
      const { id: _other, ...others } = rest
      const message = first ? { id: own, ...others } : { ...others, id: own }
      assert.equal(idIn(JSON.stringify(message), size), own)
      assert.equal(idIn(JSON.stringify(message, null, 2), size), own)
    }),
  )
})

test('any bytes are accepted without an error', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      const skipped = new SkippedId()
      skipped.add(bytes)
      const found = skipped.take()
      assert.ok(found === null || ['string', 'number'].includes(typeof found))
    }),
  )
})
