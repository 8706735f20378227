interface Waiting {
  readonly places: number
  readonly go: () => void
}

/** A counting semaphore with `limit` slots. It is fair: a caller that needs more slots than are free is not overtaken. */
export class Semaphore {
  readonly #limit: number
  readonly #queue: Waiting[] = []
  /** Slots in use. */
  #inside = 0

  constructor(init: { limit: number }) {
    this.#limit = init.limit
  }

  /** Whether a slot is free and nobody waits. */
  get free(): boolean {
    return this.#queue.length === 0 && this.#inside < this.#limit
  }

  /**
   * Waits for `places` slots (at most `limit`) and returns the function that releases them, which may be called twice. Throws the signal's
   * reason, and then holds none.
   */
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

  /** Runs `work` while it holds the slots. Throws the signal's reason if aborted before that. */
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

  /** Gives free slots to the callers that have waited longest. */
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
      // The caller has left the queue, because `#admit` gave it slots in this very turn.
      if (at === -1) this.#inside -= places
      else this.#queue.splice(at, 1)
      // The next callers may need fewer slots.
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

/** A semaphore for each key, while it is used. */
export class KeyedSemaphore<K> {
  readonly #limit: number
  readonly #used = new Map<K, { readonly semaphore: Semaphore; users: number }>()

  /** `limit` is that of each key. */
  constructor(init: { limit: number }) {
    this.#limit = init.limit
  }

  /** Like `Semaphore.acquire` for one slot of the key. */
  async acquire(key: K, signal: AbortSignal): Promise<() => void> {
    const used = this.#used.get(key) ?? { semaphore: new Semaphore({ limit: this.#limit }), users: 0 }
    this.#used.set(key, used)
    used.users += 1
    let isCounted = true
    const left = (): void => {
      if (!isCounted) return
      isCounted = false
      used.users -= 1
      if (used.users === 0) this.#used.delete(key)
    }
    try {
      const leave = await used.semaphore.acquire(signal)
      return () => {
        leave()
        left()
      }
    } catch (error) {
      left()
      throw error
    }
  }
}
