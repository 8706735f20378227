import { BoundedMap } from '../../base/bounded.ts'
import type { Clock } from '../../base/clock.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import { Turnstile } from '../../base/turnstile.ts'
import { ASK_PACE } from '../../protocol/detach-limits.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { pause } from './one-answer.ts'

/** Agents whose pace is remembered. */
const MAX_PACES = 1_024

interface Pace {
  readonly meter: TokenBucket
  /** Whoever came first asks first. */
  readonly line: Turnstile
}

/** How fast questions about detached runs are asked: an agent hangs up on whoever asks it faster. */
export class AskPace {
  readonly #clock: Clock
  readonly #paces = new BoundedMap<AgentId, Pace>({ max: MAX_PACES })

  constructor(components: { readonly clock: Clock }) {
    this.#clock = components.clock
  }

  /** Resolves when one more question may be asked of this agent. Throws the signal's reason. */
  async turn(agentId: AgentId, signal: AbortSignal): Promise<void> {
    const known = this.#paces.get(agentId)
    const pace = known ?? { meter: new TokenBucket({ clock: this.#clock }, ASK_PACE), line: new Turnstile({ limit: 1 }) }
    if (known === undefined) this.#paces.set(agentId, pace)
    await pace.line.within(signal, async () => {
      while (!pace.meter.take()) await pause(this.#clock, 1_000 / ASK_PACE.perSecond, signal)
    })
  }
}
