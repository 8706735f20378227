import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { ByteBuilder } from '../../src/protocol/lines.ts'

test('the builder returns a copy of all added bytes in a buffer of at most about twice their size', () => {
  const MAX = 400_000
  const small = fc.uint8Array({ maxLength: 5_000 })
  const large = fc.integer({ min: 32_000, max: 36_000 }).map((length) => Buffer.alloc(length, length))
  const piece = fc.oneof({ weight: 3, arbitrary: small }, { weight: 1, arbitrary: large })
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 10 }), fc.nat({ max: 10 }), (pieces, taken) => {
      const gathered = new ByteBuilder({ max: MAX })
      const parts: Buffer[] = []
      for (const [i, piece] of pieces.entries()) {
        gathered.add(piece)
        if (i === taken) parts.push(gathered.take())
      }
      const rest = gathered.length
      parts.push(gathered.take())
      assert.deepEqual(Buffer.concat(parts), Buffer.concat(pieces))
      assert.deepEqual([gathered.length, gathered.take().length], [0, 0])
      assert.ok(parts.at(-1)!.buffer.byteLength <= Math.min(MAX, Math.max(4_096, 2 * rest)))
      const before = Buffer.concat(pieces)
      for (const part of parts) part.fill(0)
      assert.deepEqual(Buffer.concat(pieces), before, 'what was taken is no piece that came')
    }),
  )
})
