import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { AppError, ERROR_TABLE, type ErrorCode } from '../../../src/base/errors.ts'
import {
  failure,
  isCall,
  methodNotFound,
  parseMessage,
  success,
  tooLong,
  type RpcMessage,
  type RpcResponse,
} from '../../../src/doors/rpc/message.ts'
import { MAX_RPC_BATCH, MAX_RPC_ID } from '../../../src/protocol/limits/rexd.ts'

const SEED = 20_261_121

/** A response as JSON-RPC 2.0, section 5 defines it: the required members, and either result or error. */
const assertResponse = (response: RpcResponse): void => {
  assert.equal(response.jsonrpc, '2.0')
  const { id } = response
  assert.ok(id === null || typeof id === 'string' || Number.isSafeInteger(id), `id ${String(id)}`)
  if ('result' in response) return assert.deepEqual(Object.keys(response).toSorted(), ['id', 'jsonrpc', 'result'])
  assert.deepEqual(Object.keys(response).toSorted(), ['error', 'id', 'jsonrpc'])
  assert.ok(Number.isInteger(response.error.code))
  assert.equal(typeof response.error.message, 'string')
  assert.ok(response.error.message.length < 1000, 'what was sent does not come back in full')
}

const assertMessage = ({ batch, parts }: RpcMessage): void => {
  assert.ok(parts.length <= MAX_RPC_BATCH)
  if (!batch) assert.ok(parts.length <= 1)
  for (const part of parts) {
    if (!isCall(part)) assertResponse(part)
    else assert.ok(typeof part.method === 'string' && typeof part.params === 'object' && !Array.isArray(part.params))
  }
}

const goodId = fc.oneof(fc.string({ unit: 'binary', maxLength: MAX_RPC_ID / 2 }), fc.maxSafeInteger(), fc.constant(null))
const anything = fc.jsonValue({ maxDepth: 3, stringUnit: 'binary' })
const params = fc.dictionary(
  fc.string().filter((key) => key !== '__proto__'),
  anything,
  { maxKeys: 4 },
)
const request = fc.record({ jsonrpc: fc.constant('2.0'), id: goodId, method: fc.string(), params }, { requiredKeys: ['jsonrpc', 'method'] })
/** Requests with one or two invalid members. */
const nearly = fc
  .tuple(request, fc.dictionary(fc.constantFrom('jsonrpc', 'id', 'method', 'params', 'more'), anything, { maxKeys: 3 }))
  .map(([good, bad]) => ({ ...good, ...bad }))

/** A notification with positional params, which no method accepts. It needs neither an answer nor any work. */
const isIdle = (value: unknown): boolean => {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  const { jsonrpc, method, params = {}, ...rest } = JSON.parse(JSON.stringify(value)) as Record<string, unknown>
  const byName = typeof params === 'object' && params !== null && !Array.isArray(params)
  return jsonrpc === '2.0' && typeof method === 'string' && !byName && Object.keys(rest).length === 0
}

const refused = (value: unknown): RpcResponse => {
  const [part, ...others] = parseMessage(JSON.stringify(value)).parts
  assert.equal(others.length, 0)
  assert.ok(part !== undefined && !isCall(part), JSON.stringify(part))
  return part
}

const codeOf = (response: RpcResponse): number => ('error' in response ? response.error.code : 0)

test('any text gets an answer that follows JSON-RPC 2.0, and the parser does not throw', () => {
  const cut = fc.tuple(fc.array(nearly), fc.nat()).map(([value, at]) => JSON.stringify(value).slice(0, at % 200))
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: 'binary', maxLength: 300 }), fc.string(), cut), (text) => assertMessage(parseMessage(text))),
    { seed: SEED, numRuns: 2000 },
  )
})

test('any JSON value parses, and a list becomes a batch with one part per element', () => {
  fc.assert(
    fc.property(fc.oneof(anything, nearly, fc.array(fc.oneof(anything, nearly), { maxLength: 8 })), (value) => {
      const message = parseMessage(JSON.stringify(value))
      assertMessage(message)
      const many = Array.isArray(value) && value.length > 0
      const idle = (Array.isArray(value) ? value : [value]).filter(isIdle).length
      assert.deepEqual([message.batch, message.parts.length], [many, (many ? value.length : 1) - idle])
    }),
    { seed: SEED, numRuns: 2000 },
  )
})

test('a valid request parses unchanged, alone and in a batch', () => {
  fc.assert(
    fc.property(fc.array(request, { minLength: 1, maxLength: 10 }), (requests) => {
      const expected = JSON.parse(
        JSON.stringify(requests.map(({ id, method, params = {} }) => ({ method, params, ...(id === undefined ? {} : { id }) }))),
      ) as unknown[]
      const read = (value: unknown): unknown[] => JSON.parse(JSON.stringify(parseMessage(JSON.stringify(value)).parts)) as unknown[]
      assert.deepEqual(read(requests), expected)
      assert.deepEqual(read(requests[0]), expected.slice(0, 1))
    }),
    { seed: SEED, numRuns: 1000 },
  )
})

