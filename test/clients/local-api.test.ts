import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'

import { LocalApi } from '../../src/clients/daemon.ts'
import { tempDir } from '../support/temp-dir.ts'

test('an answer that is not JSON, or is cut short, gives daemon_unreachable', async (t) => {
  const server = createServer((request, response) => {
    if (request.url === '/html') return response.end('<!DOCTYPE html>')
    response.writeHead(200, { 'content-length': 100 }).write('{')
    return setImmediate(() => response.destroy())
  })
  server.listen(0, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const api = new LocalApi({ instance: { name: null, dataDir: await tempDir(t) }, url, env: {} })
  await assert.rejects(api.json({ method: 'GET', path: '/html' }), { code: 'daemon_unreachable', message: /not JSON/ })
  await assert.rejects(api.json({ method: 'GET', path: '/cut' }), { code: 'daemon_unreachable', message: /broke off/ })
})

test('a route that the daemon lacks has another error message than a missing object', async (t) => {
  const server = createServer((request, response) => {
    const known = request.url === '/routes'
    response.writeHead(known ? 200 : 404, { 'content-type': 'application/json' })
    response.end(
      JSON.stringify(known ? { routes: [{ method: 'GET', path: '/exec/run' }] } : { ok: false, error: 'not_found', message: 'none' }),
    )
  })
  server.listen(0, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const api = new LocalApi({ instance: { name: null, dataDir: await tempDir(t) }, url, env: {} })
  await assert.rejects(api.json({ method: 'GET', path: '/exec/run?id=1' }), { code: 'not_found', message: 'none' })
  const message = 'this daemon has no route GET /trust/evaluate: its release differs from that of this program'
  await assert.rejects(api.json({ method: 'GET', path: '/trust/evaluate?agent=a' }), { code: 'not_found', message })
})
