import { type WaitLimits, Condition } from '../../base/wait-queue.ts'
import { EVENT_COST, MAX_EVENT_SESSIONS, MAX_KEPT_CHARACTERS, MAX_KEPT_EVENTS, MAX_KEPT_IN_ALL } from '../limits/events.ts'
import { type LifecycleEvent, type LifecycleFacts, lifecycleEvent } from './lifecycle.ts'

export interface Numbered {
  /** From 1. */
  readonly n: number
}

export interface EventHistoryInit<E> {
  /** Maximum number of events in each queue. */
  readonly max: number
  readonly maxCost: number
  readonly maxKeys: number
  /** Maximum cost of all queues. Above it, the oldest event of the largest queue is evicted. */
  readonly maxKeysCost: number
  readonly costOf: (event: E) => number
}

/** The events after a number, oldest first. */
export interface EventPage<E> {
  readonly events: readonly E[]
  /** Number of the last evicted event after the requested number, or null if all are stored. */
  readonly droppedThrough: number | null
}

/** The newest events within the limits. */
class Queue<E extends Numbered> {
  readonly #init: EventHistoryInit<E>
  #events: E[] = []
  /** Index of the oldest event. Earlier ones are removed from time to time. */
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

  /** Index of the first event after this number. */
  #behind(since: number): number {
    let [low, high] = [this.#first, this.#events.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.#events[middle]!.n > since) high = middle
      else low = middle + 1
    }
    return low
  }

  drop(): void {
    const gone = this.#events[this.#first]!
    this.#events[this.#first] = undefined as unknown as E
    this.#first += 1
    this.#cost -= this.#init.costOf(gone)
    this.#droppedThrough = gone.n
  }
}

/**
 * The newest events in memory, of all keys and of each key. A reader keeps the number of its last event, so that readers need no memory
 * here. A reader that is too slow learns which events were evicted.
 */
export class EventHistory<E extends Numbered> {
  readonly #init: EventHistoryInit<E>
  readonly #all: Queue<E>
  readonly #keys = new Map<string, Queue<E>>()
  readonly #waiters = new Condition()
  #last = 0
  /** The newest event of an evicted key. */
  #forgottenThrough = 0

  constructor(init: EventHistoryInit<E>) {
    this.#init = init
    this.#all = new Queue(init, 0)
  }

  get last(): number {
    return this.#last
  }

  /** `make` returns the event with its number. Key null for events without a key. */
  add(key: string | null, make: (n: number) => E): E {
    this.#last += 1
    const event = make(this.#last)
    this.#all.push(event)
    if (key !== null) this.#push(key, event)
    this.#waiters.notifyAll()
    return event
  }

  /** Events of a key, or of all if it is null. */
  readSince(key: string | null, since: number, limit: number): EventPage<E> {
    const queue = key === null ? this.#all : this.#keys.get(key)
    if (queue !== undefined) return queue.readSince(since, limit)
    return { events: [], droppedThrough: this.#forgottenThrough > since ? this.#forgottenThrough : null }
  }

  /** Resolves with the next event, or by the limits of `patience`. */
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

/** Characters of a stored event, with an upper bound of the fields other than its tail. */
const costOf = ({ tail }: LifecycleEvent): number => EVENT_COST + (tail?.length ?? 0)

/** Run events of one process, by session and in all. */
export class LifecycleLog {
  /** ID of this log. Numbers of another log are unrelated. */
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

  /** Adds an event. One of another log gets a new number and keeps its time. */
  add(facts: LifecycleFacts): LifecycleEvent {
    const { ts = new Date(this.#now()).toISOString() } = facts
    return this.#kept.add(facts.session, (n) => ({ ...lifecycleEvent(facts, { n, ts }), n }))
  }

  get last(): number {
    return this.#kept.last
  }

  /** Events of a session, or of all if it is null. */
  readSince(session: string | null, since: number, limit: number): EventPage<LifecycleEvent> {
    return this.#kept.readSince(session, since, limit)
  }

  /** Resolves with the next event, or by the limits of `patience`. */
  async wait(patience: WaitLimits): Promise<void> {
    await this.#kept.wait(patience)
  }
}
