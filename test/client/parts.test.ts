import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { Backoff } from '../../src/client/backoff.ts'
import { MessageLines } from '../../src/client/byte-transport.ts'
import { contentChunks } from '../../src/client/data.ts'
import { quote } from '../../src/client/errors.ts'
import { camelCase } from '../../src/client/fields.ts'
import { OutputQueue, type OutputName } from '../../src/client/output.ts'
import { orAborted, pause } from '../../src/client/promises.ts'
import { ReadGate, type Fullness } from '../../src/client/read-gate.ts'

const SEED = 20_261_122

/** The same bytes, cut wherever the numbers say. */
const cut = (bytes: Uint8Array, sizes: readonly number[]): Uint8Array[] => {
  const parts: Uint8Array[] = []
  let at = 0
  for (const size of sizes) {
    parts.push(bytes.subarray(at, at + size))
    at += size
  }
  return [...parts, bytes.subarray(at)]
}
/** What an iterable gives. */
const all = async <T>(items: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}
const sizes = fc.array(fc.integer({ min: 0, max: 40 }), { maxLength: 30 })

test('lines are the same wherever the bytes are cut', () => {
  const line = fc.string({ unit: 'grapheme', maxLength: 30 }).map((text) => text.replaceAll(/[\n\r]/g, ''))
  fc.assert(
    fc.property(fc.array(line, { maxLength: 20 }), sizes, (texts, at) => {
      const lines = new MessageLines()
      const bytes = Buffer.from(texts.map((text) => `${text}\n`).join(''))
      const found = cut(bytes, at).flatMap((part) => [...lines.push(part)])
      assert.deepEqual(
        found,
        texts.filter((text) => text.trim() !== ''),
      )
    }),
    { seed: SEED },
  )
})

test('content comes in chunks of one size, and is the same', async () => {
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), sizes, fc.integer({ min: 1, max: 50 }), async (bytes, at, size) => {
      const source = async function* (): AsyncGenerator<Uint8Array> {
        yield* cut(bytes, at)
      }
      for (const content of [bytes, source()]) {
        const chunks = await all(contentChunks(content, size))
        assert.deepEqual(Buffer.concat(chunks), Buffer.from(bytes))
        assert.ok(chunks.slice(0, -1).every((chunk) => chunk.length === size))
        assert.ok(chunks.length === 1 || (chunks.at(-1)?.length ?? 0) > 0)
      }
    }),
    { seed: SEED },
  )
})

test('what is pushed is read, once, in its order, whoever reads which stream when', async () => {
  const piece = fc.record({
    stream: fc.constantFrom<OutputName>('stdout', 'stderr'),
    size: fc.integer({ min: 1, max: 3 }),
    wait: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(piece, { maxLength: 40 }), fc.boolean(), async (pieces, apart) => {
      const queue = new OutputQueue({ onFullness: () => undefined })
      const readers = apart ? [queue.read('stdout'), queue.read('stderr')] : [queue.read('stdout', 'stderr')]
      const reading = Promise.all(readers.map(async (reader) => all(reader)))
      const seqs = { stdout: 0, stderr: 0 }
      const pushed = pieces.map(({ stream, size }) => ({ stream, data: new Uint8Array(size), seq: ++seqs[stream] }))
      for (const [i, chunk] of pushed.entries()) {
        queue.push(chunk)
        if (pieces[i]!.wait) await Promise.resolve()
      }
      queue.end(null)
      const read = await reading
      const of = (name: OutputName): typeof pushed => pushed.filter(({ stream }) => stream === name)
      assert.deepEqual(read, apart ? [of('stdout'), of('stderr')] : [pushed])
    }),
    { seed: SEED },
  )
})

