import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

import fc from 'fast-check'

import { contentChunks, untilAborted } from '../../src/sdk/data.ts'
import { all, cut, SEED, sizes } from './pieces.ts'

test('property: content arrives unchanged in chunks of one size', async () => {
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

test('parts of a source are freed after the consumer has taken them', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const given: WeakRef<Uint8Array>[] = []
  const source = async function* (): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < 100; at++) {
      const part = new Uint8Array(1024)
      given.push(new WeakRef(part))
      yield part
    }
  }
  const kept = async (): Promise<number> => {
    // Objects that were dereferenced in this turn remain alive until its end.
    await nextTurn()
    collect()
    return given.filter((part) => part.deref() !== undefined).length
  }
  let most = 0
  for await (const _ of untilAborted(source(), new AbortController().signal)) if (given.length === 100) most = await kept()
  assert.ok(most < 10, `${most} of 100`)
})
