import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'

import { streams } from '../../src/sdk/byte-transport.ts'
import { connect } from '../../src/sdk/client.ts'
import { RexdDisconnected, RexdError, RexdProtocolError } from '../../src/sdk/errors.ts'
import { OUTPUT_LIMIT } from '../../src/sdk/output.ts'
import { INPUT_CHUNK, INPUT_PROBE } from '../../src/sdk/remote-process.ts'
import { MAX_INCOMING_MESSAGE } from '../../src/sdk/transport.ts'
import type { RexdEvent } from '../../src/protocol/rexd/results.ts'
import { EXIT, OF_1, OPENED, output, scripted, startNext } from './scripted-server.ts'

const protocolError = (text: RegExp) => (error: unknown) => error instanceof RexdProtocolError && text.test(error.message)
const endedBy = (text: RegExp) => (error: unknown) =>
  error instanceof RexdDisconnected && error.cause instanceof RexdProtocolError && text.test(error.message)

const ENDING: readonly (readonly [string, object | string, RegExp])[] = [
  ['garbage', 'Last login: Tue', /does not speak JSON-RPC; it sent "Last login: Tue"/],
  ["garbage with a terminal's controls", '\u001b]0;x\u0007{', /it sent "\]0;x \{"/],
  ['an incomplete message', '{"jsonrpc":"2.0","id":1', /does not speak JSON-RPC/],
  ['a list', '[]', /a message: not an object/],
  ['a number', '7', /not an object/],
  ['another version of JSON-RPC', { id: 1, result: {} }, /not of JSON-RPC 2\.0/],
  ['an answer to an unknown request', { jsonrpc: '2.0', id: 4711, result: {} }, /an answer to 4711, which was not sent/],
  ['a second answer', { jsonrpc: '2.0', id: 1, result: {} }, /an answer to 1, which was not sent/],
  ['an ID of another type', { jsonrpc: '2.0', id: '1', result: {} }, /neither an answer nor an event/],
  ['an answer without result and error', { jsonrpc: '2.0', id: 1 }, /neither an answer nor an event/],
  [
    'an answer with result and error',
    { jsonrpc: '2.0', id: 1, result: {}, error: { code: 1, message: 'x' } },
    /neither an answer nor an event/,
  ],
  ['a request', { jsonrpc: '2.0', id: 1, method: 'do.this', params: {} }, /neither an answer nor an event/],
  ['an invalid error', { jsonrpc: '2.0', id: 2, error: 'no' }, /an error: not an object/],
  [
    'an error without an ID',
    { jsonrpc: '2.0', id: null, error: { code: -32700, message: 'not valid JSON' } },
    /could not read a message: not valid JSON/,
  ],
  [
    'an event without its fields',
    { jsonrpc: '2.0', method: 'exec.stdout', params: { ...OF_1, seq: 1 } },
    /exec\.stdout: data is not a string/,
  ],
  [
    'an exit without its fields',
    { jsonrpc: '2.0', method: 'exec.exit', params: { ...OF_1, ...EXIT, bytes_stdout: null } },
    /bytes_stdout is not a number/,
  ],
]

for (const [name, message, text] of ENDING)
  test(`a server that sends ${name} loses the connection, and all calls fail`, async (t) => {
    const { server, client, session } = await scripted(t)
    const { line } = server
    const info = session.info()
    await line.next('session.info')
    line.say(message)
    await assert.rejects(info, endedBy(text))
    assert.deepEqual([client.connected, line.closed], [false, true])
    line.say({ jsonrpc: '2.0', id: 3, result: {} })
  })

test('events of unknown processes and unknown events do not break the connection', async (t) => {
  const heard: RexdEvent[] = []
  const { server, client, session } = await scripted(t, { onEvent: (event) => heard.push(event) })
  const { line } = server
  line.event('exec.stdout', { session_id: 's_9', process_id: 'p_9', seq: 5, data: 'x', encoding: 'utf8' })
  line.event('exec.exit', { session_id: 's_9', process_id: 'p_9', ...EXIT })
  line.event('something.new', { of: 'another kind' })
  const info = session.info()
  line.answer(await line.next('session.info'), { session_id: 's_1', processes: [], limits: { max_output_bytes: 1 } })
  assert.deepEqual((await info).limits, { max_output_bytes: 1 })
  assert.deepEqual(
    heard.map(({ method }) => method),
    ['exec.stdout', 'exec.exit'],
  )
  assert.equal(client.connected, true)
})

