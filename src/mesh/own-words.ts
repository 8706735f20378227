import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { TokenBucket } from '../base/token-bucket.ts'
import { PRESENCES_PER_MINUTE } from '../protocol/limits.ts'

/** Presences of this machine: a burst and a rate, together no more than others accept of one machine in any minute. */
export const OWN_WORDS_BURST = 4
export const OWN_WORDS_PER_MINUTE = PRESENCES_PER_MINUTE - OWN_WORDS_BURST
/** They are at least this far apart. */
export const MIN_SPACING_MS = 1_000
/** Of each pause, so that a fleet that starts together, or that heard the same newcomer, does not speak in step. */
export const JITTER = 0.2

export interface OwnWordsComponents {
  readonly clock: Clock
  readonly log: Logger
}

export interface OwnWordsInit {
  make(): Promise<Uint8Array>
  publish(word: Uint8Array): Promise<void>
  /** How long after a word the next one is due, in milliseconds. */
  pauseMs(): number
}

/** When a daemon says something of itself on a topic: of two times the earlier, and never more than others accept of one. */
export class OwnWords {
  readonly #clock: Clock
  readonly #log: Logger
  readonly #init: OwnWordsInit
  readonly #allowed: TokenBucket
  #timer: Timer | null = null
  #dueAt = 0
  #lastAt = Number.NEGATIVE_INFINITY
  #stopped = false

  constructor(components: OwnWordsComponents, init: OwnWordsInit) {
    this.#clock = components.clock
    this.#log = components.log
    this.#init = init
    this.#allowed = new TokenBucket(components, { burst: OWN_WORDS_BURST, perSecond: OWN_WORDS_PER_MINUTE / 60 })
  }

  start(): void {
    this.#stopped = false
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
    this.#timer = null
  }

  /** A word so long after the last one, and not before `atLeastMs` from now. */
  soon(spacingMs: number, atLeastMs = 0): void {
    const earliest = Math.max(atLeastMs, this.#lastAt + spacingMs - this.#clock.monotonic())
    this.in(earliest + Math.random() * MIN_SPACING_MS * JITTER)
  }

  in(ms: number): void {
    const at = this.#clock.monotonic() + ms
    if (this.#stopped || (this.#timer !== null && this.#dueAt <= at)) return
    this.#timer?.cancel()
    this.#dueAt = at
    this.#timer = this.#clock.setTimeout(() => void this.#say(), Math.ceil(ms), { unref: true })
  }

  async #say(): Promise<void> {
    this.#timer = null
    if (!this.#allowed.take()) return this.in(MIN_SPACING_MS)
    this.#lastAt = this.#clock.monotonic()
    try {
      const word = await this.#init.make()
      if (!this.#stopped) await this.#init.publish(word)
    } catch (error) {
      this.#log.debug({ err: errorText(error) }, 'the presence was not published')
    }
    this.in(this.#init.pauseMs())
  }
}
