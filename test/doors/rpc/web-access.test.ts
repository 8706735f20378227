import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { connect as connectTcp } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'

import { verifyJournal } from '../../../src/journal/verify.ts'
import { linesOf } from '../../support/journal.ts'
import { ask, connect, refusedSocket, type Asking } from '../../support/rexd-callers.ts'
import { sharedRexd, startRexd, type RexdServer } from '../../support/rexd-server.ts'
import { until } from '../../support/processes.ts'
import { REFUSAL_LINES } from '../../../src/journal/refusals.ts'

// Access control over HTTP and WebSocket, tested with the real program.

const TIMEOUT = { timeout: 30_000 }
const shared = sharedRexd()
const HELLO = { jsonrpc: '2.0', id: 1, method: 'session.info', params: { session_id: 'none' } }
const hello = async (server: RexdServer, asking: Asking = {}) => ask(server, { body: HELLO, ...asking })

/** Sends these lines unchanged, which no HTTP client would do. Returns the first line of the answer. */
const raw = async ({ port }: RexdServer, lines: readonly string[]): Promise<string> => {
  const socket = connectTcp(port, '127.0.0.1')
  let text = ''
  socket.on('data', (part: Buffer) => (text += part.toString()))
  socket.on('error', () => undefined)
  socket.write(`${lines.join('\r\n')}\r\n\r\n`)
  await until(() => text.includes('\r\n\r\n') || socket.closed)
  socket.destroy()
  return text.split('\r\n')[0] ?? ''
}

test('without a valid token every request gets the same 401', TIMEOUT, async () => {
  const server = await shared()
  const { token } = server
  assert.equal((await hello(server)).json.error.data.code, 'unknown_session')
  assert.equal((await hello(server, { token: null, headers: { authorization: `bearer ${token}` } })).status, 200)
  const wrong = [
    undefined,
    '',
    token,
    'Bearer',
    `Basic ${token}`,
    `Bearer${token}`,
    `Bearer ${token} x`,
    `Bearer ${token}, Bearer ${token}`,
  ]
  const tokens = ['x', token.slice(1), `${token}0`, token.toUpperCase(), '0'.repeat(64), 'x'.repeat(4096)].map((one) => `Bearer ${one}`)
  const tellings = new Set<string>()
  for (const authorization of [...wrong, ...tokens]) {
    const { status, json, text, headers } = await hello(server, { token: null, headers: { authorization } })
    assert.deepEqual([status, json.error.data.code], [401, 'unauthorized'], authorization)
    assert.equal(headers['www-authenticate'], 'Bearer')
    tellings.add(text)
  }
  assert.equal(tellings.size, 1, 'what is wrong is not told')
  assert.equal((await hello(server, { token: null, path: `/rpc?token=${token}` })).status, 401)
  assert.equal((await hello(server, { token: null, headers: { cookie: `token=${token}` } })).status, 401)
})

test('a WebSocket takes the token in a header, or in a subprotocol for pages that cannot set headers', TIMEOUT, async (t) => {
  const server = await shared()
  const { token } = server
  assert.equal((await connect(t, server)).socket.protocol, '')
  const page = await connect(t, server, { headers: {}, protocols: ['rexd.1', `bearer.${token}`] })
  assert.equal(page.socket.protocol, 'rexd.1', 'the token is not said back')
  const { session_id } = await page.call('session.open', { client_name: 'a page' })
  assert.match(session_id, /^s_/)
  const refused: Parameters<typeof refusedSocket>[1][] = [
    {},
    { protocols: ['rexd.1'] },
    { protocols: ['rexd.1', 'bearer.x'] },
    { protocols: ['rexd.1', `bearer.${token.slice(1)}`] },
    { protocols: ['rexd.1', token] },
    { headers: { authorization: 'Bearer x' } },
    // A valid subprotocol does not replace an invalid header.
    { headers: { authorization: 'Bearer x' }, protocols: ['rexd.1', `bearer.${token}`] },
    { path: `/ws?token=${token}` },
  ]
  for (const options of refused) assert.equal(await refusedSocket(server, options), 401, JSON.stringify(options))
})

