import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { isAppError } from '../../src/base/errors.ts'
import { encodeFrame, FrameDecoder } from '../../src/protocol/wire/framing.ts'

const cut = (bytes: Uint8Array, sizes: number[]): Uint8Array[] => {
  const chunks: Uint8Array[] = []
  let at = 0
  for (const size of sizes) {
    chunks.push(bytes.subarray(at, at + size))
    at += size
  }
  chunks.push(bytes.subarray(at))
  return chunks
}

test('frames are decoded unchanged, even if chunks split them', () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 50 }), { maxLength: 8 }),
      fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 40 }),
      (payloads, sizes) => {
        const decoder = new FrameDecoder(50)
        const stream = Buffer.concat(payloads.map((payload) => encodeFrame(payload)))
        const received = cut(stream, sizes).flatMap((chunk) => [...decoder.push(chunk)].map((frame) => [...frame]))
        assert.deepEqual(
          received,
          payloads.map((payload) => [...payload]),
        )
        assert.equal(decoder.idle, true)
      },
    ),
    { seed: 20_260_503, numRuns: 2_000 },
  )
})

test('a frame of the maximum size is accepted, and the head of a longer one is refused', () => {
  const decoder = new FrameDecoder(4)
  assert.deepEqual([...decoder.push(encodeFrame(new Uint8Array(4)))].length, 1)
  assert.throws(
    () => [...new FrameDecoder(4).push(new Uint8Array([0, 0, 0, 5]))],
    (error) => isAppError(error, 'malformed'),
  )
  assert.throws(
    () => [...new FrameDecoder(4).push(new Uint8Array([0xff, 0xff, 0xff, 0xff]))],
    (error) => isAppError(error, 'malformed'),
  )
})

test('the decoder knows if a stream stopped inside a frame', () => {
  const decoder = new FrameDecoder(10)
  assert.deepEqual([...decoder.push(new Uint8Array([0, 0, 0, 2, 7]))], [])
  assert.equal(decoder.idle, false)
})

test('a frame in many small pieces does not keep the memory of their chunks', () => {
  const decoder = new FrameDecoder(64 * 1024)
  const frame = encodeFrame(Buffer.alloc(4_000, 7))
  for (const byte of frame.subarray(0, -1)) {
    const chunk = new Uint8Array(new ArrayBuffer(64 * 1024), 1_000, 1)
    chunk[0] = byte
    assert.deepEqual([...decoder.push(chunk)], [])
  }
  const [payload] = [...decoder.push(frame.subarray(-1))]
  assert.deepEqual(Buffer.from(payload!), Buffer.alloc(4_000, 7))
  assert.ok(payload!.buffer.byteLength < 16 * 1024, `${payload!.buffer.byteLength} bytes are kept`)
})

test('a frame made from parts equals the frame of the whole content', () => {
  const parts = [new Uint8Array(3).fill(1), new Uint8Array(0), new Uint8Array(70_000).fill(2)]
  assert.deepEqual(encodeFrame(...parts), encodeFrame(Buffer.concat(parts)))
})
