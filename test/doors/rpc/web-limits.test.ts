import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect as connectTcp, type Socket } from 'node:net'
import { test } from 'node:test'

import { MAX_RPC_PENDING, WEBSOCKET_PING_MS } from '../../../src/protocol/rexd-limits.ts'
import { ask, connect, outputOf, post } from '../../support/rexd-callers.ts'
import { numbers, numbersPid, numbersText, writtenWhenHeld } from '../../support/rexd-output.ts'
import { startRpcHost, type RpcHost } from '../../support/rpc-host.ts'

// What one caller may hold at once, and how long somebody may be silent.

const TIMEOUT = { timeout: 60_000 }

/** A question whose body does not come to its end. */
const unfinished = async (host: RpcHost): Promise<Socket> => {
  const { host: authority, hostname, port } = new URL(host.url)
  const socket = connectTcp(Number(port), hostname)
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  const head = [`POST /rpc HTTP/1.1`, `Host: ${authority}`, `Authorization: Bearer ${host.token}`, 'Content-Type: application/json']
  socket.write(`${head.join('\r\n')}\r\nContent-Length: 100\r\n\r\n{`)
  return socket
}

/** Long enough for whatever could be answered at once: this is, whatever else is in work. */
const otherQuestions = async (host: RpcHost): Promise<void> => {
  for (let round = 0; round < 20; round++) assert.equal((await ask(host, { method: 'GET', path: '/metrics' })).status, 200)
}

test('so many questions by POST are in work at once, and the next when one of them is over', TIMEOUT, async (t) => {
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

test('questions that wait for a program or an event leave their place to others', TIMEOUT, async (t) => {
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

test('an argv that the journal could not hold as it writes it is too much', TIMEOUT, async (t) => {
  const host = await startRpcHost(t, { security: '[[security.deny_commands]]\nargv = ["false"]\nargs = "any"' })
  const { session_id } = await post(host, 'session.open', { client_name: 'a' })
  // Each of these characters, which nobody sees, is six in the journal.
  const argv = (count: number): string[] => ['false', '\u00ad'.repeat(count), '\u00ad'.repeat(count)]
  await assert.rejects(post(host, 'exec.start', { session_id, argv: argv(16_500) }), { code: -32_008 })
  await assert.rejects(post(host, 'exec.start', { session_id, argv: argv(16_000) }), { code: -32_001 })
})

test('who reads slowly is not silent: its connection lives, and everything comes', TIMEOUT, async (t) => {
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
