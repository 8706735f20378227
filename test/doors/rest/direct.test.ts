import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'

import type { DirectEvent } from '../../../src/links/messages.ts'
import { EventFeed } from '../../../src/links/messages.ts'
import { MAX_DIRECT_PAYLOAD } from '../../../src/protocol/limits/wire.ts'
import { MACHINE, OTHER_AGENT, readAnswer, response, startDoor } from '../../support/rest-server.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const message = (payload_b64: string): DirectEvent => ({
  type: 'message',
  request_id: ID,
  from_agent: OTHER_AGENT,
  from_machine: MACHINE,
  decision: 'accept',
  content_type: 'text/plain',
  payload_b64,
  received_at: '2026-01-01T00:00:00.000Z',
})
const feedOf = () => new EventFeed<DirectEvent>({ overflowEvent: () => ({ type: 'lagged' }) })
const noSend = async (): Promise<never> => Promise.reject(new Error('no message was expected'))

test('a message is sent unchanged, and the answer is its receipt', async (t) => {
  const sent: unknown[] = []
  const door = await startDoor(t, {
    messages: {
      subscribe: () => feedOf().subscribe(),
      send: async (agentId, { content_type, payload }) => {
        sent.push([agentId, content_type, Buffer.from(payload)])
        return { request_id: ID, outcome: 'delivered' }
      },
    },
  })
  const ask = async (body: object) => door.call('POST', '/direct/send', { body })
  const { json } = await ask({ agent_id: OTHER_AGENT, payload_b64: 'AAE=', content_type: 'text/plain' })
  assert.deepEqual(json, { ok: true, request_id: ID, outcome: 'delivered' })
  assert.deepEqual(sent, [[OTHER_AGENT, 'text/plain', Buffer.from([0, 1])]])
  const [whole, over] = [0, 1].map((more) => Buffer.alloc(MAX_DIRECT_PAYLOAD + more * 3).toString('base64'))
  assert.equal((await ask({ agent_id: OTHER_AGENT, payload_b64: whole })).status, 200)
  for (const [payload_b64, text] of [
    [over, /^payload_b64: a payload has at most 49152 bytes \(48 KiB\), not 49155$/],
    ['A'.repeat(100_000), /^the body is larger than 69632 bytes: a payload has at most 49152 bytes \(48 KiB\)$/],
  ] as const) {
    const { status, json: error } = await ask({ agent_id: OTHER_AGENT, payload_b64 })
    assert.deepEqual([status, error.error], [413, 'too_large'])
    assert.match(error.message, text)
  }
})

test('each message goes to every listener until the listener leaves', async (t) => {
  const feed = feedOf()
  const door = await startDoor(t, { messages: { subscribe: () => feed.subscribe(), send: noSend } })
  const request = door.open('GET', '/direct/events')
  request.end()
  const answer = await response(request)
  assert.match(answer.headers['content-type'] ?? '', /^text\/event-stream/)
  assert.equal(feed.size, 1)
  feed.push(message('AAE='))
  const [first] = (await once(answer, 'data')) as [Buffer]
  assert.equal(first.toString(), `data: ${JSON.stringify(message('AAE='))}\n\n`)
  request.destroy()
  while (feed.size > 0) await new Promise((resolve) => setTimeout(resolve, 5))
})

test('when a feed ends, its streams deliver the pending messages and then end', async (t) => {
  const feed = feedOf()
  const door = await startDoor(t, { messages: { subscribe: () => feed.subscribe(), send: noSend } })
  const request = door.open('GET', '/direct/events')
  request.end()
  const answer = await response(request)
  feed.push(message('AA=='))
  feed.push(message('AQ=='))
  feed.close()
  const { text } = await readAnswer(answer)
  const events = text.split('\n\n').filter(Boolean)
  assert.deepEqual(
    events.map((event) => JSON.parse(event.replace(/^data: /, '')) as DirectEvent),
    [message('AA=='), message('AQ==')],
  )
})
