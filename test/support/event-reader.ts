import assert from 'node:assert/strict'
import { setImmediate as nextTurn } from 'node:timers/promises'

import type { Send, RpcSessionEvents } from '../../src/doors/rpc/session-events.ts'
import { MAX_EVENT_LOG_BYTES } from '../../src/doors/rpc/session-events.ts'

export interface Heard {
  readonly method: string
  readonly params: Readonly<Record<string, unknown>>
}

/** True if the promise has settled after everything that could happen at once has happened. */
export const settled = async (work: void | Promise<void>): Promise<boolean> => {
  let done = work === undefined
  void work?.then(() => (done = true))
  await nextTurn()
  return done
}

/** A connection that accepts `room` messages and then reports backpressure until it is drained. */
export class EventReader {
  readonly heard: Heard[] = []
  #room: number
  #behind = Promise.withResolvers<void>()

  constructor(room = Number.POSITIVE_INFINITY) {
    this.#room = room
  }

  get behind(): boolean {
    return this.#room < 0
  }

  readonly send: Send = (message) => {
    this.heard.push(message as Heard)
    this.#room -= 1
    return this.#room >= 0 ? undefined : this.#behind.promise
  }

  /** Continues after backpressure, as a socket does when it drains or closes. */
  drain(room = Number.POSITIVE_INFINITY): void {
    this.#room = room
    this.#behind.resolve()
    this.#behind = Promise.withResolvers<void>()
  }
}

/** A session and a client that attaches and detaches repeatedly. The methods check what must hold after each step. */
export class Reading {
  readonly #events: RpcSessionEvents
  /** Sizes of all events. The first has cursor 1. */
  readonly #sizes: number[] = []
  readonly #works: Promise<void>[] = []
  #reader: EventReader | null = null
  /** Number of this reader's messages that were checked. */
  #seen = 0
  /** Cursor of the last event that the client received, or that was reported as missing. */
  #at = 0
  /** Highest cursor that the client received or named. The session may discard no later event. */
  #taken = 0
  /** Highest cursor that the client acknowledged, without events that it requested again. */
  #said = 0

  constructor(events: RpcSessionEvents) {
    this.#events = events
  }

  emit(size: number): void {
    this.#sizes.push(JSON.stringify({ jsonrpc: '2.0', method: 'e', params: { data: '', cursor: this.#sizes.length + 1 } }).length + size)
    const work = this.#events.emit('e', { data: 'x'.repeat(size) })
    if (work !== undefined) this.#works.push(work)
  }

  /** `back` is the number of events that the client requests again. */
  attach(room: number, back: number): void {
    this.lose()
    this.#reader = new EventReader(room)
    this.#seen = 0
    this.#at = this.#said = Math.max(0, this.#at - back)
    this.#events.attach(this.#reader.send, this.#at)
  }

  lose(): void {
    this.#look()
    this.#events.detach()
    this.#reader?.drain()
    this.#reader = null
  }

  drain(): void {
    this.#reader?.drain(5)
  }

  since(back: number): void {
    this.#look()
    const asked = Math.max(0, this.#at - back)
    const { events, cursor, gap } = this.#events.since(asked)
    this.#said = Math.max(this.#said, asked)
    let at = asked
    if (gap !== null) at = this.#missing(gap, at)
    for (const event of events) at = this.#came(event, at)
    assert.equal(cursor, at)
    assert.equal(cursor, this.#sizes.length, 'nothing is left out')
    // An attached client also receives the same events on its connection.
    if (this.#reader === null) this.#at = at
  }

  /** Checks that writers are paused and resumed as they should be. */
  async check(): Promise<void> {
    await nextTurn()
    this.#look()
    if (this.#reader !== null && !this.#reader.behind) assert.equal(this.#at, this.#sizes.length, 'who reads has heard of every event')
    const held = !(await settled(Promise.all(this.#works).then(() => undefined)))
    const bytes = (from: number): number => this.#sizes.slice(from).reduce((sum, size) => sum + size, 0)
    if (this.#reader === null && bytes(Math.max(this.#taken, this.#said)) > MAX_EVENT_LOG_BYTES)
      assert.ok(held, 'nothing more may be written, because nobody has seen what was')
    if (this.#reader === null && bytes(0) <= MAX_EVENT_LOG_BYTES) assert.ok(!held, 'there is room')
  }

  /** Attaches a last client, which reads everything. */
  async finish(): Promise<void> {
    await nextTurn()
    this.attach(Number.POSITIVE_INFINITY, 0)
    for (let turn = 0; turn < 5; turn++) await nextTurn()
    assert.ok(await settled(Promise.all(this.#works).then(() => undefined)), 'everybody may write again')
    this.#look()
    assert.equal(this.#at, this.#sizes.length, 'it has heard of every event')
  }

  #look(): void {
    for (const message of this.#reader?.heard.slice(this.#seen) ?? []) {
      this.#seen += 1
      const { from, to } = message.params as { from: number; to: number }
      this.#at = message.method === 'session.gap' ? this.#missing({ from, to }, this.#at) : this.#came(message, this.#at)
    }
  }

  #came({ params }: Heard, at: number): number {
    const cursor = Number(params['cursor'])
    assert.equal(cursor, at + 1, 'no hole, and nothing twice')
    assert.equal(String(params['data']).length > 0, true)
    this.#taken = Math.max(this.#taken, cursor)
    return cursor
  }

  #missing({ from, to }: { from: number; to: number }, at: number): number {
    assert.equal(from, at + 1)
    assert.ok(to >= from && to <= this.#taken, 'what is missing was sent once')
    const behind = this.#sizes.slice(from - 1).reduce((sum, size) => sum + size, 0)
    assert.ok(behind > MAX_EVENT_LOG_BYTES, 'as much as that is kept')
    return to
  }
}
