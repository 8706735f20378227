import assert from 'node:assert/strict'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import type { DmChannel } from '../../src/links/channel.ts'
import { DmCounters } from '../../src/links/counters.ts'
import { Messages } from '../../src/links/messages.ts'
import { newRequestId } from '../../src/identity/request-id.ts'
import { directMessage, MESSAGE_PREFIX, RECEIPT_PREFIX, REVOCATIONS_PREFIX, revocationList } from '../../src/protocol/wire/dm.ts'
import { MAX_REVOCATIONS_PER_LINK } from '../../src/protocol/limits/wire.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 30_000 }
const soon = (): AbortSignal => AbortSignal.timeout(20_000)
const hello = { content_type: 'text/plain', payload: Buffer.from('hello') }

test('a message reaches a listener of a contact, and the sender gets a receipt', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'known')
  const inbox = bob.messages.subscribe()
  const { outcome, request_id } = await alice.messages.send(bob.agentId, hello, soon())
  assert.equal(outcome, 'delivered')
  for await (const event of inbox) {
    assert.equal(event.type, 'message')
    if (event.type !== 'message') continue
    assert.equal(event.request_id, request_id)
    assert.equal(event.from_agent, alice.agentId)
    assert.equal(event.from_machine, alice.machineId)
    assert.equal(event.decision, 'accept_with_flag')
    assert.equal(Buffer.from(event.payload_b64, 'base64').toString(), 'hello')
    break
  }
  assert.equal(bob.counters.get('messages_delivered'), 1)
  assert.equal(alice.counters.get('links_opened'), 1)
})

test('the receipt says that no program listens, or that the sender is not trusted', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  const inbox = bob.messages.subscribe()
  assert.equal((await alice.messages.send(bob.agentId, hello, soon())).outcome, 'rejected')
  assert.equal(bob.counters.get('trust_rejected'), 1)
  inbox.close()
  await introduce(bob, alice, 'trusted')
  await until(() => bob.links.list()[0]?.decision === 'accept')
  assert.equal((await alice.messages.send(bob.agentId, hello, soon())).outcome, 'no_listener')
  assert.equal(bob.counters.get('messages_without_listener'), 1)
})

test('a message to the own agent needs no network', LIMIT, async (t) => {
  const alice = await startPeer(t, { name: 'alice' })
  const inbox = alice.messages.subscribe()
  assert.equal((await alice.messages.send(alice.agentId, hello, soon())).outcome, 'delivered')
  inbox.close()
  const events = []
  for await (const event of inbox) events.push(event)
  assert.equal(events.length, 1)
})

test('a body with an unknown prefix is counted and dropped, and its channel stays open', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  const channel = await alice.links.openChannel(bob.agentId, soon())
  channel.send(newRequestId(), Buffer.from('x0x-what-v9\0 and more'))
  channel.send(newRequestId(), Buffer.from('x0x-exec-v1\0 for a room that is not there'))
  const answered = new Promise<Uint8Array>((resolve) => (channel.onBody = (_id, body) => resolve(body)))
  channel.send(newRequestId(), Buffer.concat([MESSAGE_PREFIX, directMessage.encode(hello)]))
  assert.deepEqual(Buffer.from((await answered).subarray(0, 12)), Buffer.from(RECEIPT_PREFIX))
  assert.equal(bob.counters.get('unknown_prefix'), 2)
})

test('a body that cannot be decoded ends only its own channel', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  const [bad, good] = [await alice.links.openChannel(bob.agentId, soon()), await alice.links.openChannel(bob.agentId, soon())]
  const closed = new Promise<Error | null>((resolve) => (bad.onClosed = resolve))
  bad.send(newRequestId(), Buffer.concat([MESSAGE_PREFIX, Buffer.from('no message')]))
  assert.ok((await closed) instanceof Error)
  assert.equal(bob.counters.get('malformed_frames'), 1)
  const answered = new Promise<Uint8Array>((resolve) => (good.onBody = (_id, body) => resolve(body)))
  good.send(newRequestId(), Buffer.concat([MESSAGE_PREFIX, directMessage.encode(hello)]))
  assert.ok((await answered).length > 12)
})

test('more revocations than a link may carry end the channel', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  const channel = await alice.links.openChannel(bob.agentId, soon())
  const items = Array.from({ length: MAX_REVOCATIONS_PER_LINK }, () => new Uint8Array([0]))
  const closed = new Promise<Error | null>((resolve) => (channel.onClosed = resolve))
  for (const batch of [items, items.slice(0, 1)]) {
    channel.send(newRequestId(), Buffer.concat([REVOCATIONS_PREFIX, revocationList.encode({ items: batch })]))
  }
  assert.ok((await closed) instanceof Error)
  assert.equal(bob.counters.get('revocations_received'), 1)
})

test('a message that is aborted while its channel opens is not sent, and the channel is closed', LIMIT, async () => {
  const over = new AbortController()
  const done: string[] = []
  const channel = { send: () => done.push('sent') > 0, close: async () => void done.push('closed') } as unknown as DmChannel
  const openChannel = async (): Promise<DmChannel> => (over.abort(new Error('over')), channel)
  const counters = new DmCounters()
  const links = { openChannel, penalise: () => undefined }
  const port = { identity: { agentId: 'aa'.repeat(32), machineId: 'bb'.repeat(32) }, revocations: async () => undefined }
  const messages = new Messages({
    links,
    executor: port as never,
    dispatcher: null as never,
    counters,
    clock: systemClock,
    log: silentLogger,
  })
  await assert.rejects(messages.send('cc'.repeat(32), hello, over.signal), /over/)
  assert.deepEqual([done, counters.get('messages_sent')], [['closed'], 0])
})
