import assert from 'node:assert/strict'
import { test } from 'node:test'

import { giveBack } from '../../src/base/buffers.ts'

const SIZE = 256 * 1024

test('large bytes that are all of their memory are freed at once', () => {
  const bytes = Buffer.allocUnsafeSlow(SIZE)
  giveBack(bytes)
  assert.deepEqual([bytes.length, bytes.buffer.byteLength], [0, 0])
})

test('memory that others may still read is kept: parts of a chunk, small or empty bytes, shared memory', () => {
  const chunk = Buffer.alloc(SIZE, 1)
  giveBack(chunk.subarray(1))
  giveBack(chunk.subarray(0, SIZE - 1))
  assert.deepEqual([chunk.length, chunk[0], chunk[SIZE - 1]], [SIZE, 1, 1])
  for (const length of [0, 1, 64 * 1024 - 1]) {
    const bytes = new Uint8Array(new ArrayBuffer(length))
    giveBack(bytes)
    assert.deepEqual([bytes.length, bytes.buffer.detached], [length, false])
  }
  const shared = new Uint8Array(new SharedArrayBuffer(SIZE))
  giveBack(shared)
  assert.equal(shared.length, SIZE)
})
