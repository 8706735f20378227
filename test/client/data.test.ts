import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { contentChunks } from '../../src/client/data.ts'
import { all, cut, SEED, sizes } from './pieces.ts'

test('content comes in chunks of one size, and is the same', async () => {
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), sizes, fc.integer({ min: 1, max: 50 }), async (bytes, at, size) => {
      const source = async function* (): AsyncGenerator<Uint8Array> {
        yield* cut(bytes, at)
      }
      for (const content of [bytes, source()]) {
        const chunks = await all(contentChunks(content, size))
        assert.deepEqual(Buffer.concat(chunks), Buffer.from(bytes))
        const whole = Math.max(1, Math.ceil(bytes.length / size))
        assert.deepEqual(
          chunks.map(({ length }) => length),
          Array.from({ length: whole }, (_, i) => Math.min(size, bytes.length - i * size)),
        )
      }
    }),
    { seed: SEED },
  )
})
