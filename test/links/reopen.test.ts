import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { test } from 'node:test'

import { AppError, isAppError } from '../../src/base/errors.ts'
import { newRequestId } from '../../src/identity/request-id.ts'
import type { DmChannel } from '../../src/links/channel.ts'
import { EXEC_PREFIX } from '../../src/protocol/wire/exec.ts'
import { signalOf } from '../support/hostile-link.ts'
import { introduce, startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 60_000 }

/** Two peers that trust each other. Bob echoes every exec body, and only alice dials. */
const pair = async (t: Parameters<typeof startPeer>[0]) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  for (const peer of [alice, bob]) peer.reconnect.stop()
  bob.dispatcher.route(EXEC_PREFIX, (channel, requestId, body) => void channel.send(requestId, body))
  const first = await alice.links.openChannel(bob.agentId, signalOf())
  await answered(first)
  return { alice, bob, to: { agentId: bob.agentId, machineId: bob.node.machineId } }
}

const answered = async (channel: DmChannel): Promise<void> => {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  channel.onBody = () => resolve()
  channel.onClosed = (error) => reject(error ?? new Error('closed'))
  channel.send(newRequestId(), EXEC_PREFIX)
  await promise
}

const cut = async (alice: Peer, bob: Peer): Promise<void> => {
  for (const connection of alice.node.connections()) connection.abort(new Error('cut'))
  await until(() => alice.links.list().length === 0 && bob.links.list().length === 0)
}

test('a lost connection is made again with one handshake for all waiting callers', LIMIT, async (t) => {
  const { alice, bob, to } = await pair(t)
  await cut(alice, bob)
  const channels = await Promise.all(Array.from({ length: 20 }, async () => alice.links.reopenChannel(to, false, signalOf())))
  await Promise.all(channels.map(answered))
  assert.deepEqual([alice.counters.get('links_opened'), alice.links.list()[0]?.channels], [2, 20])
})

test('an open link is used again without a new handshake', LIMIT, async (t) => {
  const { alice, to } = await pair(t)
  await answered(await alice.links.reopenChannel(to, false, signalOf()))
  assert.equal(alice.counters.get('links_opened'), 1)
})

test('a silent connection is replaced by a new one, and a fresh connection is kept', LIMIT, async (t) => {
  const { alice, to } = await pair(t)
  const [old] = alice.node.connections()
  await until(() => old?.quiet === true)
  await answered(await alice.links.reopenChannel(to, true, signalOf()))
  assert.deepEqual([old?.open, alice.counters.get('links_opened')], [false, 2])
  await answered(await alice.links.reopenChannel(to, true, signalOf()))
  assert.equal(alice.counters.get('links_opened'), 2)
})

test('a silent connection stays open until another one exists', LIMIT, async (t) => {
  const { alice, to } = await pair(t)
  const [old] = alice.node.connections()
  await until(() => old?.quiet === true)
  const waiting = new AbortController()
  const late = alice.links.reopenChannel(to, true, waiting.signal)
  waiting.abort(new Error('enough'))
  await assert.rejects(late, /enough/)
  assert.equal(old?.open, true)
  await answered(await alice.links.reopenChannel(to, false, signalOf()))
})

test('another machine of the agent and another agent on the machine are refused', LIMIT, async (t) => {
  const { alice, bob, to } = await pair(t)
  const elsewhere = alice.links.reopenChannel({ ...to, machineId: 'ab'.repeat(32) }, false, signalOf())
  await assert.rejects(elsewhere, (error) => isAppError(error, 'peer_unreachable'))
  await cut(alice, bob)
  const somebody = alice.links.reopenChannel({ ...to, agentId: 'cd'.repeat(32) }, false, signalOf())
  await assert.rejects(somebody, (error) => isAppError(error, 'peer_rejected'))
})

test('a caller that stops waiting gets its error at once', LIMIT, async (t) => {
  const { alice, bob, to } = await pair(t)
  await cut(alice, bob)
  const reason = new AppError('timeout', 'too long')
  const waiting = new AbortController()
  const late = alice.links.reopenChannel(to, false, waiting.signal)
  waiting.abort(reason)
  await assert.rejects(late, reason)
})

test('a machine that accepts connections but never answers causes a timeout or is unreachable', LIMIT, async (t) => {
  const { alice, bob, to } = await pair(t)
  const port = Number(bob.node.addresses()[0]!.split('/')[4])
  await bob.stop()
  await until(() => alice.links.list().length === 0)
  const sockets: Socket[] = []
  const mute = createServer((socket) => sockets.push(socket)).listen(port, '127.0.0.1')
  await once(mute, 'listening')
  t.after(() => {
    mute.close()
    for (const socket of sockets) socket.destroy()
  })
  await assert.rejects(
    alice.links.reopenChannel(to, false, signalOf()),
    (error) => isAppError(error, 'timeout') || isAppError(error, 'peer_unreachable'),
  )
  assert.ok(sockets.length > 0)
})

test('a caller that stopped waiting before the call does not end the connection', LIMIT, async (t) => {
  const { alice, to } = await pair(t)
  const [old] = alice.node.connections()
  await until(() => old?.quiet === true)
  await assert.rejects(alice.links.reopenChannel(to, true, AbortSignal.abort(new Error('over'))), /over/)
  assert.equal(old?.open, true)
})