test('missing output fails only its process, which is killed, and other processes continue', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const starting = session.exec(['one'])
  await startNext(line)
  const process = await starting
  const others = session.exec(['two'])
  await startNext(line, 'p_2')
  const other = await others
  line.event('exec.stdout', output(1, 'first'))
  line.event('exec.stdout', output(3, 'third'))
  const hole = protocolError(/stdout of p_1 continues with 3 instead of 2/)
  await assert.rejects(process.exited, hole)
  const seen: string[] = []
  await assert.rejects(async () => {
    for await (const { data } of process) seen.push(Buffer.from(data).toString())
  }, hole)
  assert.deepEqual(seen, ['first'])
  const kill = await line.next('exec.kill')
  assert.deepEqual(kill.params, { ...OF_1, signal: 'TERM' })
  line.answer(kill, { ok: true })
  line.event('exec.exit', { ...OF_1, ...EXIT })
  line.event('exec.exit', { session_id: 's_1', process_id: 'p_2', ...EXIT })
  assert.equal((await other.exited).exitCode, 0)
})

test('a process with fewer received bytes than reported fails, unless the output was truncated', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const missing = session.run(['one'])
  await startNext(line)
  line.event('exec.stdout', output(1, 'abc'))
  line.event('exec.exit', { ...OF_1, ...EXIT, bytes_stdout: 5 })
  await assert.rejects(missing, protocolError(/wrote 5 and 0 bytes, of which 3 and 0 arrived/))
  const cut = session.run(['two'], { maxOutputBytes: 3 })
  await startNext(line)
  line.event('exec.stdout', output(1, 'abc'))
  line.event('exec.exit', { ...OF_1, ...EXIT, bytes_stdout: 5, truncated: true })
  const { truncated, stdoutText, bytesStdout } = await cut
  assert.deepEqual([truncated, stdoutText, bytesStdout], [true, 'abc', 5])
})

test('an unknown encoding ends the connection', async (t) => {
  const { server, session } = await scripted(t)
  const starting = session.exec(['one'])
  await startNext(server.line)
  const process = await starting
  server.line.event('exec.stdout', output(1, 'abc', 'utf16'))
  await assert.rejects(process.exited, endedBy(/an unknown encoding/))
})

test("events directly after the start's answer reach their process, even before the caller handles the answer", async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const starting = session.exec(['one'])
  await startNext(line)
  line.event('exec.stdout', output(1, 'text and '))
  line.event('exec.stdout', output(2, 'AP8=', 'base64'))
  line.event('exec.exit', { ...OF_1, ...EXIT, bytes_stdout: 11 })
  const process = await starting
  assert.equal((await process.exited).bytesStdout, 11)
  assert.deepEqual(await process.stdout.bytes(100), Buffer.concat([Buffer.from('text and '), Buffer.from([0, 255])]))
})

test('a second process with the same ID is refused', async (t) => {
  const { server, session } = await scripted(t)
  const first = session.exec(['one'])
  await startNext(server.line)
  await first
  const second = session.exec(['two'])
  await startNext(server.line)
  await assert.rejects(second, protocolError(/gave p_1 to two processes/))
})

for (const [name, result] of [
  ['null', null],
  ['a string', 'p_1'],
  ['an object without an ID', { started_at: 'now' }],
  ['an object with an invalid ID', { process_id: 7, started_at: 'now' }],
] as const)
  test(`${name} as the answer to exec.start fails only that call`, async (t) => {
    const { server, client, session } = await scripted(t)
    const starting = session.exec(['one'])
    server.line.answer(await server.line.next('exec.start'), result)
    await assert.rejects(starting, RexdProtocolError)
    assert.equal(client.connected, true)
  })

test('a session opening with another protocol or invalid fields is refused', async (t) => {
  const { server, client } = await scripted(t)
  for (const opened of [
    { ...OPENED, protocol: 'rexd/2' },
    { ...OPENED, limits: null },
    { ...OPENED, capabilities: 'all' },
  ]) {
    const opening = client.open({ clientName: 'x' })
    server.line.answer(await server.line.next('session.open'), opened)
    await assert.rejects(opening, RexdProtocolError)
  }
})

test('a write sends the rest that the server did not take, and fails if the server claims too much', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const starting = session.exec(['one'], { stdinOpen: true })
  assert.equal((await startNext(line)).params['stdin_open'], true)
  const process = await starting
  const writing = process.write('0123456789')
  const sent: string[] = []
  for (const taken of [4, 0, 0, 6]) {
    const asked = await line.next('exec.input')
    sent.push(Buffer.from(String(asked.params['data']), 'base64').toString())
    line.answer(asked, { accepted_bytes: taken })
  }
  await writing
  assert.deepEqual(sent, ['0123456789', '456789', '456789', '456789'])
  const greedy = process.write('abc')
  line.answer(await line.next('exec.input'), { accepted_bytes: 4 })
  await assert.rejects(greedy, protocolError(/4 bytes taken of 3/))
})