test("an error repeats the request's ID if the ID is valid, and null otherwise", () => {
  fc.assert(
    fc.property(nearly, (value) => {
      const [part] = parseMessage(JSON.stringify(value)).parts
      if (part === undefined || isCall(part)) return
      const { id } = JSON.parse(JSON.stringify(value)) as { id?: unknown }
      const told = id === null || (typeof id === 'string' && id.length <= MAX_RPC_ID) || Number.isSafeInteger(id)
      assert.deepEqual(part.id, told ? id : null)
    }),
    { seed: SEED, numRuns: 1000 },
  )
  for (const id of [1.5, 2 ** 53, true, {}, [], 'x'.repeat(MAX_RPC_ID + 1)]) {
    const response = refused({ jsonrpc: '2.0', id, method: 'session.info' })
    assert.deepEqual([response.id, codeOf(response)], [null, -32_600], JSON.stringify(id))
  }
  assert.ok(isCall(parseMessage(JSON.stringify({ jsonrpc: '2.0', id: 'x'.repeat(MAX_RPC_ID), method: 'm' })).parts[0]!))
})

test('an invalid request gets -32600, invalid JSON -32700 and positional params -32602', () => {
  for (const value of [1, 'x', null, true, {}, { jsonrpc: '1.0', id: 1, method: 'm' }, { jsonrpc: '2.0', id: 1, method: 1 }])
    assert.equal(codeOf(refused(value)), -32_600, JSON.stringify(value))
  assert.equal(codeOf(refused({ jsonrpc: '2.0', id: 1, method: 'm', extra: 1 })), -32_600)
  assert.equal(codeOf(refused({ jsonrpc: '2.0', id: 1, method: 'm', params: [1] })), -32_602)
  for (const text of ['', ' ', '{', 'nonsense', '{"jsonrpc": "2.0", "method": "m", "params": [', '\u0000', '[1,]', '\u{feff}{'])
    assert.equal(codeOf(parseMessage(text).parts[0] as RpcResponse), -32_700, text)
})

// A server must not reply to a notification, even if its params are invalid (JSON-RPC 2.0, section 4.1).
test('a notification gets no answer, even with invalid params', () => {
  for (const given of [[1, 2, 3], [], { a: 1 }]) {
    const notification = { jsonrpc: '2.0', method: 'update', params: given }
    for (const value of [notification, [notification, notification]]) {
      const answers = parseMessage(JSON.stringify(value)).parts.filter((part) => !isCall(part))
      assert.deepEqual(answers, [], JSON.stringify(value))
    }
  }
})

test('a batch has 1 to 100 requests, and any other size gets a single error', () => {
  const batch = (length: number) => Array.from({ length }, (_, id) => ({ jsonrpc: '2.0', id, method: 'm' }))
  assert.equal(parseMessage(JSON.stringify(batch(MAX_RPC_BATCH))).parts.length, MAX_RPC_BATCH)
  for (const length of [0, MAX_RPC_BATCH + 1]) {
    const message = parseMessage(JSON.stringify(batch(length)))
    assert.deepEqual([message.batch, message.parts.length], [false, 1])
    assert.equal(codeOf(message.parts[0] as RpcResponse), -32_600)
  }
})

test('extremely nested JSON does not break the parser', () => {
  const deep = 100_000
  for (const text of [
    '['.repeat(deep),
    '['.repeat(deep) + ']'.repeat(deep),
    '{"a":'.repeat(deep),
    `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":${'['.repeat(deep)}${']'.repeat(deep)}}}`,
  ])
    assertMessage(parseMessage(text))
})

test('members such as __proto__ are treated as unknown members', () => {
  for (const key of ['__proto__', 'constructor', 'toString']) {
    const { parts } = parseMessage(`{"jsonrpc":"2.0","id":1,"method":"m","${key}":{"polluted":true}}`)
    assert.equal(codeOf(parts[0] as RpcResponse), -32_600)
  }
  assert.equal(({} as { polluted?: true }).polluted, undefined)
})

test('every known error maps to its code and name, and an unknown error hides its details', () => {
  for (const code of Object.keys(ERROR_TABLE) as ErrorCode[]) {
    const response = failure('x', new AppError(code, undefined, { data: { more: 1 } }))
    assertResponse(response)
    assert.deepEqual([codeOf(response), 'error' in response && response.error.data], [ERROR_TABLE[code].rpc, { code, more: 1 }])
  }
  for (const error of [new Error('secret'), 'secret', null, undefined]) assert.doesNotMatch(JSON.stringify(failure(1, error)), /secret/)
  assertResponse(success(null, {}))
  for (const { parts } of [tooLong(5), { parts: [methodNotFound(1, 'x'.repeat(10_000), ['a'])] }]) assertResponse(parts[0] as RpcResponse)
})
