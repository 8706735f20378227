import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import fc from 'fast-check'

import { sha256 } from '../../src/identity/hash.ts'
import { pieceHashesInTurns } from '../../src/identity/piece-hashes.ts'
import { PieceHashes, pieceHashes } from '../../src/identity/piece-hashes.ts'
import { stdinPieces } from '../../src/protocol/wire/exec.ts'
import { STDIN_PIECE_BYTES } from '../../src/protocol/limits/wire.ts'

const hex = (hashes: readonly Uint8Array[]): string[] => hashes.map((hash) => Buffer.from(hash).toString('hex'))

test('property: each mebibyte gets its hash, with any chunks of input, and empty input gets one too', () => {
  const data = randomBytes(3 * STDIN_PIECE_BYTES)
  const lengths = fc.constantFrom(0, 1, STDIN_PIECE_BYTES - 1, STDIN_PIECE_BYTES, STDIN_PIECE_BYTES + 1, 2 * STDIN_PIECE_BYTES, data.length)
  const property = fc.property(lengths, fc.array(fc.nat({ max: data.length }), { maxLength: 4 }), (length, cuts) => {
    const whole = data.subarray(0, length)
    const expected = Array.from({ length: stdinPieces(length) }, (_, index) =>
      sha256(whole.subarray(index * STDIN_PIECE_BYTES, (index + 1) * STDIN_PIECE_BYTES)),
    )
    const hashes = new PieceHashes()
    const ends = [...cuts.filter((cut) => cut < length).toSorted((a, b) => a - b), length]
    for (const [index, end] of ends.entries()) hashes.update(whole.subarray(ends[index - 1] ?? 0, end))
    assert.equal(hashes.length, length)
    assert.deepEqual(hex(hashes.digest()), hex(expected))
    assert.deepEqual(hex(pieceHashes(whole)), hex(expected))
  })
  fc.assert(property, { numRuns: 40 })
})

test('hashing many pieces lets other work run between them and gives the same hashes', async () => {
  for (const length of [0, 1, STDIN_PIECE_BYTES, 3 * STDIN_PIECE_BYTES + 1]) {
    const data = randomBytes(length)
    let turns = 0
    let over = false
    const others = (): void => {
      turns += 1
      if (!over) setImmediate(others)
    }
    setImmediate(others)
    const hashes = await pieceHashesInTurns(data)
    over = true
    assert.deepEqual(hex(hashes), hex(pieceHashes(data)))
    assert.ok(turns >= stdinPieces(length) - 1, `${turns} turns of others for ${length} bytes`)
  }
})
