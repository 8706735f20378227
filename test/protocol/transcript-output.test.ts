import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

import * as fc from 'fast-check'

import { hasShape } from '../../src/protocol/json-shape.ts'
import { TranscriptOutput } from '../../src/protocol/console/transcript.ts'

test('output is kept with its times, and output within a short time becomes one piece', () => {
  const output = new TranscriptOutput()
  output.push('a', 3.4)
  output.push('é', 9)
  output.push('later\n', 500)
  assert.deepEqual(output.recorded(), {
    text: 'aélater\n',
    bytes: 9,
    truncated: false,
    timing: [
      [3, 3],
      [500, 6],
    ],
  })
})

test('a long output keeps its start and end, and the gap shows how many bytes are missing', () => {
  const output = new TranscriptOutput({ max: 1_000 })
  for (let n = 0; n < 100; n++) output.push(`${n}`.padEnd(100, '.'), n * 100)
  const { text, bytes, truncated, timing } = output.recorded()
  assert.equal(bytes, 10_000)
  assert.equal(truncated, true)
  assert.match(text, /^0\.{99}1\.+[^]*\n\[… 9000 bytes are left out …\]\n95\.+[^]*99\.{98}$/)
  assert.equal(
    timing.reduce((sum, [, count]) => sum + count, 0),
    Buffer.byteLength(text),
  )
})

test('property: sizes are in UTF-8 bytes, no character is split, and the kept text stays within the limit', () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ unit: 'grapheme', maxLength: 40 }), { maxLength: 40 }),
      fc.integer({ min: 2, max: 400 }),
      (texts, max) => {
        const output = new TranscriptOutput({ max })
        for (const [at, text] of texts.entries()) output.push(text, at * 50)
        const { text, bytes, truncated, timing } = output.recorded()
        const all = texts.join('')
        assert.equal(bytes, Buffer.byteLength(all))
        assert.ok(text.isWellFormed())
        if (truncated) assert.ok(Buffer.byteLength(text) <= max + 60)
        else assert.equal(text, all)
        assert.deepEqual(
          timing.map(([ms]) => ms),
          timing.map(([ms]) => ms).toSorted((a, b) => a - b),
        )
      },
    ),
  )
})

test('a slow trickle of output makes only a limited number of pieces', () => {
  const output = new TranscriptOutput()
  for (let ms = 0; ms < 5_000_000; ms += 20) output.push('x', ms)
  assert.ok(output.recorded().timing.length < 8_000)
})

test('output that arrives byte by byte uses little more memory than its length', () => {
  setFlagsFromString('--expose-gc')
  const used = (): number => {
    ;(runInNewContext('gc') as () => void)()
    return process.memoryUsage().heapUsed
  }
  const before = used()
  const output = new TranscriptOutput()
  for (let count = 0; count < 1024 * 1024; count++) output.push('x', count / 100)
  const grown = used() - before
  assert.ok(grown < 16 * 1024 * 1024, `${grown} bytes`)
  assert.equal(output.recorded().bytes, 1024 * 1024)
})

test('the depth and number of JSON values are checked before parsing', () => {
  const shape = { depth: 2, values: 10 }
  for (const good of ['{}', '[[]]', '{"a":[1,2]}', '"[[[["', '["\\"[[["]', '']) assert.ok(hasShape(Buffer.from(good), shape), good)
  for (const bad of ['[[[', '{"a":{"b":{', '[1,2,3,4,5,6,7,8,9,10,11,12]', '[{},{},{},{},{},{}]'])
    assert.ok(!hasShape(Buffer.from(bad), shape), bad)
  assert.ok(hasShape(Buffer.from('"unterminated [[[['), shape))
  for (const hidden of ['["\\\\",[[', '"\\"",[[[']) assert.ok(!hasShape(Buffer.from(hidden), shape), hidden)
})

test('property: the checked depth of JSON equals the depth of the parsed value', () => {
  const depthOf = (value: unknown): number =>
    typeof value === 'object' && value !== null ? 1 + Math.max(0, ...Object.values(value).map(depthOf)) : 0
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 4 }), fc.integer({ min: 0, max: 5 }), (value, depth) => {
      assert.equal(hasShape(Buffer.from(JSON.stringify(value)), { depth, values: 1_000_000 }), depthOf(value) <= depth)
    }),
  )
})
