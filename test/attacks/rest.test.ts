import assert from 'node:assert/strict'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'

import { startDoor, TOKEN, type TestDoor } from '../support/rest-server.ts'
import { REST_HEADERS_MS } from '../../src/doors/http.ts'

const dial = (door: TestDoor, where: 'tcp' | 'unix'): Socket =>
  where === 'tcp' ? connect(door.port, '127.0.0.1') : connect(door.socketPath)

/** Sends bytes unchanged and reads until the server closes the connection or the answer is complete. */
const raw = async (door: TestDoor, head: string, where: 'tcp' | 'unix' = 'tcp'): Promise<string> => {
  const socket = dial(door, where)
  const { promise, resolve } = Promise.withResolvers<string>()
  let text = ''
  const done = (): void => {
    socket.destroy()
    resolve(text)
  }
  socket.setEncoding('utf8').on('data', (part: string) => {
    text += part
    const length = /content-length: (\d+)/i.exec(text)?.[1]
    const end = text.indexOf('\r\n\r\n')
    if (end !== -1 && length !== undefined && text.length >= end + 4 + Number(length)) done()
  })
  socket.on('close', done).on('error', done)
  socket.write(head)
  return promise
}

const status = (answer: string): number => Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0)
const leaks = /agent_id|machine_id|"addresses"/

test('no spelling of a path or method bypasses the token', async (t) => {
  const door = await startDoor(t)
  const own = `Host: 127.0.0.1:${door.port}\r\n`
  const targets = [
    '/agent',
    '/%61gent',
    '//agent',
    '/agent/',
    '/AGENT',
    '/health/../agent',
    '/health%2f..%2fagent',
    '/health;/agent',
    '/agent%00',
  ]
  const methods = ['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE', 'PATCH', 'PROPFIND']
  for (const method of methods)
    for (const target of targets) {
      const answer = await raw(door, `${method} ${target} HTTP/1.1\r\n${own}Connection: close\r\n\r\n`)
      assert.ok(status(answer) >= 400 || status(answer) === 0, `${method} ${target}: ${answer.slice(0, 40)}`)
      assert.doesNotMatch(answer, leaks)
    }
  const overridden = `POST /health HTTP/1.1\r\n${own}X-HTTP-Method-Override: GET\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`
  assert.equal(status(await raw(door, overridden)), 401)
})

test('an absolute URL, a wrong or second Host header and a missing one are refused on both listeners', async (t) => {
  const door = await startDoor(t)
  const token = `Authorization: Bearer ${TOKEN}\r\nConnection: close\r\n`
  for (const where of ['tcp', 'unix'] as const) {
    const name = where === 'tcp' ? `127.0.0.1:${door.port}` : 'localhost'
    const own = `Host: ${name}\r\n`
    assert.equal(status(await raw(door, `GET /agent HTTP/1.1\r\n${own}${token}\r\n`, where)), 200)
    const bad = [
      `GET http://evil.example/agent HTTP/1.1\r\n${own}`,
      `GET http://${name}/agent HTTP/1.1\r\n${own}`,
      `OPTIONS * HTTP/1.1\r\n${own}`,
      `GET /agent HTTP/1.1\r\n${own}Host: evil.example\r\n`,
      `GET /agent HTTP/1.1\r\nHost: evil.example\r\n${own}`,
      `GET /agent HTTP/1.1\r\nHost: ${name}, evil.example\r\n`,
      'GET /agent HTTP/1.1\r\nHost:\r\n',
      'GET /agent HTTP/1.0\r\n',
      'GET /%zz HTTP/1.1\r\nHost: evil.example\r\n',
    ]
    for (const head of bad) {
      const answer = await raw(door, `${head}${token}\r\n`, where)
      assert.equal(status(answer), 403, `${where}: ${head}`)
      assert.doesNotMatch(answer, leaks)
    }
    assert.equal(status(await raw(door, `GET /agent HTTP/1.1\r\n${token}\r\n`, where)), 400)
  }
})

test('a request with two tokens, two lengths, or a length and chunks is refused', async (t) => {
  const door = await startDoor(t)
  const own = `Host: 127.0.0.1:${door.port}\r\nConnection: close\r\n`
  const token = `Authorization: Bearer ${TOKEN}\r\n`
  assert.equal(status(await raw(door, `GET /agent HTTP/1.1\r\n${own}Authorization: Bearer x\r\n${token}\r\n`)), 401)
  const post = `POST /exec/cancel HTTP/1.1\r\n${own}${token}Content-Type: application/json\r\n`
  assert.equal(status(await raw(door, `${post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} `)), 400)
  assert.equal(status(await raw(door, `${post}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`)), 400)
})

test('a path that cannot be decoded gets a normal bad_request error', async (t) => {
  const door = await startDoor(t)
  const { status, json } = await door.call('GET', '/%zz')
  assert.equal(status, 400)
  assert.deepEqual([json.ok, json.error], [false, 'bad_request'])
})

test('a request head that never ends times out, and one that is too long is refused at once', { timeout: 60_000 }, async (t) => {
  const door = await startDoor(t)
  const long = `GET /agent HTTP/1.1\r\nHost: 127.0.0.1:${door.port}\r\nX: ${'a'.repeat(32_000)}\r\n\r\n`
  assert.equal(status(await raw(door, long)), 431)
  const began = performance.now()
  // One connection sends nothing, and the other sends one letter a second.
  const slow = dial(door, 'tcp')
  slow.write('GET /health HTTP/1.1\r\n')
  const drip = setInterval(() => slow.write('X'), 1_000)
  const silent = dial(door, 'unix')
  const closed = [slow, silent].map(
    (socket) =>
      new Promise<void>((resolve) =>
        socket
          .on('error', () => undefined)
          .on('data', () => undefined)
          .on('close', () => resolve()),
      ),
  )
  await Promise.all(closed)
  clearInterval(drip)
  assert.ok(performance.now() - began >= REST_HEADERS_MS - 1_000)
})

test('JSON keys such as __proto__ and constructor are refused as unknown keys', async (t) => {
  const door = await startDoor(t)
  for (const body of ['{"__proto__":{"argv":["x"]}}', '{"constructor":{"prototype":{}},"argv":["x"],"agent":"bob"}']) {
    const { status, json } = await door.call('POST', '/exec/run', { body, headers: { 'content-type': 'application/json' } })
    assert.equal(status, 400)
    assert.equal(json.error, 'bad_request')
  }
  assert.equal(({} as { argv?: unknown }).argv, undefined)
})
