import { AppError } from '../../base/errors.ts'
import { Turnstile } from '../../base/turnstile.ts'
import { Waiters } from '../../base/waiters.ts'
import { MAX_RPC_PENDING } from '../../protocol/rexd-limits.ts'
import type { BatchRoom } from './batch-answers.ts'

/** Questions of one connection that wait for a program or an event. */
export const MAX_RPC_WAITS = 1_024

/** A call's place among those in work. */
export interface Place {
  /** Leaves the place while it waits, and takes one again. Throws `resource_limit` where too many wait, and the signal's reason when nobody asks any more. */
  outside<T>(wait: () => Promise<T>): Promise<T>
  /** May be called more than once. */
  leave(): void
}

/** The calls of one connection, or of all that ask by POST: so many are in work at once, and so many wait for programs and events. */
export class CallPlaces {
  /** Characters of the answers to batches that are not said yet. */
  readonly batches: BatchRoom = { taken: 0 }
  readonly #turnstile = new Turnstile({ limit: MAX_RPC_PENDING })
  /** Calls that have a place, or want one. */
  #asked = 0
  #outside = 0
  readonly #changed = new Waiters()

  /** Throws the signal's reason. */
  async enter(signal: AbortSignal): Promise<Place> {
    let leave = await this.#enter(signal)
    return {
      leave: () => leave(),
      outside: async (wait) => {
        if (this.#outside >= MAX_RPC_WAITS) throw tooManyWait()
        leave()
        this.#outside += 1
        try {
          return await wait()
        } finally {
          this.#outside -= 1
          leave = await this.#enter(signal)
        }
      },
    }
  }

  /** Nobody would have to wait for a place. */
  get free(): boolean {
    return this.#turnstile.free
  }

  /** Resolves when a place is free. */
  async room(): Promise<void> {
    while (!this.free) await this.#changed.next()
  }

  /** Resolves when everything that was asked is answered, but for what waits outside. */
  async idle(): Promise<void> {
    while (this.#asked > 0) await this.#changed.next()
  }

  async #enter(signal: AbortSignal): Promise<() => void> {
    this.#asked += 1
    const done = (): void => {
      this.#asked -= 1
      this.#changed.wake()
    }
    try {
      const leave = await this.#turnstile.enter(signal)
      let inside = true
      return () => {
        if (!inside) return
        inside = false
        leave()
        done()
      }
    } catch (error) {
      done()
      throw error
    }
  }
}

const tooManyWait = (): AppError =>
  new AppError('resource_limit', `${MAX_RPC_WAITS} questions wait for programs and events, which is all that may`, {
    data: { limit: 'waits', max: MAX_RPC_WAITS },
  })
