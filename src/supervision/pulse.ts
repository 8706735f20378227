import type { Clock, Timer } from '../base/clock.ts'
import type { Startable } from '../base/startable.ts'

/** Questions without an answer, one after another, behind which a process counts as hung. */
const MISSED = 3
/** And so many more behind which it could not even be ended. */
const BEYOND_HELP = 3

export interface PulseInit {
  /** How long it may say nothing. */
  readonly patienceMs: number
  /** Asks it; resolves with its answer, if there is one. */
  readonly ask: () => Promise<void>
  /** Its answers stay away. Called once for each time that they do. */
  readonly onHung: () => void
}

/**
 * Whether another process works on its events: asked again and again, it answers. Questions are counted and not time, so
 * that a stop of ourselves, in which nobody asked, is held against nobody.
 */
export class Pulse implements Startable {
  readonly #clock: Clock
  readonly #init: PulseInit
  #timer: Timer | null = null
  #missed = 0
  #isOpen = false

  constructor(components: { clock: Clock }, init: PulseInit) {
    this.#clock = components.clock
    this.#init = init
  }

  start(): void {
    this.#next()
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  /** It is hung, and what should have followed has not. */
  get isBeyondHelp(): boolean {
    return this.#missed >= MISSED + BEYOND_HELP
  }

  #next(): void {
    this.#timer?.cancel()
    this.#timer = this.#clock.setTimeout(() => this.#beat(), this.#init.patienceMs / MISSED, { unref: true })
  }

  #beat(): void {
    this.#next()
    if (this.#isOpen) {
      this.#missed += 1
      if (this.#missed === MISSED) this.#init.onHung()
      return
    }
    this.#isOpen = true
    void this.#ask()
  }

  async #ask(): Promise<void> {
    await this.#init.ask()
    this.#isOpen = false
    this.#missed = 0
  }
}
