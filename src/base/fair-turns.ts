import { BoundedMap } from './bounded.ts'
import type { Clock } from './clock.ts'
import { TokenBucket, type TokenBucketInit } from './token-bucket.ts'

export interface FairTurnsInit extends TokenBucketInit {
  /** How long one waits for its turn. */
  readonly patienceMs: number
  /** How many of one caller wait. */
  readonly waiting: number
  /** Callers whose last turn is remembered. */
  readonly callers: number
}

interface Waiter {
  readonly tokens: number
  readonly done: (isTurn: boolean) => void
}

/** How soon it is looked again whether there are tokens. */
const LOOK_MS = 50

/** A rate that callers share. Whose last turn is the longest ago goes first, so that one who asks without end is in the way of none but itself. */
export class FairTurns {
  readonly #clock: Clock
  readonly #init: FairTurnsInit
  readonly #bucket: TokenBucket
  /** The number of each caller's last turn. */
  readonly #served: BoundedMap<string, number>
  readonly #waiting = new Map<string, Waiter[]>()
  #turns = 0
  #looking = false

  constructor(components: { readonly clock: Clock }, init: FairTurnsInit) {
    this.#clock = components.clock
    this.#init = init
    this.#bucket = new TokenBucket(components, init)
    this.#served = new BoundedMap({ max: init.callers })
  }

  /** Resolves to whether its turn has come, which takes so many tokens; false where too many of this caller wait, or its time is up. */
  async take(caller: string, tokens: number): Promise<boolean> {
    if (this.#waiting.size === 0 && this.#bucket.take(tokens)) {
      this.#note(caller)
      return true
    }
    const own = this.#waiting.get(caller) ?? []
    if (own.length >= this.#init.waiting) return false
    const { promise, resolve: done } = Promise.withResolvers<boolean>()
    const waiter: Waiter = { tokens, done }
    this.#waiting.set(caller, [...own, waiter])
    const late = this.#clock.setTimeout(() => this.#leave(caller, waiter, false), this.#init.patienceMs)
    this.#look()
    return promise.finally(() => late.cancel())
  }

  #look(): void {
    if (this.#looking || this.#waiting.size === 0) return
    this.#looking = true
    this.#clock.setTimeout(() => {
      this.#looking = false
      this.#pass()
      this.#look()
    }, LOOK_MS)
  }

  #pass(): void {
    for (let next = this.#next(); next !== null && this.#bucket.take(next.waiter.tokens); next = this.#next()) {
      this.#note(next.caller)
      this.#leave(next.caller, next.waiter, true)
    }
  }

  #next(): { readonly caller: string; readonly waiter: Waiter } | null {
    let first: { readonly caller: string; readonly waiter: Waiter; readonly at: number } | null = null
    for (const [caller, [waiter]] of this.#waiting) {
      const at = this.#served.get(caller) ?? 0
      if (waiter !== undefined && (first === null || at < first.at)) first = { caller, waiter, at }
    }
    return first
  }

  #note(caller: string): void {
    this.#turns += 1
    this.#served.set(caller, this.#turns)
  }

  #leave(caller: string, waiter: Waiter, isTurn: boolean): void {
    const others = (this.#waiting.get(caller) ?? []).filter((one) => one !== waiter)
    if (others.length === 0) this.#waiting.delete(caller)
    else this.#waiting.set(caller, others)
    waiter.done(isTurn)
  }
}
