import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'

import {
  Base64,
  isCall,
  parseBinary,
  parseMessage,
  writtenAsBinary,
  type RpcCall,
  type RpcMessage,
} from '../../../src/doors/rpc/message.ts'
import { MAX_RPC_SHAPE } from '../../../src/protocol/limits/rexd.ts'
import { contentHead, splitContent } from '../../../src/protocol/rexd/binary-message.ts'

const SEED = 20_261_128
const BYTES = randomBytes(200)

const call = (params: object, others: object = {}): object => ({ jsonrpc: '2.0', id: 1, method: 'fs.write', params, ...others })
const WRITE = call({ session_id: 's', path: 'f', encoding: 'base64', content: '' })
const parse = (json: string, content: Uint8Array = BYTES): RpcMessage => parseBinary(Buffer.concat([contentHead(json), content]))

const codesOf = ({ batch, parts }: RpcMessage): unknown[] => {
  assert.equal(batch, false)
  return parts.map((part) => ('error' in part ? [part.id, part.error.code] : part))
}

/** Checks that only fs.write carries bytes, and that its text content is empty. */
const assertSafe = ({ batch, parts }: RpcMessage): void => {
  assert.equal(batch, false)
  assert.ok(parts.length <= 1)
  for (const part of parts) {
    if (!isCall(part)) return assert.ok('error' in part)
    const { method, params, content } = part
    assert.deepEqual([method, params['encoding'], params['content']], ['fs.write', 'base64', ''])
    assert.ok(content instanceof Uint8Array)
  }
}

test('an fs.write message carries its bytes, and its other fields do not change', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 500 }), fc.string({ unit: 'grapheme' }), (content, path) => {
      const json = JSON.stringify(call({ path, encoding: 'base64', content: '', mode: 'append' }))
      const [expected] = parseMessage(json).parts
      assert.deepEqual(parse(json, content), { batch: false, parts: [{ ...(expected as RpcCall), content: new Uint8Array(content) }] })
    }),
    { seed: SEED },
  )
})

test('bytes of any other request are refused with its ID', () => {
  const wrong = [
    call({ path: 'f', encoding: 'base64', content: 'QQ==' }),
    call({ path: 'f', encoding: 'base64' }),
    call({ path: 'f', encoding: 'utf8', content: '' }),
    call({ path: 'f', content: '' }),
    call({ encoding: 'base64', content: '' }, { method: 'fs.read' }),
    call({ encoding: 'base64', content: '', data: '' }, { method: 'exec.input' }),
    call({ encoding: 'base64', content: '' }, { method: 'none' }),
  ]
  for (const message of wrong) {
    assert.deepEqual(codesOf(parse(JSON.stringify(message))), [[1, -32_602]])
    assert.deepEqual(codesOf(parse(JSON.stringify({ ...message, id: undefined }))), [], 'a notification is never answered')
  }
  for (const batch of [[WRITE], [WRITE, WRITE]]) assert.deepEqual(codesOf(parse(JSON.stringify(batch))), [[null, -32_600]])
  assert.deepEqual(codesOf(parse('[]')), [[null, -32_600]])
})

test('a binary message with incomplete or invalid JSON gets the same error as a text message', () => {
  for (const message of ['', '\0\0\0', '\0\0\0\x05{}', '\xff\xff\xff\xff{}', '\0\0\0\0{}', '\0\0\0\x02{]'])
    assert.deepEqual(codesOf(parseBinary(Buffer.from(message, 'latin1'))), [[null, -32_700]])
  assert.deepEqual(codesOf(parseBinary(Buffer.concat([Buffer.from([0, 0, 0, 3]), Buffer.from('"\xff"', 'latin1'), BYTES]))), [
    [null, -32_700],
  ])
  const many = JSON.stringify(call({ argv: Array.from({ length: MAX_RPC_SHAPE.values }, () => 1) }))
  assert.deepEqual(codesOf(parse(many)), [[null, -32_008]])
})

test('property: after any change of a message, only fs.write carries bytes', () => {
  const valid = Buffer.concat([contentHead(JSON.stringify(WRITE)), BYTES])
  const change = fc.record({ at: fc.nat({ max: valid.length - 1 }), to: fc.nat({ max: 255 }) })
  fc.assert(
    fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), fc.nat({ max: valid.length }), (changes, length) => {
      const mutated = Buffer.from(valid)
      for (const { at, to } of changes) mutated[at] = to
      assertSafe(parseBinary(mutated))
      assertSafe(parseBinary(Buffer.from(valid.subarray(0, length))))
    }),
    { seed: SEED, numRuns: 3_000 },
  )
})

test('only an answer with a base64 file becomes a binary message', () => {
  const answer = (content: unknown): object => ({
    jsonrpc: '2.0',
    id: 1,
    result: { path: 'f', encoding: 'base64', content, truncated: false },
  })
  const binary = writtenAsBinary(answer(new Base64(BYTES)))!
  const split = splitContent(Buffer.concat([binary.head, binary.content]))!
  assert.deepEqual(JSON.parse(split.json.toString()), answer(''))
  assert.deepEqual(split.content, BYTES)
  for (const message of [answer('text'), [answer(new Base64(BYTES))], '{}', { method: 'exec.stdout', params: {} }])
    assert.equal(writtenAsBinary(message), null)
})
