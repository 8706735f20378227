import assert from 'node:assert/strict'
import { test } from 'node:test'

import { introduce, startPeer } from '../support/peer.ts'

const LIMIT = { timeout: 30_000 }
const soon = (): AbortSignal => AbortSignal.timeout(20_000)
const hello = { content_type: 'text/plain', payload: Buffer.from('hello') }

test('a message reaches a listener of a contact and comes back as a receipt', LIMIT, async (t) => {
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
