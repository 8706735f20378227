import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { DETACHED_ASKS, execDetachedAsk, execDetachRequest } from '../../src/protocol/wire/detached.ts'
import { plain } from '../support/plain.ts'

const hexId = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('hex'))
const bytes32 = fc.uint8Array({ minLength: 32, maxLength: 32 })
const uint = fc.nat({ max: Number.MAX_SAFE_INTEGER })
const head = {
  version: fc.constant<1>(1),
  request_id: fc.uuid({ version: 7 }),
  from_agent: hexId,
  from_machine: hexId,
  to_agent: hexId,
  to_machine: hexId,
  stream_nonce: bytes32,
  created_at_ms: uint,
}
const anyRequest = fc.record({
  ...head,
  argv: fc.array(fc.string({ unit: 'grapheme' }), { maxLength: 8 }),
  cwd: fc.option(fc.string()),
  clamp: fc.boolean(),
  lifetime_ms: fc.option(uint),
  keep_bytes: fc.option(uint),
})
const anyAsk = fc.record({ ...head, ask: fc.constantFrom(...DETACHED_ASKS), from: uint })
const options = { seed: 20_261_126, numRuns: 500 }

test('requests to start and to query detached runs are decoded unchanged', () => {
  fc.assert(
    fc.property(anyRequest, (value) => assert.deepEqual(plain(execDetachRequest.decode(execDetachRequest.encode(value))), plain(value))),
    options,
  )
  fc.assert(
    fc.property(anyAsk, (value) => assert.deepEqual(plain(execDetachedAsk.decode(execDetachedAsk.encode(value))), plain(value))),
    options,
  )
})

test('changed bytes are decoded to a value or refused as malformed', () => {
  const changed = fc.tuple(
    fc.oneof(
      anyRequest.map((value) => execDetachRequest.encode(value)),
      anyAsk.map((value) => execDetachedAsk.encode(value)),
    ),
    fc.nat(),
    fc.nat(255),
  )
  fc.assert(
    fc.property(changed, ([bytes, at, byte]) => {
      const other = Uint8Array.from(bytes)
      other[at % other.length] = byte
      for (const codec of [execDetachRequest, execDetachedAsk]) {
        try {
          codec.decode(other)
        } catch (error) {
          assert.ok(isAppError(error, 'malformed'))
        }
      }
    }),
    options,
  )
})
