import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect as connectTcp, type Socket } from 'node:net'
import { test } from 'node:test'

import { sourceOf } from '../../../src/doors/http.ts'
import { HTTP_TRANSFER_MS, MAX_RPC_PENDING, MAX_UNPROVEN_CONNECTIONS } from '../../../src/protocol/limits/rexd.ts'
import { ask, connect, outputOf, post, type Reached } from '../../support/rexd-callers.ts'
import { numbers, numbersPid, numbersText, writtenWhenHeld } from '../../support/rexd-output.ts'
import { startRpcHost } from '../../support/rpc-host.ts'
import { WEBSOCKET_PING_MS } from '../../../src/doors/rpc/websockets.ts'

// Limits on what one client can hold, and on how long a connection may be silent.

const TIMEOUT = { timeout: 60_000 }
const MIB = 1024 * 1024

/** Sends requests with these bodies and does not read the answers. `length` overrides the declared length. */
const asking = async (host: Reached, bodies: readonly string[], length?: number): Promise<Socket> => {
  const { host: authority, hostname, port } = new URL(host.url)
  const socket = connectTcp(Number(port), hostname)
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  const head = [`POST /rpc HTTP/1.1`, `Host: ${authority}`, `Authorization: Bearer ${host.token}`, 'Content-Type: application/json']
  for (const body of bodies) socket.write(`${head.join('\r\n')}\r\nContent-Length: ${length ?? body.length}\r\n\r\n${body}`)
  return socket
}

/** A request whose body stays incomplete. */
const unfinished = async (host: Reached): Promise<Socket> => asking(host, ['{'], 100)

/** Sends requests that are always answered at once. After them, all other immediate answers have arrived. */
const otherQuestions = async (host: Reached): Promise<void> => {
  for (let round = 0; round < 20; round++) assert.equal((await ask(host, { method: 'GET', path: '/metrics' })).status, 200)
}

test('at the limit of pending POST requests, the next request waits until one has ended', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { session_id } = await post(host, 'session.open', { client_name: 'a' })
  const sockets = await Promise.all(Array.from({ length: MAX_RPC_PENDING }, async () => unfinished(host)))
  await otherQuestions(host)
  let answered = false
  const next = post(host, 'session.info', { session_id }).finally(() => (answered = true))
  await otherQuestions(host)
  assert.equal(answered, false)
  sockets.pop()?.destroy()
  assert.equal((await next).session_id, session_id)
  for (const socket of sockets) socket.destroy()
  await post(host, 'session.info', { session_id })
})

test('requests that remain incomplete free their places after HTTP_TRANSFER_MS', TIMEOUT, async (t) => {
  const { clock, ...host } = await startRpcHost(t)
  const { session_id } = await post(host, 'session.open', { client_name: 'a' })
  const before = clock.pending
  const sockets = await Promise.all(Array.from({ length: MAX_RPC_PENDING }, async () => unfinished(host)))
  while (clock.pending < before + MAX_RPC_PENDING) await otherQuestions(host)
  const gone = Promise.all(sockets.map(async (socket) => once(socket.resume(), 'close')))
  await clock.advance(HTTP_TRANSFER_MS)
  await gone
  await post(host, 'session.info', { session_id })
})

test('an answer that the client does not read frees its place after HTTP_TRANSFER_MS', TIMEOUT, async (t) => {
  const { clock, ...host } = await startRpcHost(t, { limits: 'max_file_read_bytes = 2097152' })
  const { session_id } = await post(host, 'session.open', { client_name: 'a' })
  await post(host, 'fs.write', { session_id, path: 'large', content: 'x'.repeat(2 * MIB) })
  // More data than the system buffers for a client that does not read.
  const read = (id: number): object => ({ jsonrpc: '2.0', id, method: 'fs.read', params: { session_id, path: 'large' } })
  const socket = await asking(host, [JSON.stringify(Array.from({ length: 14 }, (_, id) => read(id)))])
  const idle = clock.pending
  for (let rounds = 0; rounds < 3; rounds = clock.pending > idle ? rounds + 1 : 0) await otherQuestions(host)
  await clock.advance(HTTP_TRANSFER_MS)
  let received = 0
  socket.on('data', (part: Buffer) => (received += part.length))
  await once(socket, 'close')
  assert.ok(received < 14 * 2 * MIB, `all ${received} bytes came`)
})

