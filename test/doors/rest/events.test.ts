import assert from 'node:assert/strict'
import type { IncomingMessage } from 'node:http'
import { test, type TestContext } from 'node:test'

import { events as eventsAnswer, eventsItem } from '../../../src/doors/rest/schemas.ts'
import { MAX_KEPT_EVENTS } from '../../../src/protocol/limits/events.ts'
import type { LifecycleLog } from '../../../src/protocol/events/event-log.ts'
import { newLifecycleLog } from '../../support/lifecycle.ts'
import { OTHER_AGENT, response, startDoor, type TestDoor } from '../../support/rest-server.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const SSE = { accept: 'text/event-stream' }

const tell = (log: LifecycleLog, session: string | null = null, tail = ''): void =>
  void log.add({ type: 'exec.finished', owner: 'me', session, door: 'rest', run_id: ID, node: OTHER_AGENT, code: 0, tail })

const doorWith = async (t: TestContext, log: LifecycleLog): Promise<TestDoor> => startDoor(t, { events: log })

interface Item {
  readonly id: string
  readonly n?: number
  readonly type: string
  readonly through?: number | null
  readonly session?: string | null
  readonly text?: string
}

/** Reads server-sent events one at a time. */
class Stream {
  readonly #message: IncomingMessage
  readonly #chunks: AsyncIterator<Buffer>
  #text = ''

