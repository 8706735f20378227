import type { Clock } from '../../base/clock.ts'
import { Waiters } from '../../base/waiters.ts'

/** Names that a human has paused: beyond this the oldest goes on. */
const MAX_PAUSED = 256

/** Agents whose new commands wait until a human lets them go on. */
export class PausedAgents {
  readonly #clock: Clock
  readonly #paused = new Map<string, Waiters>()

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  pause(whoami: string): void {
    if (this.#paused.has(whoami)) return
    this.#paused.set(whoami, new Waiters())
    const [oldest] = this.#paused.keys()
    if (this.#paused.size > MAX_PAUSED && oldest !== undefined) this.resume(oldest)
  }

  resume(whoami: string): void {
    const waiters = this.#paused.get(whoami)
    this.#paused.delete(whoami)
    waiters?.wake()
  }

  has(whoami: string): boolean {
    return this.#paused.has(whoami)
  }

  /** Resolves when the agent may go on. Throws the signal's reason. */
  async pass(whoami: string, signal: AbortSignal): Promise<void> {
    for (let waiters = this.#paused.get(whoami); waiters !== undefined; waiters = this.#paused.get(whoami)) {
      await waiters.wait({ clock: this.#clock, timeoutMs: null, signal })
      signal.throwIfAborted()
    }
  }
}
