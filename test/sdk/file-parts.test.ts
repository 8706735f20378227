import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { RexdError } from '../../src/sdk/errors.ts'
import { fileParts, READ_AHEAD, type ReadOptions } from '../../src/sdk/remote-files.ts'
import type { Result } from '../../src/protocol/rexd/results.ts'
import { SEED } from './pieces.ts'

/** A file on a server that returns at most `most` bytes per request. Records the requests. */
class File {
  bytes: Buffer
  readonly #most: number
  readonly asked: number[] = []
  waiting = 0
  mostWaiting = 0
  /** Reads at or after this offset fail. */
  fails = Infinity

  constructor(bytes: Uint8Array, most = Infinity) {
    this.bytes = Buffer.from(bytes)
    this.#most = most
  }

  readonly read = async (offset: number, length: number): Promise<Result<'fs.read'>> => {
    this.asked.push(offset)
    this.mostWaiting = Math.max(this.mostWaiting, ++this.waiting)
    await Promise.resolve()
    this.waiting -= 1
    if (offset >= this.fails) throw new Error('gone')
    const { bytes } = this
    const data = bytes.subarray(offset, offset + Math.min(length, this.#most))
    const truncated = offset + data.length < bytes.length
    return {
      path: 'a',
      size: bytes.length,
      mtime: `${bytes.length}`,
      mtime_ms: bytes.length,
      encoding: 'base64',
      content: data.toString('base64'),
      truncated,
    }
  }

  parts(chunk: number, options: ReadOptions = {}): ReturnType<typeof fileParts> {
    return fileParts(this.read, { path: 'a', chunk, ...options })
  }
}

const whole = async (parts: ReturnType<typeof fileParts>): Promise<Buffer> => {
  const found: Uint8Array[] = []
  for await (const { data } of parts) found.push(data)
  return Buffer.concat(found)
}

test('property: any requested range arrives whole, however the server divides it', async () => {
  const number = (min: number): fc.Arbitrary<number> => fc.integer({ min, max: 40 })
  const length = fc.option(number(1), { nil: undefined })
  await fc.assert(
    fc.asyncProperty(
      fc.uint8Array({ maxLength: 60 }),
      number(1),
      number(1),
      number(0),
      length,
      async (bytes, chunk, most, offset, size) => {
        const file = new File(bytes, most)
        const options = { offset, ...(size === undefined ? {} : { length: size }) }
        const end = size === undefined ? bytes.length : offset + size
        assert.deepEqual(await whole(file.parts(chunk, options)), Buffer.from(bytes.subarray(offset, end)))
        assert.ok(file.mostWaiting <= READ_AHEAD)
        assert.ok(file.asked.slice(1).every((at) => at < Math.min(bytes.length, end)))
      },
    ),
    { seed: SEED },
  )
})

test('a short file needs one request, and a longer one has three requests in advance after the first', async () => {
  const short = new File(Buffer.alloc(10))
  assert.equal((await whole(short.parts(10))).length, 10)
  assert.deepEqual(short.asked, [0])
  const long = new File(Buffer.alloc(100))
  const parts = long.parts(10)
  await parts.next()
  assert.deepEqual(long.asked, [0, 10, 20, 30])
  await parts.next()
  assert.deepEqual(long.asked, [0, 10, 20, 30, 40])
  assert.equal((await whole(parts)).length, 80)
  assert.equal(long.asked.length, 10)
})

test('a reader that stops sends no further requests, and errors of requests in advance are ignored', async () => {
  const file = new File(Buffer.alloc(100))
  file.fails = 10
  for await (const { data } of file.parts(10)) {
    assert.equal(data.length, 10)
    break
  }
  // An unhandled rejection would be reported in this turn.
  await new Promise((resolve) => setImmediate(resolve))
  assert.deepEqual(file.asked, [0, 10, 20, 30])
  await assert.rejects(whole(file.parts(10)), /gone/)
})

test('a file that changes during a read is read to its new end if allowed, and causes a conflict otherwise', async () => {
  for (const size of [35, 240]) {
    const change = async (mayChange: boolean): Promise<number> => {
      const file = new File(Buffer.alloc(140))
      const parts = file.parts(10, { mayChange })
      await parts.next()
      file.bytes = Buffer.alloc(size)
      return 10 + (await whole(parts)).length
    }
    // Three further requests were answered before the change.
    assert.equal(await change(true), Math.max(size, 40))
    await assert.rejects(change(false), (error: unknown) => error instanceof RexdError && error.name === 'conflict')
  }
})
