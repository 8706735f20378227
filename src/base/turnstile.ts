/** A counting semaphore: `limit` callers are inside at once, the others enter in the order in which they came. */
export class Turnstile {
  readonly #limit: number
  readonly #queue: (() => void)[] = []
  #inside = 0

  constructor(init: { limit: number }) {
    this.#limit = init.limit
  }

  /** True when nobody would have to wait. */
  get free(): boolean {
    return this.#inside < this.#limit
  }

  /** Waits for a place and answers how to give it back, which may be called more than once. Throws the signal's reason, and holds no place then. */
  async enter(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted()
    if (this.#inside < this.#limit) this.#inside += 1
    else await this.#wait(signal)
    let inside = true
    return () => {
      if (inside) this.#leave()
      inside = false
    }
  }

  /** Passes the place on to the caller that has waited longest. */
  #leave(): void {
    const next = this.#queue.shift()
    if (next === undefined) this.#inside -= 1
    else next()
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const abort = (): void => {
      const at = this.#queue.indexOf(resolve)
      if (at !== -1) this.#queue.splice(at, 1)
      // Not in the queue any more: `#leave` has passed a place on to this caller in this very turn.
      else this.#leave()
      resolve()
    }
    this.#queue.push(resolve)
    signal.addEventListener('abort', abort, { once: true })
    await promise
    signal.removeEventListener('abort', abort)
    signal.throwIfAborted()
  }
}
