import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'

import { systemClock } from '../../../src/base/clock.ts'
import { RpcSessionEvents, MAX_EVENT_LOG_BYTES, MAX_EVENTS_ANSWERED } from '../../../src/doors/rpc/session-events.ts'
import { EventReader, Reading, settled, type Heard } from '../../support/event-reader.ts'

const SEED = 20_261_121
const KIB = 1024

const kept = (): RpcSessionEvents => new RpcSessionEvents({ sessionId: 's_1', kept: true })
const cursorsOf = (events: readonly Heard[]): number[] => events.map(({ params }) => Number(params['cursor']))
const oneTo = (last: number, first = 1): number[] => Array.from({ length: last - first + 1 }, (_, index) => first + index)
/** Slightly more than a sixteenth of the event log. */
const BIG = 'x'.repeat(MAX_EVENT_LOG_BYTES / 16)
/** Attaches the reader and waits until the existing events are on their way. */
const attach = async (events: RpcSessionEvents, reader: EventReader, cursor: number): Promise<void> => {
  events.attach(reader.send, cursor)
  await nextTurn()
}
/** Each promise settles when its writer may continue. */
const emitBig = (events: RpcSessionEvents, count: number): Promise<void>[] =>
  Array.from({ length: count }, async () => events.emit('e', { data: BIG }))

const step = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant('emit' as const), size: fc.constantFrom(10, 10, 300 * KIB, 1000 * KIB) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('attach' as const), room: fc.nat({ max: 6 }), back: fc.nat({ max: 3 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('lose' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('drain' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('since' as const), back: fc.nat({ max: 3 }) }) },
  // After this step, all immediate work is done.
  { weight: 8, arbitrary: fc.record({ do: fc.constant('look' as const) }) },
)

test('property: readers that come and go see every event in order, or a gap for the missing ones', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 100 }), async (steps) => {
      const reading = new Reading(kept())
      reading.since(0)
      for (const one of steps) {
        if (one.do === 'emit') reading.emit(one.size)
        else if (one.do === 'attach') reading.attach(one.room, one.back)
        else if (one.do === 'lose') reading.lose()
        else if (one.do === 'drain') reading.drain()
        else if (one.do === 'since') reading.since(one.back)
        else await reading.check()
      }
      await reading.finish()
    }),
    { seed: SEED, numRuns: 300 },
  )
})

test('unread events block their program until the reader asks for the events after them', async () => {
  const events = kept()
  events.since(0)
  for (const work of emitBig(events, 15)) assert.ok(await settled(work), 'there is room')
  const [first, second] = emitBig(events, 2)
  assert.deepEqual([await settled(first), await settled(second)], [false, false])
  const { events: answered, cursor } = events.since(0)
  assert.deepEqual([cursorsOf(answered), cursor], [oneTo(17), 17])
  assert.equal(await settled(second), false, 'they may not have come')
  events.since(cursor)
  assert.deepEqual([await settled(first), await settled(second)], [true, true])
})

test('an event that arrives while earlier events are being sent is sent as well', async () => {
  for (let turns = 0; turns < 12; turns++) {
    const events = kept()
    const reader = new EventReader()
    const between = async (): Promise<void> => {
      for (let turn = 0; turn < turns; turn++) await Promise.resolve()
    }
    events.attach(reader.send, 0)
    await between()
    void events.emit('e', {})
    await between()
    void events.emit('e', {})
    await nextTurn()
    assert.deepEqual(cursorsOf(reader.heard), [1, 2], `with ${turns} turns between`)
  }
})

test('sent events are dropped only after they arrive, so a connection that confirms nothing blocks programs', async () => {
  const events = kept()
  const reader = new EventReader()
  const asked: (() => void)[] = []
  const arrived = async (): Promise<void> => new Promise((resolve) => asked.push(resolve))
  events.attach(reader.send, 0, arrived)
  const works = emitBig(events, 18)
  assert.equal(await settled(works.at(-1)), false)
  assert.deepEqual(cursorsOf(reader.heard), oneTo(18), 'everything was sent')
  // Only the first event has arrived, and the others still do not fit.
  asked[0]!()
  assert.equal(await settled(works.at(-1)), false)
  for (const come of asked) come()
  await Promise.all(works)
  events.detach()
  const next = new EventReader()
  await attach(events, next, 17)
  assert.deepEqual(cursorsOf(next.heard), [18])
})