test('requests that wait for a program or an event free their places for others', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { session_id } = await post(host, 'session.open', { client_name: 'a' })
  const { process_id } = await post(host, 'exec.start', { session_id, argv: ['sleep', '600'] })
  const waits = Array.from({ length: 2 * MAX_RPC_PENDING }, async (_, index) =>
    index % 2 === 0
      ? post(host, 'exec.wait', { session_id, process_id })
      : post(host, 'session.events', { session_id, cursor: 0, timeout_ms: 60_000 }),
  )
  await otherQuestions(host)
  assert.equal((await post(host, 'session.info', { session_id })).session_id, session_id)
  await post(host, 'exec.kill', { session_id, process_id })
  const [first] = await Promise.all(waits)
  assert.equal(first.signal, 'SIGTERM')
})

test('a client that leaves with many requests behind a waiting one holds no places', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { session_id } = await post(host, 'session.open', { client_name: 'a' })
  const { process_id } = await post(host, 'exec.start', { session_id, argv: ['sleep', '600'] })
  const question = (method: string, params: object): string => JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  const infos = Array.from({ length: 2 * MAX_RPC_PENDING }, () => question('session.info', { session_id }))
  const socket = await asking(host, [question('exec.wait', { session_id, process_id }), ...infos])
  await otherQuestions(host)
  const others = Array.from({ length: 3 }, async () => post(host, 'session.info', { session_id }))
  await otherQuestions(host)
  socket.destroy()
  for (const other of others) assert.equal((await other).session_id, session_id)
  const many = Array.from({ length: 2 * MAX_RPC_PENDING }, async () => post(host, 'session.info', { session_id }))
  for (const one of many) assert.equal((await one).session_id, session_id)
  await post(host, 'exec.kill', { session_id, process_id })
})

test('connections without a token do not block other clients, because the oldest one makes room', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { hostname, port } = new URL(host.url)
  const silent: Socket[] = []
  t.after(() => silent.forEach((socket) => socket.destroy()))
  const first = Promise.withResolvers<void>()
  for (let at = 0; at <= MAX_UNPROVEN_CONNECTIONS; at++) {
    const socket = connectTcp(Number(port), hostname)
    socket.on('error', () => undefined)
    if (at === 0) socket.once('close', () => first.resolve()).resume()
    silent.push(socket)
    if (at % 64 === 0) await once(socket, 'connect')
  }
  await first.promise
  assert.match((await post(host, 'session.open', { client_name: 'a' })).session_id, /^s_/)
})

test('addresses of one /64 network count as one source, and addresses of this machine do not count', () => {
  const sources = ['127.0.0.1', '127.9.9.9', '::1', undefined, '10.0.0.1', '2001:db8:1:2::7', '2001:db8:1:2:3:4:5:6', '::ffff:10.0.0.1']
  assert.deepEqual(sources.map(sourceOf), [null, null, null, null, '10.0.0.1', '2001:db8:1:2', '2001:db8:1:2', '::ffff:10.0.0.1'])
})

test('a slow reader is not disconnected and receives all output', TIMEOUT, async (t) => {
  const { clock, ...host } = await startRpcHost(t)
  const [slow, other] = [await connect(t, host), await connect(t, host)]
  const { session_id } = await slow.call('session.open', { client_name: 'a' })
  slow.socket.pause()
  const started = slow.call('exec.start', { session_id, ...numbers() })
  await writtenWhenHeld(await numbersPid(host))
  for (let look = 0; look < 4; look++) {
    const asked = once(other.socket, 'ping')
    await clock.advance(WEBSOCKET_PING_MS)
    await asked
    await assert.rejects(other.call('session.info', { session_id }))
  }
  slow.socket.resume()
  await started
  await slow.until((events) => events.at(-1)?.method === 'exec.exit')
  assert.ok(outputOf(slow.events).equals(numbersText()))
})
