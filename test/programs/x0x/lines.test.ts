import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { linesOf } from '../../../src/programs/x0x/lines.ts'

async function* chunksOf(bytes: Uint8Array, cuts: readonly number[]) {
  let at = 0
  for (const cut of cuts) {
    yield bytes.subarray(at, at + cut)
    at += cut
  }
  yield bytes.subarray(at)
}

const collect = async (bytes: Uint8Array, cuts: readonly number[]): Promise<string[]> => {
  const lines: string[] = []
  for await (const line of linesOf(chunksOf(bytes, cuts))) lines.push(line)
  return lines
}

test('lines are the same wherever the chunks are cut, and the last needs no end', async () => {
  const line = fc.string({ unit: fc.constantFrom('a', '世', '"', ' '), maxLength: 8 })
  await fc.assert(
    fc.asyncProperty(fc.array(line, { maxLength: 6 }), fc.array(fc.nat({ max: 4 })), fc.boolean(), async (lines, cuts, ended) => {
      const text = lines.join('\n') + (ended && lines.length > 0 ? '\n' : '')
      const expected = text === '' ? [] : text.split('\n')
      if (text.endsWith('\n')) expected.pop()
      assert.deepEqual(await collect(Buffer.from(text), cuts), expected)
    }),
    { seed: 7 },
  )
})

test('a line that never ends is refused', async () => {
  await assert.rejects(collect(Buffer.alloc(17 * 1024 * 1024, 'x'), []), RangeError)
})
