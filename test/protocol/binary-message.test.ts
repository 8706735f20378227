import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { contentHead, splitContent } from '../../src/protocol/rexd/binary-message.ts'

const SEED = 20_261_128

test('a binary message is split into the JSON and the bytes that it was made from', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.uint8Array({ maxLength: 300 }), (json, content) => {
      const split = splitContent(Buffer.concat([contentHead(json), content]))
      assert.equal(split?.json.toString(), json)
      assert.deepEqual(split?.content, Buffer.from(content))
    }),
    { seed: SEED },
  )
})

test('any bytes are refused, or are split exactly into JSON and content', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      const message = Buffer.from(bytes)
      const split = splitContent(message)
      if (message.length < 4 || message.readUInt32BE() > message.length - 4) return assert.equal(split, null)
      assert.deepEqual(Buffer.concat([message.subarray(0, 4), split!.json, split!.content]), message)
      assert.equal(split!.json.length, message.readUInt32BE())
    }),
    { seed: SEED, numRuns: 2_000, examples: [[new Uint8Array(0)], [Uint8Array.of(0, 0, 0, 0)], [Uint8Array.of(255, 255, 255, 255, 1)]] },
  )
})
