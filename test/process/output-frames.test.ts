import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'

import { BufferPool } from '../../src/base/buffers.ts'
import { OutputPump } from '../../src/process/streams.ts'
import { MAX_FRAME_DATA } from '../../src/protocol/limits/wire.ts'

const MAX = Number.MAX_SAFE_INTEGER
const CHUNK = 64 * 1024

const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 4; turn++) await nextTurn()
}

const pumpOf = (cap = MAX, frames = new BufferPool({ size: MAX_FRAME_DATA, max: 4 })) => {
  const source = new Readable({ read: () => undefined })
  const lengths: number[] = []
  const received: Buffer[] = []
  const handlers = {
    onData: (data: Uint8Array): void => {
      lengths.push(data.length)
      received.push(Buffer.from(data))
      frames.give(data)
    },
    onApproaching: () => undefined,
    onCapHit: () => undefined,
  }
  const pump = new OutputPump({ source, handlers, frames }, { cap, budget: null, warn: MAX })
  return { source, pump, lengths, received, frames }
}

test('all frames of a fast program are full, except the last', async () => {
  const { source, pump, lengths } = pumpOf()
  pump.resume()
  for (let turn = 0; turn < 16; turn++) {
    source.push(Buffer.alloc(CHUNK, turn))
    await nextTurn()
  }
  source.push(null)
  await pump.ended
  const full = Math.floor((16 * CHUNK) / MAX_FRAME_DATA)
  assert.deepEqual(lengths, [...Array.from({ length: full }, () => MAX_FRAME_DATA), 16 * CHUNK - full * MAX_FRAME_DATA])
})

test('a short piece waits for only one turn', async () => {
  const { source, pump, received } = pumpOf()
  pump.resume()
  await nextTurn()
  source.push('prompt> ')
  await settled()
  assert.equal(Buffer.concat(received).toString(), 'prompt> ')
  assert.equal(pump.isEnded, false)
})

test('a stream ends only after its last bytes are forwarded', async () => {
  const { source, pump, received } = pumpOf()
  pump.resume()
  source.push(Buffer.alloc(CHUNK, 1))
  await nextTurn()
  pump.pause()
  source.push(null)
  await settled()
  assert.equal(pump.isEnded, false)
  pump.resume()
  await pump.ended
  assert.equal(Buffer.concat(received).length, CHUNK)
})

test('bytes above the limit reuse one buffer', async () => {
  let taken = 0
  class Counted extends BufferPool {
    override take(): Uint8Array {
      taken += 1
      return super.take()
    }
  }
  const frames = new Counted({ size: MAX_FRAME_DATA, max: 1 })
  const { source, pump } = pumpOf(0, frames)
  pump.resume()
  const first = frames.take()
  frames.give(first)
  for (let turn = 0; turn < 8; turn++) {
    source.push(Buffer.alloc(CHUNK))
    await nextTurn()
  }
  await settled()
  assert.ok(taken > 8)
  assert.equal(frames.take(), first)
})

test('property: the bytes of a program arrive in order, and a paused pump forwards no data', async () => {
  const steps = fc.array(
    fc.record({ size: fc.oneof(fc.nat({ max: 40 }), fc.nat({ max: 2 * CHUNK })), pause: fc.boolean(), turns: fc.nat({ max: 2 }) }),
    { maxLength: 25 },
  )
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      const { source, pump, received } = pumpOf()
      const hash = createHash('sha256')
      pump.resume()
      for (const { size, pause, turns } of all) {
        const bytes = randomBytes(size)
        hash.update(bytes)
        if (pause) pump.pause()
        const before = received.length
        if (size > 0) source.push(bytes)
        for (let turn = 0; turn < turns; turn++) await nextTurn()
        if (pause) assert.equal(received.length, before)
        pump.resume()
      }
      source.push(null)
      await pump.ended
      const { sha256, bytes_total, bytes_forwarded } = pump.finish()
      const output = Buffer.concat(received)
      assert.deepEqual([bytes_total, bytes_forwarded], [output.length, output.length])
      assert.deepEqual(Buffer.from(sha256), hash.digest())
      assert.deepEqual(createHash('sha256').update(output).digest(), Buffer.from(sha256))
    }),
    { seed: 20_261_128, numRuns: 200 },
  )
})
