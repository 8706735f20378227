import { type WaitLimits, Condition } from '../../base/wait-queue.ts'
import { EVENT_COST, MAX_EVENT_SESSIONS, MAX_KEPT_CHARACTERS, MAX_KEPT_EVENTS, MAX_KEPT_IN_ALL } from '../limits/events.ts'
import { type LifecycleEvent, type LifecycleFacts, lifecycleEvent } from './lifecycle.ts'

/** An event as it is kept. */
export interface Numbered {
  /** From 1. */
  readonly n: number
}

export interface EventHistoryInit<E> {
  /** Events, and their costs together, that are kept in each queue. */
  readonly max: number
  readonly maxCost: number
  readonly maxKeys: number
  /** Costs of the queues of all keys together: above it the oldest of the largest queue goes. */
  readonly maxKeysCost: number
  readonly costOf: (event: E) => number
}

/** What a look gives: the events behind a number, oldest first. */
export interface EventPage<E> {
  readonly events: readonly E[]
  /** Behind the number some came that are not kept any more, the last of them with this one; null: none did. */
  readonly droppedThrough: number | null
}

/** The newest events, as many as may be. */
class Queue<E extends Numbered> {
  readonly #init: EventHistoryInit<E>
  #events: E[] = []
  /** The events before it are gone; they are cut off now and then. */
  #first = 0
  #cost = 0
  #droppedThrough: number

  constructor(init: EventHistoryInit<E>, droppedThrough: number) {
    this.#init = init
    this.#droppedThrough = droppedThrough
  }

  get last(): number {
    return this.#events.at(-1)?.n ?? this.#droppedThrough
  }

  get cost(): number {
    return this.#cost
  }

  push(event: E): void {
    const { max, maxCost, costOf } = this.#init
    this.#events.push(event)
    this.#cost += costOf(event)
    while (this.#events.length - this.#first > max || (this.#cost > maxCost && this.#events.length - this.#first > 1)) this.drop()
    if (this.#first < max) return
    this.#events = this.#events.slice(this.#first)
    this.#first = 0
  }

  readSince(since: number, limit: number): EventPage<E> {
    const begin = this.#behind(since)
    return {
      events: this.#events.slice(begin, begin + limit),
      droppedThrough: this.#droppedThrough > since ? this.#droppedThrough : null,
    }
  }

  /** Where the events behind this number begin. */
  #behind(since: number): number {
    let [low, high] = [this.#first, this.#events.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.#events[middle]!.n > since) high = middle
      else low = middle + 1
    }
    return low
  }

  /** The oldest. */
  drop(): void {
    const gone = this.#events[this.#first]!
    this.#events[this.#first] = undefined as unknown as E
    this.#first += 1
    this.#cost -= this.#init.costOf(gone)
    this.#droppedThrough = gone.n
  }
}

/**
 * Events in memory, the newest of all and the newest of each key, however many come. Who reads them keeps the number that he has
 * come to, and a reader who is slow, gone or never there costs nothing: what was dropped meanwhile is told to him as dropped.
 */
export class EventHistory<E extends Numbered> {
  readonly #init: EventHistoryInit<E>
  readonly #all: Queue<E>
  readonly #keys = new Map<string, Queue<E>>()
  readonly #waiters = new Condition()
  #last = 0
  /** The newest event of a key that was forgotten. */
  #forgottenThrough = 0

  constructor(init: EventHistoryInit<E>) {
    this.#init = init
    this.#all = new Queue(init, 0)
  }

  /** The number of the newest. */
  get last(): number {
    return this.#last
  }

  /** `make` makes the event with its number. Key null: of none. */
  add(key: string | null, make: (n: number) => E): E {
    this.#last += 1
    const event = make(this.#last)
    this.#all.push(event)
    if (key !== null) this.#push(key, event)
    this.#waiters.notifyAll()
    return event
  }

  /** Of a key, or of all where it is null. */
  readSince(key: string | null, since: number, limit: number): EventPage<E> {
    const queue = key === null ? this.#all : this.#keys.get(key)
    if (queue !== undefined) return queue.readSince(since, limit)
    return { events: [], droppedThrough: this.#forgottenThrough > since ? this.#forgottenThrough : null }
  }

  /** Resolves when another event has come, or as patience has it. */
  async wait(patience: WaitLimits): Promise<void> {
    await this.#waiters.waitAtMost(patience)
  }

  #push(key: string, event: E): void {
    this.#queueOf(key).push(event)
    const queues = [...this.#keys.values()]
    let cost = queues.reduce((sum, one) => sum + one.cost, 0)
    while (cost > this.#init.maxKeysCost && queues.length > 1) {
      const largest = queues.reduce((most, one) => (one.cost > most.cost ? one : most))
      cost -= largest.cost
      largest.drop()
      cost += largest.cost
    }
  }

  #queueOf(key: string): Queue<E> {
    const queue = this.#keys.get(key) ?? new Queue(this.#init, this.#forgottenThrough)
    this.#keys.delete(key)
    this.#keys.set(key, queue)
    if (this.#keys.size > this.#init.maxKeys) this.#forgetOldest()
    return queue
  }

  #forgetOldest(): void {
    const [key, queue] = this.#keys.entries().next().value!
    this.#forgottenThrough = Math.max(this.#forgottenThrough, queue.last)
    this.#keys.delete(key)
  }
}

/** Characters of an event that are kept: those of its tail, and a bound of the rest. */
const costOf = ({ tail }: LifecycleEvent): number => EVENT_COST + (tail?.length ?? 0)

/** The events of runs of one process: of each session, and of all. */
export class LifecycleLog {
  /** Of this log alone: numbers of another mean nothing here. */
  readonly id: string
  readonly #now: () => number
  readonly #kept = new EventHistory<LifecycleEvent>({
    max: MAX_KEPT_EVENTS,
    maxCost: MAX_KEPT_CHARACTERS,
    maxKeys: MAX_EVENT_SESSIONS,
    maxKeysCost: MAX_KEPT_IN_ALL,
    costOf,
  })

  constructor(init: { readonly id: string; readonly now: () => number }) {
    this.id = init.id
    this.#now = init.now
  }

  /** An event of another log gets a number of this one, and keeps its time. */
  add(facts: LifecycleFacts): LifecycleEvent {
    const { ts = new Date(this.#now()).toISOString() } = facts
    return this.#kept.add(facts.session, (n) => ({ ...lifecycleEvent(facts, { n, ts }), n }))
  }

  get last(): number {
    return this.#kept.last
  }

  /** Of a session, or of all where it is null. */
  readSince(session: string | null, since: number, limit: number): EventPage<LifecycleEvent> {
    return this.#kept.readSince(session, since, limit)
  }

  /** Resolves when another event has come, or as patience has it. */
  async wait(patience: WaitLimits): Promise<void> {
    await this.#kept.wait(patience)
  }
}
