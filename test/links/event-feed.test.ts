import assert from 'node:assert/strict'
import { test } from 'node:test'

import { EventFeed } from '../../src/links/messages.ts'
import { MAX_EVENT_BACKLOG } from '../../src/protocol/limits/daemon.ts'

test('a listener that falls too far behind gets a final overflow event and is removed', async () => {
  const feed = new EventFeed<number>({ overflowEvent: () => -1 })
  const [slow, gone] = [feed.subscribe(), feed.subscribe()]
  gone.close()
  for (let i = 0; i < MAX_EVENT_BACKLOG; i++) assert.deepEqual(feed.push(i), { delivered: 1, cutOff: 0 })
  assert.deepEqual(feed.push(MAX_EVENT_BACKLOG), { delivered: 0, cutOff: 1 })
  assert.equal(feed.size, 0)
  const read: number[] = []
  for await (const event of slow) read.push(event)
  assert.equal(read.length, MAX_EVENT_BACKLOG + 1)
  assert.equal(read.at(-1), -1)
})

test('a listener that keeps up gets every event, and leaving the loop unsubscribes it', async () => {
  const feed = new EventFeed<number>({ overflowEvent: () => -1 })
  const listener = feed.subscribe()
  const read: number[] = []
  setImmediate(() => [1, 2, 3].map((n) => feed.push(n)))
  for await (const event of listener) {
    read.push(event)
    if (event === 3) break
  }
  assert.deepEqual(read, [1, 2, 3])
  assert.equal(feed.size, 0)
})
