import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'

import { MAX_RPC_MESSAGE, MAX_RPC_PENDING } from '../../../src/protocol/limits/rexd.ts'
import { connect } from '../../support/rexd-callers.ts'
import { startRpcHost } from '../../support/rpc-host.ts'
import { WEBSOCKET_PING_MS } from '../../../src/doors/rpc/websockets.ts'

// The test moves the clock of these servers. web-*.test.ts and e2e/rexd/web.test.ts test everything else about WebSockets.

const TIMEOUT = { timeout: 20_000 }

test('a connection that does not answer a ping is closed at the next one, and one that answers remains', TIMEOUT, async (t) => {
  const { clock, ...host } = await startRpcHost(t)
  const [silent, alive] = [await connect(t, host, { autoPong: false }), await connect(t, host)]
  for (const look of ['first', 'second', 'third']) {
    const asked = once(alive.socket, 'ping')
    await clock.advance(WEBSOCKET_PING_MS)
    await asked
    await alive.call('session.open', { client_name: look })
    if (look === 'first') assert.equal(silent.socket.readyState, silent.socket.OPEN)
    else await silent.closed
  }
  assert.equal((await silent.closed).code, 1006, 'nobody said goodbye')
})

test('a connection whose calls are still pending is not considered silent', TIMEOUT, async (t) => {
  const { clock, ...host } = await startRpcHost(t)
  const [busy, other] = [await connect(t, host), await connect(t, host)]
  const { session_id } = await busy.call('session.open', { client_name: 'a', resumable: true })
  const before = clock.pending
  // With this many pending calls, the server reads no further message until it has answered one.
  const asked = { session_id, cursor: 0, timeout_ms: 50_000 }
  const answers = Array.from({ length: MAX_RPC_PENDING }, async () => busy.call('session.events', asked))
  while (clock.pending < before + MAX_RPC_PENDING) await other.call('session.info', { session_id }).catch(() => undefined)
  for (const _look of ['first', 'second', 'third']) {
    const looked = once(other.socket, 'ping')
    await clock.advance(WEBSOCKET_PING_MS)
    await looked
    await other.call('session.info', { session_id }).catch(() => undefined)
  }
  assert.equal(busy.socket.readyState, busy.socket.OPEN, 'it lives, and did nothing wrong')
  await clock.advance(50_000 - 3 * WEBSOCKET_PING_MS)
  for (const { events } of await Promise.all(answers)) assert.deepEqual(events, [])
})

test('a text of the maximum size is accepted, and a larger one closes the connection with code 1009', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const caller = await connect(t, host)
  const text = (size: number): string => {
    const [head, tail] = ['{"jsonrpc":"2.0","id":"long","method":"none","params":{"a":"', '"}}']
    return `${head}${'x'.repeat(size - head.length - tail.length)}${tail}`
  }
  const answer = once(caller.socket, 'message')
  caller.socket.send(text(MAX_RPC_MESSAGE))
  assert.equal((JSON.parse(String((await answer)[0])) as { error: { code: number } }).error.code, -32_601)
  caller.socket.send(text(MAX_RPC_MESSAGE + 1))
  assert.equal((await caller.closed).code, 1009)
  for (const perMessageDeflate of [true, false]) {
    const next = await connect(t, host, { perMessageDeflate })
    next.socket.send('x'.repeat(8 * MAX_RPC_MESSAGE))
    assert.ok([1009, 1006].includes((await next.closed).code), 'it was closed before all of it was read')
  }
})