test('while a program does not read, the client tries with small writes', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const starting = session.exec(['one'], { stdinOpen: true })
  await startNext(line)
  const process = await starting
  const content = Buffer.alloc(2 * INPUT_CHUNK, '0123456789')
  const writing = process.write(content)
  const sizes: number[] = []
  const taken: Buffer[] = []
  for (const room of [INPUT_CHUNK, 0, 0, 100, INPUT_CHUNK]) {
    const asked = await line.next('exec.input')
    const data = Buffer.from(String(asked.params['data']), 'base64')
    sizes.push(data.length)
    taken.push(data.subarray(0, room))
    line.answer(asked, { accepted_bytes: Math.min(room, data.length) })
  }
  await writing
  assert.deepEqual(sizes, [INPUT_CHUNK, INPUT_CHUNK, INPUT_PROBE, INPUT_PROBE, INPUT_CHUNK - 100])
  assert.ok(Buffer.concat(taken).equals(content))
})

test('a file without progress, too many bytes and an invalid listing are protocol errors', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const part = { path: 'a', size: 10, mtime: 'm', encoding: 'utf8' }
  const endless = session.files.readAll('a')
  line.answer(await line.next('fs.read'), { ...part, content: '', truncated: true })
  await assert.rejects(endless, protocolError(/no bytes before the end of the file/))
  const more = session.files.readAll('a', { length: 2 })
  line.answer(await line.next('fs.read'), { ...part, content: 'abc', truncated: true })
  await assert.rejects(more, protocolError(/3 bytes, where 2 were requested/))
  const wrong = session.files.list('a')
  line.answer(await line.next('fs.list'), { path: 'a', entries: {}, truncated: false })
  await assert.rejects(wrong, protocolError(/fs\.list: entries is not a list/))
})

test("an error has the server's name, or the default name of its code", async (t) => {
  const { server, client } = await scripted(t)
  for (const [error, name] of [
    [{ code: -32_010, message: 'x', data: { code: 'something_new', path: '/a' } }, 'something_new'],
    [{ code: -32_002, message: 'x' }, 'forbidden_path'],
    [{ code: -32_002, message: 'x', data: ['not', 'an', 'object'] }, 'forbidden_path'],
    [{ code: 5, message: 'x' }, 'rexd_error'],
  ] as const) {
    const asked = client.call('session.info', { session_id: 's_1' })
    server.line.refuse(await server.line.next(), error)
    await assert.rejects(asked, (thrown: unknown) => thrown instanceof RexdError && thrown.name === name && thrown.code === error.code)
  }
})

test('unread output stops reading from the server, except for an answer up to a limit', async (t) => {
  const { server, session } = await scripted(t)
  const { line } = server
  const starting = session.exec(['one'])
  await startNext(line)
  const process = await starting
  const chunk = 'x'.repeat(60_000)
  let seq = 0
  const flood = (until: () => boolean): void => {
    while (!until()) line.event('exec.stdout', output(++seq, chunk))
  }
  flood(() => line.paused)
  assert.ok(seq * chunk.length < 1.2 * 1024 * 1024)
  const info = session.info()
  const asked = await line.next('session.info')
  assert.equal(line.paused, false)
  flood(() => line.paused)
  assert.ok(seq * chunk.length > OUTPUT_LIMIT - 100_000 && seq * chunk.length < OUTPUT_LIMIT + 100_000)
  line.answer(asked, { session_id: 's_1', processes: [], limits: {} })
  await info
  assert.equal(line.paused, true)
  let read = 0
  for await (const data of process.stdout) {
    read += data.length
    if (!line.paused) break
  }
  assert.ok(read > OUTPUT_LIMIT - 1024 * 1024)
  // The reader stopped before the end, so later output is discarded.
  flood(() => seq > 1000)
  assert.equal(line.paused, false)
  line.event('exec.exit', { ...OF_1, ...EXIT, bytes_stdout: seq * chunk.length })
  assert.equal((await process.exited).exitCode, 0)
})

test('many tiny pieces of output also reach a limit', async (t) => {
  const { server, session } = await scripted(t)
  const starting = session.exec(['one'])
  await startNext(server.line)
  await starting
  let seq = 0
  while (!server.line.paused) server.line.event('exec.stdout', output(++seq, 'x'))
  assert.ok(seq < 5_000, String(seq))
})

for (const [name, bytes] of [
  ['an endless line', Buffer.alloc(MAX_INCOMING_MESSAGE + 1, 'x')],
  ['invalid UTF-8', Buffer.from([0x7b, 0xff, 0xfe, 0x7d, 0x0a])],
] as const)
  test(`${name} ends the connection`, async () => {
    const [readable, writable] = [new PassThrough(), new PassThrough()]
    const client = await connect({ transport: streams(readable, writable) })
    const asked = client.call('session.info', { session_id: 's' })
    readable.write(bytes)
    await assert.rejects(asked, endedBy(/a message (has more than|is not valid UTF-8)/))
    readable.end()
    await client.close()
  })
