import assert from 'node:assert/strict'
import { getEventListeners, once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { Readable } from 'node:stream'
import { test, type TestContext } from 'node:test'

import { httpCall, type HttpCall } from '../../src/clients/http1.ts'

const GET: HttpCall = { method: 'GET', path: '/x', headers: { host: 'localhost' } }

/** A server that sends raw bytes. Returns its address. */
const bare = async (t: TestContext, serve: (socket: Socket) => void): Promise<{ host: string; port: number }> => {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    serve(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port }
}

/** The answer to GET /x of a server that sends this text in pieces of this size, and closes the connection. */
const answer = async (t: TestContext, text: string, piece = text.length): Promise<{ status: number; body: string }> => {
  const to = await bare(t, (socket) => {
    socket.setNoDelay()
    socket.once('data', () => {
      const next = (at: number): void => {
        if (at >= text.length) socket.end()
        else socket.write(text.slice(at, at + piece), () => setImmediate(next, at + piece))
      }
      next(0)
    })
  })
  const { status, body } = await httpCall(to, GET)
  const parts: Uint8Array[] = []
  for await (const part of body) parts.push(part)
  return { status, body: Buffer.concat(parts).toString() }
}

const PLAIN = 'HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello'
const CHUNKED = 'HTTP/1.1 201 Created\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nx-end: 1\r\n\r\n'

test('a body ends by its length, its last chunk or the end of the connection, however the bytes are split', async (t) => {
  for (const piece of [1, 2, 3, 7, 1000]) {
    assert.deepEqual(await answer(t, PLAIN, piece), { status: 200, body: 'hello' })
    assert.deepEqual(await answer(t, CHUNKED, piece), { status: 201, body: 'hello world' })
    assert.deepEqual(await answer(t, 'HTTP/1.0 404 no\r\n\r\nnone', piece), { status: 404, body: 'none' })
    assert.deepEqual(await answer(t, `HTTP/1.1 100 Continue\r\n\r\n${PLAIN}`, piece), { status: 200, body: 'hello' })
    assert.deepEqual(await answer(t, 'HTTP/1.1 204 No Content\r\n\r\n', piece), { status: 204, body: '' })
  }
})

test('an answer that is cut short gives ECONNRESET', async (t) => {
  for (const text of [PLAIN, CHUNKED])
    for (let length = 0; length < text.length; length += 1)
      await assert.rejects(answer(t, text.slice(0, length)), { code: 'ECONNRESET' }, JSON.stringify(text.slice(0, length)))
})

test('a status line of 16 KiB is read', async (t) => {
  // The rest of the line makes up 16,384 bytes.
  const head = `HTTP/1.1 200 ${'x'.repeat(16 * 1024 - 15)}\r\n`
  assert.equal(head.length, 16 * 1024)
  assert.equal((await answer(t, `${head}\r\nbody`)).body, 'body')
})

test('an invalid HTTP answer, or a line above 16 KiB, gives EPROTO', async (t) => {
  for (const text of [
    'SSH-2.0-OpenSSH\r\n\r\n',
    'HTTP/2 200\r\n\r\n',
    'HTTP/1.1 099 x\r\n\r\n',
    'HTTP/1.1 101 Switching Protocols\r\n\r\n',
    'HTTP/1.1 200 OK\n\n',
    'HTTP/1.1 200 OK\r\nno header\r\n\r\n',
    'HTTP/1.1 200 OK\r\nspace : x\r\n\r\n',
    'HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n',
    'HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n',
    'HTTP/1.1 200 OK\r\ncontent-length: 0x5\r\n\r\nhello',
    'HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello',
    'HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
    'HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
    'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n\r\n',
    'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n123456789\r\n',
    'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n',
    `HTTP/1.1 200 ${'x'.repeat(16 * 1024 - 14)}\r\n\r\n`,
    `HTTP/1.1 200 OK\r\n${'a: b\r\n'.repeat(5000)}\r\n`,
  ])
    await assert.rejects(answer(t, text), { code: 'EPROTO' }, text.slice(0, 80))
})

test('a header or path that could start another request is refused before anything is sent', async (t) => {
  const to = await bare(t, () => assert.fail('nothing may be sent'))
  for (const bad of [
    { ...GET, headers: { authorization: 'Bearer a\r\nx: y' } },
    { ...GET, headers: { authorization: 'Bearer \0' } },
    { ...GET, path: '/x y' },
    { ...GET, path: '/x\r\n' },
  ])
    await assert.rejects(httpCall(to, bad), { code: 'bad_request' })
})

test("Node's HTTP server reads requests with and without a body, and a streamed body in chunks", async (t) => {
  const server = createHttpServer((request, response) => {
    const parts: Buffer[] = []
    request.on('data', (part: Buffer) => parts.push(part))
    request.on('end', () =>
      response.end(`${request.method} ${request.url} ${request.headers.connection} ${Buffer.concat(parts).toString()}`),
    )
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const to = { host: '127.0.0.1', port: (server.address() as AddressInfo).port }
  const text = async (call: HttpCall): Promise<string> => {
    let all = ''
    for await (const part of (await httpCall(to, call)).body) all += Buffer.from(part).toString()
    return all
  }
  assert.equal(await text(GET), 'GET /x close ')
  assert.equal(await text({ ...GET, method: 'POST', body: 'grüß' }), 'POST /x close grüß')
  const many = Array.from({ length: 500 }, (_, i) => `${i}ü${'x'.repeat(2_000)}\n`)
  assert.equal(await text({ ...GET, method: 'POST', stream: Readable.from(['', ...many]) }), `POST /x close ${many.join('')}`)
  const failing = Readable.from(
    (async function* () {
      yield 'x'
      throw new Error('the disk is gone')
    })(),
  )
  await assert.rejects(text({ ...GET, method: 'POST', stream: failing }), /the disk is gone/)
})

test('a slow reader slows the server down, and a reader that stops closes the connection', async (t) => {
  let sent = 0
  const gone = Promise.withResolvers<void>()
  const blocked = Promise.withResolvers<void>()
  const to = await bare(t, (socket) => {
    socket.on('close', () => gone.resolve())
    socket.write('HTTP/1.1 200 OK\r\n\r\n')
    const chunk = Buffer.alloc(64 * 1024)
    const more = (): void => {
      // A reader without backpressure would let this loop run on.
      for (;;) {
        sent += chunk.length
        if (sent > 64 * 1024 * 1024 || !socket.write(chunk)) break
      }
      blocked.resolve()
    }
    socket.on('drain', more)
    more()
  })
  const { body } = await httpCall(to, GET)
  for await (const part of body) {
    assert.ok(part.length > 0)
    await blocked.promise
    assert.ok(sent < 64 * 1024 * 1024)
    break
  }
  await gone.promise
})

test('an early answer arrives while the body is still being sent', async (t) => {
  const to = await bare(t, (socket) => socket.once('data', () => socket.write('HTTP/1.1 413 too much\r\ncontent-length: 2\r\n\r\nno')))
  const endless = new Readable({ read: () => void endless.push('x'.repeat(1000)) })
  const { status, body } = await httpCall(to, { ...GET, method: 'POST', stream: endless })
  assert.equal(status, 413)
  for await (const part of body) assert.equal(Buffer.from(part).toString(), 'no')
  endless.destroy()
})

test('the headers of interim answers are passed on in order, before the answer', async (t) => {
  const interim = ['one', 'two'].map((text) => `HTTP/1.1 103 Early Hints\r\nx-state: ${text}\r\n\r\n`).join('')
  const to = await bare(t, (socket) => socket.once('data', () => socket.end(`${interim}${PLAIN}`)))
  const heard: (string | undefined)[] = []
  const { status } = await httpCall(to, { ...GET, onInterim: (headers) => heard.push(headers.get('x-state')) })
  assert.deepEqual([status, heard], [200, ['one', 'two']])
})

test('a signal ends the call before its answer and during the answer', async (t) => {
  const quiet = await bare(t, () => undefined)
  const first = new AbortController()
  const waiting = httpCall(quiet, { ...GET, signal: first.signal })
  first.abort()
  await assert.rejects(waiting, { name: 'AbortError' })
  const half = await bare(t, (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf'))
  const second = new AbortController()
  const { body } = await httpCall(half, { ...GET, signal: second.signal })
  await assert.rejects(
    async () => {
      for await (const _ of body) second.abort()
    },
    { name: 'AbortError' },
  )
})

test('a finished or failed call removes its listener from the signal, so that listeners do not accumulate', async (t) => {
  const { signal } = new AbortController()
  await assert.rejects(httpCall({ path: '/nonexistent/socket' }, { ...GET, signal }), { code: 'ENOENT' })
  const to = await bare(t, (socket) => socket.once('data', () => socket.end(PLAIN)))
  const { body } = await httpCall(to, { ...GET, signal })
  for await (const _ of body);
  for (let turn = 0; turn < 100; turn++) await new Promise((resolve) => setImmediate(resolve))
  assert.equal(getEventListeners(signal, 'abort').length, 0)
})