test('a foreign Host, as DNS rebinding sends it, and two Host headers are refused', TIMEOUT, async () => {
  const server = await shared()
  const { port, token } = server
  for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, `LOCALHOST:${port}`, `[::1]:${port}`])
    assert.equal((await hello(server, { headers: { host } })).status, 200, host)
  const foreign = ['localhost', '127.0.0.1', `evil.example:${port}`, `127.0.0.1.evil.example:${port}`, '127.0.0.1:1', `127.0.0.2:${port}`]
  const authorization = `Bearer ${token}`
  for (const host of [...foreign, `localhost.:${port}`, `127.0.0.1:${port}, localhost:${port}`, `x@127.0.0.1:${port}`]) {
    const { status, json } = await hello(server, { headers: { host } })
    assert.equal(json.error.data.next, `send Host: 127.0.0.1:${port}, or add the name to server.allowed_hosts`)
    assert.deepEqual([status, json.id, json.error.code, json.error.data.code], [403, null, -32_001, 'forbidden_host'], host)
    assert.equal(await refusedSocket(server, { headers: { host, authorization } }), 403, host)
  }
  const own = `host: 127.0.0.1:${port}`
  const rest = [`authorization: ${authorization}`, 'content-type: application/json', 'content-length: 0']
  for (const head of [
    ['POST /rpc HTTP/1.1', own, 'host: evil.example', ...rest],
    ['POST /rpc HTTP/1.1', 'host: evil.example', own, ...rest],
    [`POST http://evil.example:${port}/rpc HTTP/1.1`, own, ...rest],
    ['POST /rpc HTTP/1.1', 'host:', ...rest],
    ['POST /rpc HTTP/1.1', ...rest],
    ['POST /rpc HTTP/1.0', ...rest],
  ])
    assert.match(await raw(server, head), /^HTTP\/1\.1 40[03] /, head.join(' | '))
})

test('a request of a page from another site is refused by its Origin, including the origin null', TIMEOUT, async () => {
  const server = await shared()
  const { port, token } = server
  assert.equal((await hello(server, { headers: { origin: `http://127.0.0.1:${port}` } })).status, 200)
  const headers = { authorization: `Bearer ${token}` }
  for (const origin of [
    'null',
    '',
    'http://evil.example',
    'https://evil.example',
    `http://evil.example:${port}`,
    `https://127.0.0.1:${port}`,
    'http://127.0.0.1',
    'http://localhost:1',
    `http://127.0.0.1:${port}.evil.example`,
    `http://127.0.0.1:${port}/`,
    'file://',
    'chrome-extension://abcdefghijklmnop',
  ]) {
    const { status, headers: said, json } = await hello(server, { headers: { origin } })
    assert.equal(status, 403, origin)
    assert.match(json.error.data.next, /to allow a page, add its origin to server\.allowed_origins$/)
    assert.equal(said['access-control-allow-origin'], undefined)
    if (origin !== '') assert.equal(await refusedSocket(server, { origin, headers }), 403, origin)
  }
  const preflight = { origin: 'http://evil.example', 'access-control-request-method': 'POST' }
  const { status, headers: said } = await ask(server, { method: 'OPTIONS', token: null, headers: preflight })
  assert.deepEqual([status, said['access-control-allow-origin']], [403, undefined])
})

test('allowed_hosts and allowed_origins admit exactly the listed names, in any letter case', TIMEOUT, async (t) => {
  const names = 'allowed_hosts = ["Build.Example:8443", "build.example"]\nallowed_origins = ["https://Console.Example", "null"]'
  const server = await startRexd(t, { server: names })
  for (const host of ['build.example:8443', 'BUILD.example:8443', 'build.example', `127.0.0.1:${server.port}`])
    assert.equal((await hello(server, { headers: { host } })).status, 200, host)
  for (const host of ['build.example:8444', 'example', 'x.build.example'])
    assert.equal((await hello(server, { headers: { host } })).status, 403)
  for (const origin of ['https://console.example', 'null', 'http://build.example:8443']) {
    assert.equal((await hello(server, { headers: { origin } })).status, 200, origin)
    await connect(t, server, { origin })
  }
  for (const origin of ['http://console.example', 'https://console.example:8443', 'https://evil.example'])
    assert.equal((await hello(server, { headers: { origin } })).status, 403, origin)
})

