import assert from 'node:assert/strict'
import { PassThrough, Writable } from 'node:stream'
import { test, type TestContext } from 'node:test'

import type { JSONRPCMessage } from '@modelcontextprotocol/server'
import fc from 'fast-check'

import { systemClock } from '../../../src/base/clock.ts'
import { LineTransport } from '../../../src/doors/mcp/line-transport.ts'
import { MAX_MCP_BACKLOG, MAX_MCP_CALLS, MAX_MCP_MESSAGE } from '../../../src/protocol/limits/tools.ts'

/** A transport between in-memory streams, with all messages that it delivers and all that it writes. */
const between = async (t?: Pick<TestContext, 'after'>, output: Writable = new PassThrough()) => {
  const input = new PassThrough({ highWaterMark: 64 * 1024 })
  const transport = new LineTransport({ input, output, clock: systemClock })
  const came: JSONRPCMessage[] = []
  // The transport delivers messages only through this callback.
  Object.assign(transport, { onmessage: (message: JSONRPCMessage) => came.push(message) })
  t?.after(() => transport.close())
  await transport.start()
  const said = (): Record<string, unknown>[] =>
    output instanceof PassThrough
      ? String(output.read() ?? '')
          .split('\n')
          .filter((line) => line !== '')
          .map((line) => JSON.parse(line) as Record<string, unknown>)
      : []
  /** Resolves when the transport has examined all input so far. */
  const looked = async (): Promise<void> => new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
  const give = async (...lines: (object | string)[]): Promise<void> => {
    for (const line of lines) input.write(`${typeof line === 'string' ? line : JSON.stringify(line)}\n`)
    // The transport examines some lines in one turn and the others in the next turns.
    for (let turn = 0; turn <= lines.length / 64; turn++) await looked()
  }
  return { transport, input, output, came, said, give, looked }
}

const request = (id: number | string, method = 'ping', params: object = {}) => ({ jsonrpc: '2.0', id, method, params })
const call = (id: number, name: string) => request(id, 'tools/call', { name, arguments: {} })
const cancel = (requestId: number) => ({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } })
const codes = (answers: readonly Record<string, unknown>[]): unknown[] =>
  answers.map(({ id, error }) => [id, (error as { code?: number } | undefined)?.code])

test('an invalid line gets an error, and the transport reads the next line', async (t) => {
  const { give, said, came, input, looked } = await between(t)
  await give('{', '[]', '"x"', '{"jsonrpc":"2.0","id":7}', '{"jsonrpc":"2.0","id":{},"method":"a"}', '', '  ', request(1))
  input.write(Buffer.from([0xff, 0x0a]))
  await looked()
  assert.deepEqual(codes(said()), [
    [null, -32700],
    [null, -32600],
    [null, -32600],
    [7, -32600],
    [null, -32600],
    [null, -32700],
  ])
  assert.deepEqual(came, [request(1)])
})

test('an endless line uses bounded memory and gets an error when it ends', async (t) => {
  const { input, said, came, give, looked } = await between(t)
  const piece = Buffer.alloc(1024 * 1024, 'x')
  const before = process.memoryUsage().arrayBuffers
  for (let sent = 0; sent < 256; sent++) if (!input.write(piece)) await new Promise((resolve) => input.once('drain', resolve))
  assert.ok(process.memoryUsage().arrayBuffers - before < 12 * MAX_MCP_MESSAGE)
  assert.deepEqual(said(), [])
  await give('', request(1))
  await looked()
  assert.deepEqual(codes(said()), [[null, -32600]])
  assert.deepEqual(came, [request(1)])
})

test('a second request with the ID of an open call is refused', async (t) => {
  const { transport, give, said, came } = await between(t)
  await give(request(1), request(1), request('1'))
  assert.deepEqual(codes(said()), [[1, -32600]])
  await transport.send({ jsonrpc: '2.0', id: 1, result: {} })
  await give(request(1))
  assert.equal(came.length, 3)
})

test('calls over the limit are refused except exec_kill, and a cancelled call frees its place', async (t) => {
  const { give, said, came } = await between(t)
  await give(...Array.from({ length: MAX_MCP_CALLS }, (_one, id) => call(id, 'exec_status')))
  assert.equal(came.length, MAX_MCP_CALLS)
  await give(call(10_000, 'exec_status'), call(10_001, 'exec_kill'), cancel(3))
  assert.deepEqual(codes(said()), [[10_000, -32008]])
  assert.deepEqual(came.slice(MAX_MCP_CALLS), [call(10_001, 'exec_kill'), cancel(3)])
  await give(cancel(4), call(10_002, 'exec_status'))
  assert.deepEqual(said(), [])
  assert.deepEqual(came.at(-1), call(10_002, 'exec_status'))
})

