import { MAX_EVENT_BACKLOG } from '../protocol/local-limits.ts'

/** One listener of a feed, read at its own speed. */
export interface Subscription<T> extends AsyncIterable<T> {
  close(): void
}

class Listener<T> implements Subscription<T> {
  readonly #onClose: () => void
  #backlog: T[] = []
  #wake: () => void = () => undefined
  #closed = false

  constructor(components: { onClose: () => void }) {
    this.#onClose = components.onClose
  }

  get backlog(): number {
    return this.#backlog.length
  }

  push(event: T): void {
    this.#backlog.push(event)
    this.#wake()
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#onClose()
    this.#wake()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    try {
      for (;;) {
        const events = this.#backlog
        this.#backlog = []
        yield* events
        if (this.#backlog.length > 0) continue
        if (this.#closed) return
        await new Promise<void>((resolve) => (this.#wake = resolve))
      }
    } finally {
      this.close()
    }
  }
}

/** Hands events to its subscribers. One that falls `MAX_EVENT_BACKLOG` events behind gets `lastWord` and is unsubscribed. */
export class EventFeed<T> {
  readonly #listeners = new Set<Listener<T>>()
  readonly #lastWord: () => T

  constructor(components: { lastWord: () => T }) {
    this.#lastWord = components.lastWord
  }

  get size(): number {
    return this.#listeners.size
  }

  subscribe(): Subscription<T> {
    const listener: Listener<T> = new Listener<T>({ onClose: () => this.#listeners.delete(listener) })
    this.#listeners.add(listener)
    return listener
  }

  /** How many subscribers got the event, and how many were unsubscribed instead. */
  push(event: T): { delivered: number; cutOff: number } {
    let cutOff = 0
    const before = this.#listeners.size
    for (const listener of this.#listeners) {
      if (listener.backlog < MAX_EVENT_BACKLOG) {
        listener.push(event)
        continue
      }
      cutOff += 1
      listener.push(this.#lastWord())
      listener.close()
    }
    return { delivered: before - cutOff, cutOff }
  }

  /** Ends every listener after what it still has to read. */
  close(): void {
    for (const listener of this.#listeners) listener.close()
  }
}