test('a session loses its oldest events only if its client waits for programs and never reads events', async () => {
  const [waiting, looking, both] = [kept(), kept(), kept()]
  waiting.waitedFor()
  looking.since(0)
  both.waitedFor()
  both.since(0)
  const works = [waiting, looking, both].map((events) => emitBig(events, 20).at(-1))
  assert.deepEqual(await Promise.all(works.map(settled)), [true, false, false])
  assert.equal(waiting.since(0).gap?.from, 1)
  const late = kept()
  const held = emitBig(late, 20).at(-1)
  assert.equal(await settled(held), false)
  late.waitedFor()
  assert.equal(await settled(held), true, 'who asks for the end later must not wait for himself either')
})

test('closing a session releases blocked programs and waiting readers', async () => {
  const events = kept()
  events.since(0)
  const works = emitBig(events, 20)
  const left = new AbortController()
  const waiting = events.behind(20, { clock: systemClock, timeoutMs: null, signal: left.signal })
  assert.equal(await settled(works.at(-1)), false)
  events.closing()
  await Promise.all(works)
  assert.equal(events.emit('e', { data: BIG }), undefined)
  void events.emit('last', {})
  assert.equal(await settled(waiting), false, 'there may be more, and nobody can ask for it then')
  events.close()
  await waiting
  assert.deepEqual(
    events.since(20).events.map(({ method }) => method),
    ['e', 'last'],
  )
})

test('an answer has at most MAX_EVENTS_ANSWERED events, and the next answers contain the others', () => {
  const events = kept()
  for (let count = 0; count < 2 * MAX_EVENTS_ANSWERED + 1; count++) void events.emit('e', {})
  const heard: number[] = []
  for (let cursor = 0; heard.length <= 2 * MAX_EVENTS_ANSWERED;) {
    const answer = events.since(cursor)
    assert.ok(answer.events.length <= MAX_EVENTS_ANSWERED && answer.events.length > 0)
    heard.push(...cursorsOf(answer.events))
    cursor = answer.cursor
  }
  assert.deepEqual(heard, oneTo(2 * MAX_EVENTS_ANSWERED + 1))
})

test('a request for events waits for an event or until its client leaves', async () => {
  const events = kept()
  const left = new AbortController()
  const patience = { clock: systemClock, timeoutMs: null, signal: left.signal }
  const first = events.behind(0, patience)
  assert.equal(await settled(first), false)
  void events.emit('e', {})
  await first
  await events.behind(0, patience)
  const second = events.behind(1, patience)
  assert.equal(await settled(second), false)
  left.abort()
  await second
})

test('without an event log, events have no cursor, a slow reader blocks the writer, and events without a reader are dropped', async () => {
  const events = new RpcSessionEvents({ sessionId: 's_1', kept: false })
  assert.equal(events.emit('e', {}), undefined)
  const reader = new EventReader(1)
  await attach(events, reader, 0)
  const works = [events.emit('e', { a: 1 }), events.emit('e', {})]
  assert.deepEqual(await Promise.all(works.map(settled)), [true, false])
  reader.drain()
  assert.equal(await settled(works[1]), true)
  assert.deepEqual(reader.heard[0], { jsonrpc: '2.0', method: 'e', params: { a: 1 } })
  events.detach()
  assert.equal(events.emit('e', {}), undefined)
  assert.equal(reader.heard.length, 2)
})

test('a gap names exactly the missing events, for attached readers and for requests', async () => {
  const events = kept()
  const reader = new EventReader()
  await attach(events, reader, 0)
  await Promise.all(emitBig(events, 40))
  assert.deepEqual(cursorsOf(reader.heard), oneTo(40))
  events.detach()
  const { gap, events: answered, cursor } = events.since(3)
  assert.equal(gap?.from, 4)
  assert.ok(gap.to >= 20 && gap.to < 30, `${gap.to}`)
  assert.deepEqual([cursorsOf(answered), cursor], [oneTo(40, gap.to + 1), 40])
  assert.deepEqual(events.since(gap.to), { events: answered, cursor: 40, gap: null })
  assert.deepEqual(events.since(40), { events: [], cursor: 40, gap: null })
  const next = new EventReader()
  await attach(events, next, 3)
  await nextTurn()
  assert.deepEqual(next.heard[0], { jsonrpc: '2.0', method: 'session.gap', params: { session_id: 's_1', ...gap } })
  assert.deepEqual(cursorsOf(next.heard.slice(1)), oneTo(40, gap.to + 1))
})