test('exec_kill has its own limit of calls, which large messages and other methods cannot use', async (t) => {
  const { give, said } = await between(t)
  await give(...Array.from({ length: MAX_MCP_CALLS }, (_one, id) => call(id, 'exec_status')))
  await give(request(10_000, 'tools/call', { name: 'exec_kill', _meta: { progressToken: 'x'.repeat(5_000) } }))
  await give(request(10_001, 'tools/list', { name: 'exec_kill' }))
  await give(...Array.from({ length: MAX_MCP_CALLS + 1 }, (_one, id) => call(20_000 + id, 'exec_kill')))
  assert.deepEqual(codes(said()), [
    [10_000, -32008],
    [10_001, -32008],
    [20_000 + MAX_MCP_CALLS, -32008],
  ])
})

test('a cancelled call counts until its tool returns, and a tool does not start a call that is already cancelled', async (t) => {
  const { transport, give, said } = await between(t)
  await give(...Array.from({ length: MAX_MCP_CALLS }, (_one, id) => call(id, 'write_file')))
  const work = Promise.withResolvers<void>()
  const works = transport.working(3, async () => work.promise)
  await give(cancel(3), call(10_000, 'write_file'))
  assert.deepEqual(codes(said()), [[10_000, -32008]])
  work.resolve()
  await works
  await give(call(10_001, 'write_file'), cancel(10_001))
  assert.deepEqual(said(), [])
  await assert.rejects(
    transport.working(10_001, async () => assert.fail('it was done')),
    { code: 'bad_request' },
  )
})

test('a client that does not read receives no further progress messages', async (t) => {
  const output = new Writable({ write: () => undefined })
  const { transport } = await between(t, output)
  const params = { progressToken: 'x'.repeat(100_000), progress: 1 }
  for (let count = 0; count < 100; count++) await transport.send({ jsonrpc: '2.0', method: 'notifications/progress', params })
  assert.ok(output.writableLength < MAX_MCP_BACKLOG + 2 * 100_000)
})

test('many small requests are processed only as fast as the client reads their large answers', async (t) => {
  const output = new Writable({ write: () => undefined })
  const { transport, input, looked } = await between(t, output)
  const text = 'x'.repeat(100_000)
  Object.assign(transport, {
    onmessage: (message: { id: number }) =>
      void Promise.resolve().then(async () => transport.send({ jsonrpc: '2.0', id: message.id, result: { text } })),
  })
  for (let id = 0; id < 2_000; id++) input.write(`${JSON.stringify(request(id, 'tools/list'))}\n`)
  for (let turn = 0; turn < 100; turn++) await looked()
  assert.ok(output.writableLength < 10 * MAX_MCP_BACKLOG)
})

test('the transport stops reading from a client that does not read, and makes no answers for it', async (t) => {
  const taken: (() => void)[] = []
  let reads = false
  const output = new Writable({
    write: (_chunk, _encoding, done) => {
      if (reads) done()
      else taken.push(done)
    },
  })
  const { transport, give, came, looked } = await between(t, output)
  await give(request(1), request(2), request(3))
  await transport.send({ jsonrpc: '2.0', id: 1, result: { text: 'x'.repeat(MAX_MCP_BACKLOG) } })
  let made = 0
  const answers = [2, 3].map(async (id) => {
    await transport.answering(id, new AbortController().signal)
    made += 1
  })
  await give(request(4))
  await give(request(5))
  await looked()
  assert.equal(made, 0)
  assert.ok(came.length <= 4, 'a line that was on its way, and no other')
  reads = true
  for (const done of taken) done()
  await Promise.all(answers)
  await looked()
  assert.equal(made, 2)
  assert.equal(came.length, 5)
})

test('property: for any bytes, each line is delivered or answered, and the transport continues', async () => {
  const valid = JSON.stringify(call(1, 'exec_status'))
  const line = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 60 }).map((text) => Buffer.from(text.replaceAll('\n', ' '))),
    fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes.map((byte) => (byte === 0x0a ? 0x20 : byte)))),
    fc.json().map((text) => Buffer.from(text.replaceAll('\n', ' '))),
    // A valid message with one replaced character.
    fc
      .tuple(fc.nat(valid.length - 1), fc.constantFrom(...'{}[]":,0 x'))
      .map(([at, other]) => Buffer.from(valid.slice(0, at) + other + valid.slice(at + 1))),
  )
  await fc.assert(
    fc.asyncProperty(fc.array(line, { maxLength: 10 }), async (lines) => {
      const { transport, input, came, said, looked, give } = await between()
      for (const bytes of lines) input.write(Buffer.concat([bytes, Buffer.from('\n')]))
      await looked()
      const blank = lines.filter((bytes) => bytes.toString().trim() === '').length
      assert.equal(came.length + said().length, lines.length - blank)
      await give(request('the last'))
      assert.deepEqual(came.at(-1), request('the last'))
      await transport.close()
    }),
    { numRuns: 300 },
  )
})

