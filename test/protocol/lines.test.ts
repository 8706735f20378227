import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'

import { jsonText, LineSplitter, linesOf } from '../../src/protocol/lines.ts'
import { MAX_RPC_MESSAGE } from '../../src/protocol/limits/rexd.ts'

const SEED = 20_261_121
const MIB = 1024 * 1024

/**
 * Returns all lines as texts with one byte per character, also an unfinished last line. Each line is copied before the next one is read.
 */
const readAll = (chunks: Iterable<Uint8Array>): string[] => {
  const lines = new LineSplitter({ max: MAX_RPC_MESSAGE })
  const said: string[] = []
  const text = (line: Uint8Array | 'too_long'): string => (line === 'too_long' ? line : Buffer.from(line).toString('latin1'))
  for (const chunk of chunks) for (const line of lines.push(chunk)) said.push(text(line))
  const rest = lines.rest()
  return rest === null ? said : [...said, text(rest)]
}

const inPieces = (bytes: Uint8Array, sizes: readonly number[]): Uint8Array[] => {
  const pieces: Uint8Array[] = []
  let at = 0
  for (let turn = 0; at < bytes.length; turn++) {
    const size = sizes[turn % sizes.length] ?? bytes.length
    pieces.push(bytes.subarray(at, at + size))
    at += size
  }
  return pieces
}

test('lines are the same, however chunks split them', () => {
  const byte = fc.oneof({ weight: 3, arbitrary: fc.constant(0x0a) }, { weight: 10, arbitrary: fc.nat({ max: 255 }) })
  fc.assert(
    fc.property(fc.array(byte, { maxLength: 200 }), fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }), (all, sizes) => {
      const bytes = Uint8Array.from(all)
      const expected = Buffer.from(bytes).toString('latin1').split('\n')
      if (expected.at(-1) === '') expected.pop()
      assert.deepEqual(readAll(inPieces(bytes, sizes)), expected)
    }),
    { seed: SEED, numRuns: 2000 },
  )
})

test('a line that is too long is reported once, and the lines around it are complete', () => {
  const lengths = fc.array(fc.constantFrom(0, 1, 77, MAX_RPC_MESSAGE - 1, MAX_RPC_MESSAGE, MAX_RPC_MESSAGE + 1, 2 * MAX_RPC_MESSAGE + 5), {
    minLength: 1,
    maxLength: 5,
  })
  const sizes = fc.array(fc.integer({ min: 4096, max: 5 * MIB }), { minLength: 1, maxLength: 4 })
  fc.assert(
    fc.property(lengths, sizes, fc.boolean(), (wanted, cuts, ended) => {
      const bytes = Buffer.concat(wanted.flatMap((length, index) => [Buffer.alloc(length, 97 + index), Buffer.from('\n')]))
      const heard = readAll(inPieces(ended ? bytes : bytes.subarray(0, -1), cuts))
      // An empty last line without a line end does not count.
      const lines = !ended && wanted.at(-1) === 0 ? wanted.slice(0, -1) : wanted
      const character = (line: string): string => (line === line.slice(0, 1).repeat(line.length) ? line.slice(0, 1) : 'several')
      const shown = (line: string): string => (line === 'too_long' ? line : `${line.length} ${character(line)}`)
      const expected = lines.map((length, index) =>
        length > MAX_RPC_MESSAGE ? 'too_long' : `${length} ${length === 0 ? '' : String.fromCharCode(97 + index)}`,
      )
      assert.deepEqual(heard.map(shown), expected)
    }),
    { seed: SEED, numRuns: 15 },
  )
})

/** Maximum memory for the longest line, its next copy, and uncollected garbage. */
const MOST_HELD = 8 * MAX_RPC_MESSAGE

/** Returns the memory in use after a garbage collection. */
const held = (): number => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  collect()
  collect()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

