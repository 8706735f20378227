import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { isAppError } from '../../src/base/errors.ts'
import {
  checkArgvSize,
  decodeExecBody,
  EXEC_PREFIX,
  execDetachRules,
  execExit,
  execFrame,
  execRequest,
  execRulesRequest,
} from '../../src/protocol/wire/exec.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS, MAX_FRAME_DATA, MAX_SEALED_FRAME } from '../../src/protocol/limits/wire.ts'
import { anyExecExit, anyExecFrame, anyExecRequest, anyExecRules, anyExecRulesRequest, encodeExecBody } from '../support/exec-frames.ts'
import { plain } from '../support/plain.ts'

const malformed = (error: unknown): boolean => isAppError(error, 'malformed')
const REQUEST_ID = '0192d3a0-0000-7000-8000-000000000001'

test('the prefix is the eleven characters of x0x-exec-v1 and a NUL', () => {
  assert.equal(Buffer.from(EXEC_PREFIX).toString('hex'), '7830782d657865632d763100')
})

test('every frame and every Request, Exit and rules message is decoded unchanged', () => {
  const same =
    <T>(message: { encode(value: T): Uint8Array; decode(bytes: Uint8Array): T }) =>
    (value: T) =>
      assert.deepEqual(plain(message.decode(message.encode(value))), plain(value))
  const options = { seed: 20_260_504, numRuns: 1_000 }
  fc.assert(fc.property(anyExecFrame, same(execFrame)), options)
  fc.assert(fc.property(anyExecRequest, same(execRequest)), options)
  fc.assert(fc.property(anyExecExit, same(execExit)), options)
  fc.assert(fc.property(anyExecRulesRequest, same(execRulesRequest)), options)
  fc.assert(fc.property(anyExecRules, same(execDetachRules)), options)
})

test('an Exit with an impossible status or signal is refused, because a status above 255 could be truncated to success', () => {
  const [exit] = fc.sample(anyExecExit, { numRuns: 1, seed: 7 })
  for (const code of [0, 255, null]) assert.equal(execExit.decode(execExit.encode({ ...exit!, code })).code, code)
  for (const signal of [1, 127, null]) assert.equal(execExit.decode(execExit.encode({ ...exit!, signal })).signal, signal)
  for (const code of [256, -1, 512]) assert.throws(() => execExit.decode(execExit.encode({ ...exit!, code })), malformed)
  for (const signal of [0, 128, 255]) assert.throws(() => execExit.decode(execExit.encode({ ...exit!, signal })), malformed)
})

test('a frame with one byte more than the data limit is refused', () => {
  const frame = (size: number) => ({ type: 'stdout' as const, request_id: REQUEST_ID, seq: 0, data: new Uint8Array(size) })
  const largest = encodeExecBody(frame(MAX_FRAME_DATA))
  assert.equal(decodeExecBody(largest).type, 'stdout')
  assert.ok(largest.length < MAX_SEALED_FRAME - 256, 'leaves room for the envelope and the tag')
  assert.throws(() => decodeExecBody(encodeExecBody(frame(MAX_FRAME_DATA + 1))), malformed)
})

test('a body without the prefix, with an unknown tag, or with missing or additional fields is malformed', () => {
  const body = encodeExecBody({ type: 'cancel', request_id: REQUEST_ID })
  assert.throws(() => decodeExecBody(body.subarray(1)), malformed)
  for (const hex of ['820d01', '8107', '8307500192d3a000007000800000000000000100', '07', '80', '8120', ...BAD_RESUMES])
    assert.throws(() => decodeExecBody(Buffer.concat([EXEC_PREFIX, Buffer.from(hex, 'hex')])), malformed, hex)
})

test('an argv with too many tokens or bytes is malformed', () => {
  assert.doesNotThrow(() => checkArgvSize(Array.from({ length: MAX_ARGV_TOKENS }, () => 'a')))
  assert.throws(() => checkArgvSize(Array.from({ length: MAX_ARGV_TOKENS + 1 }, () => 'a')), malformed)
  assert.doesNotThrow(() => checkArgvSize(['é'.repeat(MAX_ARGV_BYTES / 2)]))
  assert.throws(() => checkArgvSize(['é'.repeat(MAX_ARGV_BYTES / 2), 'a']), malformed)
})

const ID_HEX = '500192d3a0000070008000000000000001'
/** A missing stderr, an additional number, a negative number and a text as number. Then a missing stdin and a short ID. */
const BAD_RESUMES = [
  `830a${ID_HEX}00`,
  `850a${ID_HEX}000000`,
  `840a${ID_HEX}0020`,
  `840a${ID_HEX}006130`,
  `820b${ID_HEX}`,
  `820c4f${ID_HEX.slice(4)}`,
]

/** Returns the bytes with random damage. A byte or bit is changed, or bytes are removed, added or moved. */
const damage = (bytes: Uint8Array, random: () => number): Uint8Array => {
  const copy = Buffer.from(bytes)
  const at = Math.floor(random() * copy.length)
  switch (Math.floor(random() * 5)) {
    case 0:
      copy[at] = Math.floor(random() * 256)
      return copy
    case 1:
      copy[at]! ^= 1 << Math.floor(random() * 8)
      return copy
    case 2:
      return copy.subarray(0, at)
    case 3:
      return Buffer.concat([copy.subarray(0, at), Buffer.from([Math.floor(random() * 256)]), copy.subarray(at)])
    default:
      return Buffer.concat([copy.subarray(at), copy.subarray(0, at)])
  }
}

/** A small random number generator with a seed (mulberry32), so that a failure is reproducible. */
const seeded = (seed: number) => (): number => {
  seed = (seed + 0x6d2b79f5) | 0
  let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
}

test('100,000 damaged frames are decoded or malformed, and memory use stays limited', () => {
  const random = seeded(20_260_505)
  const frames = fc.sample(anyExecFrame, { seed: 20_260_506, numRuns: 500 }).map((frame) => encodeExecBody(frame))
  const outcomes = { decoded: 0, malformed: 0 }
  const before = process.memoryUsage()
  for (let round = 0; round < 100_000; round++) {
    let body = frames[round % frames.length]!
    for (let hits = 1 + Math.floor(random() * 3); hits > 0 && body.length > 0; hits--) body = damage(body, random)
    try {
      decodeExecBody(body)
      outcomes.decoded++
    } catch (error) {
      assert.ok(malformed(error), String(error))
      outcomes.malformed++
    }
  }
  assert.equal(outcomes.decoded + outcomes.malformed, 100_000)
  assert.ok(outcomes.decoded > 1_000 && outcomes.malformed > 10_000, JSON.stringify(outcomes))
  const grown = process.memoryUsage().rss - before.rss
  assert.ok(grown < 128 * 1024 * 1024, `grew by ${grown} bytes`)
})
