/** So many at once; the others wait their turn, in order. */
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

  /** Answers how to leave, which may be called more than once. Throws the signal's reason when it ends the wait. */
  async enter(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted()
    if (this.#inside >= this.#limit) await this.#wait(signal)
    else this.#inside += 1
    let inside = true
    return () => {
      if (inside) this.#leave()
      inside = false
    }
  }

  /** The place passes on to whoever has waited longest. */
  #leave(): void {
    const next = this.#queue.shift()
    if (next === undefined) this.#inside -= 1
    else next()
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const abort = (): void => {
      this.#queue.splice(this.#queue.indexOf(resolve), 1)
      reject(signal.reason as Error)
    }
    this.#queue.push(resolve)
    signal.addEventListener('abort', abort, { once: true })
    try {
      await promise
    } finally {
      signal.removeEventListener('abort', abort)
    }
  }
}