test('a queue tells how full it is, and is not full any more when half is gone, it is over or discarded', async () => {
  const told: Fullness[] = []
  const queue = (): OutputQueue => new OutputQueue({ onFullness: (fullness) => told.push(fullness) })
  const chunk = (seq: number) => ({ stream: 'stdout', data: new Uint8Array(100_000), seq }) as const
  const first = queue()
  for (let seq = 1; seq <= 175; seq++) first.push(chunk(seq))
  assert.deepEqual(told.splice(0), ['full', 'brim'])
  const reader = first.read('stdout')
  for (let i = 0; i < 10; i++) await reader.next()
  assert.deepEqual(told.splice(0), ['full'])
  for (let i = 0; i < 162; i++) await reader.next()
  assert.deepEqual(told.splice(0), ['room'])
  const second = queue()
  for (let seq = 1; seq <= 20; seq++) second.push(chunk(seq))
  second.end(null)
  second.push(chunk(21))
  assert.deepEqual(told.splice(0), ['full', 'room'])
  assert.equal((await all(second.read('stdout'))).length, 20)
  const third = queue()
  for (let seq = 1; seq <= 20; seq++) third.push(chunk(seq))
  third.discard('stdout')
  third.push(chunk(21))
  third.fail(new Error('first'))
  third.end(null)
  assert.deepEqual(told.splice(0), ['full', 'room'])
  await assert.rejects(third.read('stdout').next(), /first/)
})

test('reading stops for whoever is full, unless an answer is waited for; always at the brim', () => {
  const told: boolean[] = []
  const gate = new ReadGate({ onHeld: (held) => told.push(held) })
  const [a, b] = [{}, {}]
  gate.set(a, 'full')
  gate.set(b, 'full')
  gate.expect(true)
  gate.set(b, 'brim')
  gate.expect(false)
  gate.set(b, 'room')
  gate.set(a, 'room')
  assert.deepEqual(told, [true, false, true, false])
})

test('tries come later and later, up to a bound, and by chance a little sooner', () => {
  const delays = (random: number, options = {}): (number | null)[] => {
    const backoff = new Backoff({ random: () => random }, { attempts: 6, firstDelayMs: 100, maxDelayMs: 500, ...options })
    return Array.from({ length: 7 }, () => backoff.next())
  }
  assert.deepEqual(delays(0), [0, 100, 200, 400, 500, 500, null])
  assert.deepEqual(delays(1), [0, 50, 100, 200, 250, 250, null])
  const backoff = new Backoff({ random: () => 0 }, { attempts: 1 })
  assert.deepEqual([backoff.next(), backoff.next()], [0, null])
  backoff.reset()
  assert.equal(backoff.next(), 0)
})

test('names of fields, all the way down', () => {
  const value = { bytes_stdout: 1, exit_code: null, inner: [{ symlink_target: 'a_b' }], plain: true }
  assert.deepEqual(camelCase(value), { bytesStdout: 1, exitCode: null, inner: [{ symlinkTarget: 'a_b' }], plain: true })
})

test('what others say stands in one line of ours, without what a terminal would obey', () => {
  assert.equal(quote(' a\r\n\u001b[31mb\u0007\u202ec \u009b2J'), 'a [31mb c  2J')
  assert.equal(quote('x'.repeat(300)).length, 201)
})

test('whoever waits for what never comes is told the reason of the signal, before and after it was given', async () => {
  const stop = new AbortController()
  const never = new Promise<never>(() => undefined)
  const waiting = orAborted(never, stop.signal)
  stop.abort(new Error('enough'))
  await assert.rejects(waiting, /enough/)
  await assert.rejects(orAborted(never, stop.signal), /enough/)
})

test('without a signal what is waited for is what comes', async () => {
  assert.equal(await orAborted(Promise.resolve(1), undefined), 1)
})

test('a pause ends with its signal, and does not begin after it', async () => {
  const stop = new AbortController()
  let over = 0
  const pausing = pause(1_000_000, stop.signal).then(() => (over += 1))
  assert.equal(over, 0)
  stop.abort()
  await pausing
  await pause(1_000_000, stop.signal).then(() => (over += 1))
  assert.equal(over, 2)
})
