interface Waiting {
  readonly places: number
  readonly go: () => void
}

/** A counting semaphore of `limit` places. Callers enter in the order in which they came: who needs more places than are free is not overtaken. */
export class Semaphore {
  readonly #limit: number
  readonly #queue: Waiting[] = []
  /** Places that are taken. */
  #inside = 0

  constructor(init: { limit: number }) {
    this.#limit = init.limit
  }

  /** True when nobody who needs one place would have to wait. */
  get free(): boolean {
    return this.#queue.length === 0 && this.#inside < this.#limit
  }

  /** Waits for its places, at most `limit`, and answers how to give them back, which may be called more than once. Throws the signal's reason, and holds none then. */
  async acquire(signal: AbortSignal, places = 1): Promise<() => void> {
    signal.throwIfAborted()
    if (this.#queue.length === 0 && this.#inside + places <= this.#limit) this.#inside += places
    else await this.#wait(signal, places)
    let inside = true
    return () => {
      if (inside) this.#leave(places)
      inside = false
    }
  }

  /** Does the work in its places. Throws the signal's reason where that is aborted before its turn, and what the work throws. */
  async use<T>(signal: AbortSignal, work: () => Promise<T>, places = 1): Promise<T> {
    const leave = await this.acquire(signal, places)
    try {
      return await work()
    } finally {
      leave()
    }
  }

  #leave(places: number): void {
    this.#inside -= places
    this.#admit()
  }

  /** Passes free places on to the callers that have waited longest. */
  #admit(): void {
    for (let [next] = this.#queue; next !== undefined && this.#inside + next.places <= this.#limit; [next] = this.#queue) {
      this.#queue.shift()
      this.#inside += next.places
      next.go()
    }
  }

  async #wait(signal: AbortSignal, places: number): Promise<void> {
    const { promise, resolve: go } = Promise.withResolvers<void>()
    const waiting: Waiting = { places, go }
    const abort = (): void => {
      const at = this.#queue.indexOf(waiting)
      // Not in the queue any more: `#admit` has passed places on to this caller in this very turn.
      if (at === -1) this.#inside -= places
      else this.#queue.splice(at, 1)
      // Those behind it may need fewer than it did.
      this.#admit()
      go()
    }
    this.#queue.push(waiting)
    signal.addEventListener('abort', abort, { once: true })
    await promise
    signal.removeEventListener('abort', abort)
    signal.throwIfAborted()
  }
}