test('the server has only POST /rpc with JSON and /ws', TIMEOUT, async () => {
  const server = await shared()
  for (const type of ['application/json', 'application/json; charset=utf-8', 'Application/JSON'])
    assert.equal((await hello(server, { headers: { 'content-type': type } })).status, 200, type)
  // Includes the three types that a page may send anywhere without a preflight request (Fetch Standard, CORS).
  for (const type of [
    undefined,
    '',
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data',
    'text/json',
    'application/jsonx',
  ]) {
    const { status, json } = await hello(server, { headers: { 'content-type': type } })
    assert.deepEqual([status, json.error.data.code], [400, 'bad_request'], type)
  }
  for (const method of ['GET', 'PUT', 'DELETE', 'HEAD', 'OPTIONS']) {
    const { status, headers } = await ask(server, { method })
    assert.deepEqual([status, headers.allow], [405, 'POST'], method)
  }
  for (const path of ['/', '/rpc/', '/RPC', '/rpc?x', '//rpc', '/rpc%00', '/ws', '/../rpc', '/health'])
    assert.equal((await hello(server, { path })).status, 404, path)
  const headers = { authorization: `Bearer ${server.token}` }
  for (const path of ['/', '/rpc', '/ws/', '/wss', '/ws?x']) assert.equal(await refusedSocket(server, { path, headers }), 404, path)
  const { headers: said } = await hello(server)
  assert.equal(said['cache-control'], 'no-store')
  assert.equal(said['x-content-type-options'], 'nosniff')
})

/** The number of open descriptors of the process, including those of our connections. */
const descriptors = async ({ pid }: RexdServer): Promise<number> => (await readdir(`/proc/${pid}/fd`)).length

for (const [what, lines] of [
  ['sending a long body', ['POST /rpc HTTP/1.1', 'content-type: application/json', 'content-length: 1000000000']],
  [
    'keeping its socket open',
    [
      'GET /ws HTTP/1.1',
      'connection: upgrade',
      'upgrade: websocket',
      'sec-websocket-version: 13',
      'sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==',
    ],
  ],
] as const)
  test(`a refused client cannot hold its connection by ${what}`, { timeout: 10_000 }, async (t) => {
    const server = await startRexd(t)
    await hello(server)
    const before = await descriptors(server)
    const sockets = Array.from({ length: 10 }, () => connectTcp({ port: server.port, host: '127.0.0.1', allowHalfOpen: true }))
    server.ending.push(async () => sockets.forEach((socket) => socket.destroy()))
    for (const socket of sockets) {
      socket.on('error', () => undefined)
      socket.write(`${[...lines, `host: 127.0.0.1:${server.port}`].join('\r\n')}\r\n\r\n`)
      await once(socket, 'data')
    }
    await until(async () => t.signal.aborted || (await descriptors(server)) <= before)
  })

test('each refusal is recorded without the token, and a flood of refusals is recorded at a limited rate', TIMEOUT, async (t) => {
  const server = await startRexd(t)
  const { token, dir } = server
  assert.equal((await hello(server, { token: null, path: `/rpc?token=${token}` })).status, 401)
  assert.equal((await hello(server, { headers: { origin: 'https://evil.example' } })).status, 403)
  assert.equal((await hello(server, { headers: { host: `${'x'.repeat(5_000)}.example` } })).status, 403)
  await refusedSocket(server)
  const path = join(dir, 'log', 'audit.log')
  const refusals = async () =>
    (await linesOf(path)).flatMap((line) => (typeof line !== 'string' && line.event === 'http_refused' ? [line] : []))
  await until(async () => (await refusals()).length === 4)
  assert.deepEqual(
    (await refusals()).map(({ code, method, path, origin, host }) => [code, method, path, origin, host!.length <= 256]),
    [
      ['unauthorized', 'POST', '/rpc', null, true],
      ['forbidden_host', 'POST', '/rpc', 'https://evil.example', true],
      ['forbidden_host', 'POST', '/rpc', null, true],
      ['unauthorized', 'GET', '/ws', null, true],
    ],
  )
  assert.ok(!(await readFile(path, 'utf8')).includes(token))
  for (let n = 0; n < REFUSAL_LINES.burst + 50; n++) await hello(server, { token: null })
  await until(async () => (await refusals()).length >= REFUSAL_LINES.burst)
  const written = (await refusals()).length
  assert.ok(written < REFUSAL_LINES.burst + 50, `${written}`)
  assert.equal((await verifyJournal([path])).ok, true)
})
