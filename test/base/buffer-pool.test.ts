import assert from 'node:assert/strict'
import { test } from 'node:test'

import { BufferPool } from '../../src/base/buffers.ts'

test('the pool hands out a returned buffer again, and otherwise a new one', () => {
  const pool = new BufferPool({ size: 4096, max: 2 })
  const [first, second] = [pool.take(), pool.take()]
  assert.notEqual(first, second)
  assert.notEqual(first.buffer, second.buffer)
  pool.give(first)
  assert.equal(pool.take(), first)
  assert.equal(pool.take().length, 4096)
})

test('a buffer that is returned twice is handed out only once', () => {
  const pool = new BufferPool({ size: 4096, max: 8 })
  const buffer = pool.take()
  pool.give(buffer)
  pool.give(buffer)
  assert.equal(pool.take(), buffer)
  assert.notEqual(pool.take(), buffer)
})

test('the pool accepts no foreign buffers and no parts of its buffers', () => {
  const pool = new BufferPool({ size: 4096, max: 8 })
  const buffer = pool.take()
  const foreign = [Buffer.alloc(4096), buffer.subarray(0, 4096), buffer.subarray(0, 10)]
  for (const one of foreign) pool.give(one)
  const taken = pool.take()
  assert.ok(!foreign.includes(taken) && taken.buffer !== buffer.buffer)
})

test('the pool stores no more free buffers than its limit', () => {
  const pool = new BufferPool({ size: 4096, max: 2 })
  const buffers = [pool.take(), pool.take(), pool.take()]
  for (const buffer of buffers) pool.give(buffer)
  assert.deepEqual(
    [pool.take(), pool.take()].map((buffer) => buffers.indexOf(buffer)),
    [1, 0],
  )
  assert.equal(buffers.indexOf(pool.take()), -1)
})