  constructor(message: IncomingMessage) {
    this.#message = message
    this.#chunks = message[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  }

  static async open(door: TestDoor, path: string, headers: Record<string, string> = {}): Promise<Stream> {
    const request = door.open('GET', path, { headers: { ...SSE, ...headers } })
    request.on('error', () => undefined)
    request.end()
    const message = await response(request)
    assert.equal(message.statusCode, 200)
    return new Stream(message)
  }

  async next(): Promise<Item> {
    while (!this.#text.includes('\n\n')) {
      const { value, done } = await this.#chunks.next()
      assert.ok(done !== true, 'the stream has ended')
      this.#text += value.toString()
    }
    const end = this.#text.indexOf('\n\n')
    const lines = this.#text.slice(0, end).split('\n')
    this.#text = this.#text.slice(end + 2)
    const field = (name: string): string => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? ''
    const data: unknown = JSON.parse(field('data'))
    eventsItem.parse(data)
    return { ...(data as Item), id: field('id') }
  }

  async take(count: number): Promise<Item[]> {
    const items: Item[] = []
    while (items.length < count) items.push(await this.next())
    return items
  }

  hangUp(): void {
    this.#message.destroy()
  }
}

test('one answer returns the events after a given number', async (t) => {
  const log = newLifecycleLog()
  const door = await doorWith(t, log)
  const { json: none } = await door.call('GET', '/exec/events')
  assert.deepEqual(eventsAnswer.parse(none), { ok: true, events: [], gap: null, next: `${log.id}.0`, more: false })
  tell(log)
  tell(log, 'a')
  const { json } = await door.call('GET', '/exec/events')
  assert.deepEqual(
    eventsAnswer.parse(json).events.map(({ n, text }) => [n, text]),
    [1, 2].map((n) => [n, `Exec finished (node=${OTHER_AGENT}, id=${ID}, code=0)`]),
  )
  const { json: later } = await door.call('GET', `/exec/events?since=${json.next}`)
  assert.deepEqual([later.events, later.next], [[], json.next])
  const { json: second } = await door.call('GET', '/exec/events?since=1')
  assert.deepEqual([second.events.length, second.gap], [1, null])
})

test('B28: a request without the token, or for another session, reads no events', async (t) => {
  const log = newLifecycleLog()
  const door = await doorWith(t, log)
  tell(log, 'a', 'secret-of-a')
  for (const token of [null, '0'.repeat(64)]) {
    for (const headers of [{}, SSE]) {
      const answer = await door.call('GET', '/exec/events', { token, headers })
      assert.deepEqual([answer.status, answer.text.includes('secret')], [401, false])
    }
  }
  const { json } = await door.call('GET', '/exec/events?session=b')
  assert.deepEqual([json.events, json.gap], [[], null])
  const stream = await Stream.open(door, '/exec/events?session=b')
  tell(log, 'a')
  tell(log)
  tell(log, 'b')
  assert.deepEqual((await stream.next()).session, 'b')
  stream.hangUp()
})

test('a query with an invalid session, number or parameter is refused', async (t) => {
  const door = await doorWith(t, newLifecycleLog())
  for (const query of ['session=', 'session=a%0ab', `session=${'x'.repeat(65)}`, 'since=-1', 'since=x', 'since=a.1', 'other=1'])
    assert.equal((await door.call('GET', `/exec/events?${query}`)).status, 400, query)
})

test("a broken stream resumes at the reader's position without missing or repeated events", async (t) => {
  const log = newLifecycleLog()
  const door = await doorWith(t, log)
  for (let n = 0; n < 3; n++) tell(log)
  const first = await Stream.open(door, '/exec/events')
  const items = await first.take(2)
  assert.deepEqual(
    items.map(({ id, n }) => [id, n]),
    [1, 2].map((n) => [`${log.id}.${n}`, n]),
  )
  first.hangUp()
  tell(log)
  const again = await Stream.open(door, '/exec/events', { 'last-event-id': items[1]!.id })
  assert.deepEqual(
    (await again.take(2)).map(({ n }) => n),
    [3, 4],
  )
  tell(log)
  assert.equal((await again.next()).n, 5)
  again.hangUp()
})

test('a reader that was away for too long gets a gap event and then the remaining events', async (t) => {
  const log = newLifecycleLog()
  const door = await doorWith(t, log)
  for (let n = 0; n < MAX_KEPT_EVENTS + 10; n++) tell(log)
  const stream = await Stream.open(door, '/exec/events?since=4')
  const [gap, event] = await stream.take(2)
  assert.deepEqual([gap?.type, gap?.through, event?.n], ['gap', 10, 11])
  stream.hangUp()
  const exactly = await Stream.open(door, '/exec/events', { 'last-event-id': gap!.id })
  assert.equal((await exactly.next()).n, 11, 'he knows of it')
  exactly.hangUp()
  const { json } = await door.call('GET', '/exec/events?since=4')
  assert.deepEqual([json.gap, json.events[0].n], [{ through: 10 }, 11])
})

test('after a restart of the daemon a reader gets a gap event', async (t) => {
  const log = newLifecycleLog('a'.repeat(12))
  const door = await doorWith(t, log)
  tell(log)
  for (const id of [`${'b'.repeat(12)}.1`, `${log.id}.77`]) {
    const stream = await Stream.open(door, '/exec/events', { 'last-event-id': id })
    const [gap, event] = await stream.take(2)
    assert.deepEqual([gap?.type, gap?.through, event?.n], ['gap', null, 1])
    stream.hangUp()
  }
})

test('a slow reader blocks no other reader, and gets a gap event for the dropped events and then the newest ones', async (t) => {
  const log = newLifecycleLog()
  const door = await doorWith(t, log)
  const slow = await Stream.open(door, '/exec/events')
  const quick = await Stream.open(door, '/exec/events')
  tell(log)
  assert.equal((await quick.next()).n, 1)
  // More data than the buffers of the stream hold, and fifty times as much as the log keeps.
  const tail = 'x'.repeat(19_000)
  for (let n = 0; n < 3_000; n++) {
    tell(log, null, tail)
    if (n % 10 === 0) await new Promise((resolve) => setImmediate(resolve))
  }
  let [at, gaps] = [0, 0]
  while (at < log.last) {
    const item = await slow.next()
    if (item.type === 'gap') {
      assert.ok(item.through! > at)
      at = item.through!
      gaps += 1
    } else {
      assert.equal(item.n, at + 1)
      at = item.n!
    }
  }
  assert.ok(gaps > 0)
  slow.hangUp()
  quick.hangUp()
})