test('an endless line uses no more memory than a few lines of the maximum length', () => {
  const lines = new LineSplitter({ max: MAX_RPC_MESSAGE })
  const before = held()
  let most = 0
  for (let round = 0; round < 2048; round++) {
    assert.deepEqual([...lines.push(Buffer.alloc(64 * 1024, 'x'))], [])
    if (round % 64 === 60) most = Math.max(most, held() - before)
  }
  assert.ok(most < MOST_HELD, `${most} bytes were held`)
  assert.deepEqual([...lines.push(Buffer.from('\nnext\n'))].map(String), ['too_long', 'next'])
})

test('a line that arrives byte by byte uses no more memory than a few lines of the maximum length', () => {
  const lines = new LineSplitter({ max: MAX_RPC_MESSAGE })
  const before = held()
  const one = Uint8Array.of(0x78)
  for (let count = 0; count < MIB; count++) for (const line of lines.push(Uint8Array.from(one))) assert.fail(String(line))
  const now = held() - before
  assert.ok(now < MOST_HELD, `${now} bytes were held for a line of ${MIB}`)
  assert.equal(lines.rest()?.length, MIB)
})

class TooLong extends Error {}
const tooLong = (): Error => new TooLong()

async function* from(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks
}

/** Reads lines of at most eight bytes. */
const strictly = async (chunks: readonly Uint8Array[]): Promise<string[]> => {
  const lines: string[] = []
  for await (const line of linesOf(from(chunks), 8, tooLong)) lines.push(line.toString('latin1'))
  return lines
}

test('the last line of a stream needs no line end, and no byte is lost or added', async () => {
  const byte = fc.oneof({ weight: 3, arbitrary: fc.constant(0x0a) }, { weight: 4, arbitrary: fc.nat({ max: 255 }) })
  await fc.assert(
    fc.asyncProperty(fc.array(byte, { maxLength: 60 }), fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }), async (all, sizes) => {
      const bytes = Uint8Array.from(all)
      const expected = Buffer.from(bytes).toString('latin1').split('\n')
      if (expected.at(-1) === '') expected.pop()
      if (expected.some(({ length }) => length > 8)) await assert.rejects(strictly(inPieces(bytes, sizes)), TooLong)
      else assert.deepEqual(await strictly(inPieces(bytes, sizes)), expected)
    }),
    { seed: SEED, numRuns: 2000 },
  )
})

test('a line of the maximum length is accepted, and a longer one is refused before its end', () => {
  const lines = new LineSplitter({ max: 8 })
  assert.deepEqual([...lines.pushStrictly(Buffer.from('12345678\n1234567'), tooLong)].map(String), ['12345678'])
  assert.deepEqual([...lines.pushStrictly(Buffer.from('8'), tooLong)], [])
  assert.throws(() => [...lines.pushStrictly(Buffer.from('9'), tooLong)], TooLong)
})

test('JSON on one line has no Unicode line separators, and is parsed back to the same value', () => {
  const separators = '\n\v\f\r\u001c\u001d\u001e\u0085\u2028\u2029'
  const value = { [`a${separators}`]: [separators, 'plain', '漢字', 1, null] }
  for (const one of separators) assert.ok(!jsonText(value).includes(one), JSON.stringify(one))
  assert.deepEqual(JSON.parse(jsonText(value)), value)
  assert.equal(jsonText('漢'), '"漢"')
  fc.assert(fc.property(fc.jsonValue(), (any) => assert.deepEqual(JSON.parse(jsonText(any)), JSON.parse(JSON.stringify(any)))))
})

test('all parts of a line that is too long are passed on, and parts of other lines are not', () => {
  const parts: Buffer[] = []
  const lines = new LineSplitter({ max: 4, onSkipped: (part) => parts.push(Buffer.from(part)) })
  const said = ['ab', 'cdef', 'gh\nok\n12345\n1234', '\n'].flatMap((text) => [...lines.push(Buffer.from(text))].map(String))
  assert.deepEqual(said, ['too_long', 'ok', 'too_long', '1234'])
  assert.equal(Buffer.concat(parts).toString(), 'abcdefgh12345')
})
