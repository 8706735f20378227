import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { RepeatableInput } from '../../src/exec/repeatable-input.ts'

async function* counted(of: readonly number[], ended: () => void): AsyncGenerator<number, void, undefined> {
  try {
    yield* of
  } finally {
    ended()
  }
}

const take = async (input: AsyncIterable<number>, count: number): Promise<number[]> => {
  const taken: number[] = []
  if (count === 0) return taken
  for await (const one of input) {
    taken.push(one)
    if (taken.length >= count) break
  }
  return taken
}

test('each reader gets the input from its beginning, and the last one all of it', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.nat(), { maxLength: 20 }),
      fc.array(fc.nat(25), { maxLength: 5 }),
      fc.nat(20),
      async (all, reads, before) => {
        const input = new RepeatableInput(counted(all, () => undefined))
        for (const count of reads) assert.deepEqual(await take(input, count), all.slice(0, count))
        const last = input[Symbol.asyncIterator]()
        const seen: number[] = []
        for (let at = 0; ; at++) {
          if (at === before) input.release()
          const next = await last.next()
          if (next.done === true) break
          seen.push(next.value)
        }
        assert.deepEqual(seen, all)
        input.close()
      },
    ),
  )
})

test('a reader that was replaced while it waited takes no input from the next one', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const source = async function* (): AsyncGenerator<number, void, undefined> {
    await promise
    yield 1
    yield 2
  }
  const input = new RepeatableInput(source())
  const old = input[Symbol.asyncIterator]().next()
  const reader = input[Symbol.asyncIterator]()
  const first = reader.next()
  input.release()
  resolve()
  assert.deepEqual(await old, { done: true, value: undefined })
  assert.deepEqual(
    [await first, await reader.next(), await reader.next()],
    [
      { done: false, value: 1 },
      { done: false, value: 2 },
      { done: true, value: undefined },
    ],
  )
})

test('closing the input ends its source, even without a reader', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const input = new RepeatableInput(counted([1, 2, 3], resolve))
  assert.deepEqual(await take(input, 1), [1])
  input.close()
  await promise
  assert.deepEqual(await take(input, 3), [])
})
