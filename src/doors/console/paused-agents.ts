import type { Clock } from '../../base/clock.ts'
import { Waiters } from '../../base/waiters.ts'

/** Names that a human has paused: beyond this no more are. */
const MAX_PAUSED = 256

/** Agents whose new commands wait until a human lets them go on. */
export class PausedAgents {
  readonly #clock: Clock
  readonly #names = new Set<string>()
  readonly #resumed = new Waiters()

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  get names(): ReadonlySet<string> {
    return this.#names
  }

  pause(whoami: string): void {
    if (this.#names.size < MAX_PAUSED) this.#names.add(whoami)
  }

  resume(whoami: string): void {
    this.#names.delete(whoami)
    this.#resumed.wake()
  }

  /** Resolves when the agent may go on. Throws the signal's reason. */
  async pass(whoami: string, signal: AbortSignal): Promise<void> {
    while (this.#names.has(whoami)) {
      await this.#resumed.wait({ clock: this.#clock, timeoutMs: null, signal })
      signal.throwIfAborted()
    }
  }
}