const initialized = (protocolVersion: string): JSONRPCMessage => ({ jsonrpc: '2.0', id: 0, result: { protocolVersion } })
const pong = (id: number): JSONRPCMessage => ({ jsonrpc: '2.0', id, result: {} })

test('a batch gets one array as its answer if the agreed version allows batches, and an error otherwise', async (t) => {
  for (const [version, takes] of [
    ['2025-03-26', true],
    ['2024-11-05', false],
    ['2025-06-18', false],
  ] as const) {
    const { transport, give, said, came } = await between(t)
    await transport.send(initialized(version))
    said()
    await give(JSON.stringify([request(1), { jsonrpc: '2.0', method: 'notifications/x' }, request(2), request(3)]))
    if (!takes) {
      assert.deepEqual(codes(said()), [[null, -32600]], version)
      continue
    }
    assert.equal(came.length, 4)
    await transport.send(pong(2))
    await give({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 3 } })
    assert.deepEqual(said(), [])
    await transport.send(pong(1))
    assert.deepEqual(said(), [[pong(2), pong(1)]])
    // Later single requests get single answers. Batches that repeat an ID, are empty or are too long get an error.
    await give(request(4), JSON.stringify([request(5), request(5)]), '[]', JSON.stringify(Array.from({ length: 101 }, () => 1)))
    assert.deepEqual(
      codes(said()),
      Array.from({ length: 3 }, () => [null, -32600]),
    )
    await transport.send(pong(4))
    assert.deepEqual(said(), [pong(4)])
  }
})

test('large answers to a batch arrive in several arrays, so the transport holds at most one large answer', async (t) => {
  const { transport, give, said } = await between(t)
  await transport.send(initialized('2025-03-26'))
  said()
  await give(JSON.stringify([request(1), request(2)]))
  await transport.send({ jsonrpc: '2.0', id: 1, result: { text: 'x'.repeat(MAX_MCP_BACKLOG) } })
  assert.equal((said()[0] as unknown as unknown[]).length, 1)
  await transport.send(pong(2))
  assert.deepEqual(said(), [[pong(2)]])
})

test("the refusal of an oversized message has the message's ID, wherever the ID is in the message", async (t) => {
  const { give, said } = await between(t)
  const filler = 'x'.repeat(MAX_MCP_MESSAGE)
  await give(
    `{"jsonrpc":"2.0","id":"first","method":"tools/call","params":{"id":9,"text":"${filler}"}}`,
    `{"jsonrpc":"2.0","method":"tools/call","params":{"text":"${filler}"},"id":7}`,
    `{"jsonrpc":"2.0","method":"x","params":"${filler}"}`,
  )
  assert.deepEqual(codes(said()), [
    ['first', -32600],
    [7, -32600],
    [null, -32600],
  ])
})

test('answers contain no raw Unicode line separators', async (t) => {
  const output = new PassThrough()
  const { transport, give } = await between(t, output)
  const text = 'a\u0085b\u2028c\u2029d'
  await give(`{"jsonrpc":"2.0","id":${JSON.stringify(text)},"method":5}`)
  await transport.send({ jsonrpc: '2.0', id: 1, result: { [text]: [text] } })
  const written = String(output.read())
  assert.doesNotMatch(written, /[\u0085\u2028\u2029]/)
  assert.deepEqual((JSON.parse(written.split('\n')[1]!) as { result: object }).result, { [text]: [text] })
})

test('an open subscription request does not keep the transport from settling', async (t) => {
  const { transport, give } = await between(t)
  await give(request(1, 'subscriptions/listen'), request(2))
  const settled = transport.settled()
  await transport.send({ jsonrpc: '2.0', id: 2, result: {} })
  await settled
})

test('a cancelled call frees its place among the answers in progress', async (t) => {
  const { transport, give } = await between(t)
  await give(...Array.from({ length: 5 }, (_one, id) => request(id)))
  const cancelling = new AbortController()
  for (let id = 0; id < 4; id++) await transport.answering(id, cancelling.signal)
  const last = transport.answering(4, new AbortController().signal)
  cancelling.abort()
  await last
})
