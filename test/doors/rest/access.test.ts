import assert from 'node:assert/strict'
import { test } from 'node:test'

import { startDoor, TOKEN } from '../../support/rest-server.ts'

test('every route except /health requires the token', async (t) => {
  const door = await startDoor(t)
  assert.equal((await door.call('GET', '/health', { token: null })).status, 200)
  const { json } = await door.call('GET', '/routes')
  for (const { method, path } of json.routes as { method: string; path: string }[]) {
    if (path === '/health') continue
    const { status, json, headers } = await door.call(method, path, { token: null, ...(method === 'POST' ? { body: {} } : {}) })
    assert.equal(status, 401, `${method} ${path}`)
    assert.equal(json.error, 'unauthorized')
    assert.equal(headers['www-authenticate'], 'Bearer')
  }
  assert.equal((await door.call('GET', '/nowhere', { token: null })).status, 401)
})

test('the metrics token opens /metrics and no other route', async (t) => {
  const metricsToken = 'e'.repeat(64)
  const [with_, without] = [await startDoor(t, {}, { metricsToken }), await startDoor(t)]
  for (const viaSocket of [true, false]) {
    const headers = viaSocket ? { host: 'localhost' } : {}
    const [own, api] = await Promise.all(
      [metricsToken, TOKEN].map(async (token) => with_.call('GET', '/metrics', { token, viaSocket, headers })),
    )
    assert.deepEqual([own?.status, api?.status], [200, 200])
    assert.equal(own?.headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8')
  }
  const { json } = await with_.call('GET', '/routes')
  for (const { method, path } of json.routes as { method: string; path: string }[]) {
    if (path === '/health' || path === '/metrics') continue
    const { status } = await with_.call(method, path, { token: metricsToken, ...(method === 'POST' ? { body: {} } : {}) })
    assert.equal(status, 401, `${method} ${path}`)
  }
  // The metrics token of an earlier configuration does not count.
  assert.equal((await without.call('GET', '/metrics', { token: metricsToken })).status, 401)
})

test('a refused request gets an answer with connection: close', async (t) => {
  const door = await startDoor(t)
  const { status, headers } = await door.call('POST', '/exec/run', { token: null, body: { argv: ['x'.repeat(10_000)] } })
  assert.equal(status, 401)
  assert.equal(headers.connection, 'close')
})

test('TCP requests with a foreign Host (DNS rebinding) are refused', async (t) => {
  const door = await startDoor(t)
  const own = [`127.0.0.1:${door.port}`, `localhost:${door.port}`, `LOCALHOST:${door.port}`, `[::1]:${door.port}`]
  for (const host of own) assert.equal((await door.call('GET', '/agent', { headers: { host } })).status, 200, host)
  const foreign = [
    'localhost',
    '127.0.0.1',
    `evil.example:${door.port}`,
    `127.0.0.1.evil.example:${door.port}`,
    '127.0.0.1:1',
    `127.0.0.2:${door.port}`,
  ]
  for (const host of foreign) {
    const { status, json } = await door.call('GET', '/agent', { headers: { host } })
    assert.equal(status, 403, host)
    assert.equal(json.error, 'forbidden_host')
    assert.equal((await door.call('GET', '/health', { headers: { host }, token: null })).status, 403, host)
  }
})

test('the unix socket accepts only localhost as Host', async (t) => {
  const door = await startDoor(t)
  assert.equal((await door.call('GET', '/agent', { viaSocket: true, headers: { host: 'localhost' } })).status, 200)
  for (const host of ['evil.example', `127.0.0.1:${door.port}`]) {
    const { status, json } = await door.call('GET', '/agent', { viaSocket: true, headers: { host } })
    assert.equal(status, 403, host)
    assert.deepEqual(json.data, { next: 'send Host: localhost' })
  }
})

test('an Origin other than the listener itself is refused', async (t) => {
  const door = await startDoor(t)
  assert.equal((await door.call('GET', '/agent', { headers: { origin: `http://127.0.0.1:${door.port}` } })).status, 200)
  for (const origin of [
    'null',
    'http://evil.example',
    `https://127.0.0.1:${door.port}`,
    'http://127.0.0.1:1',
    `http://evil.example:${door.port}`,
  ]) {
    const { status, headers, json } = await door.call('GET', '/agent', { headers: { origin } })
    assert.equal(status, 403, origin)
    assert.match(
      String((json.data as { next: string }).next),
      /^programs: do not send an Origin header; only the page of x0x ui may send requests$/,
    )
    assert.equal(headers['access-control-allow-origin'], undefined)
  }
  const viaSocket = await door.call('GET', '/agent', { viaSocket: true, headers: { origin: 'http://localhost' } })
  assert.equal(viaSocket.status, 403)
})

test('every answer forbids caching and content sniffing', async (t) => {
  const door = await startDoor(t)
  const { headers } = await door.call('GET', '/agent')
  assert.equal(headers['cache-control'], 'no-store')
  assert.equal(headers['x-content-type-options'], 'nosniff')
})
