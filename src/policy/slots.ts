import type { AgentId } from '../protocol/ids.ts'
import type { Caps } from './acl.ts'

/** The right to one running program. */
export interface Slot {
  /** Gives it back; later calls do nothing. */
  release(): void
}

/** How many programs run now, of whom; hands out slots while the caps allow. */
export class Slots {
  readonly #perAgent: number
  readonly #total: number
  readonly #running = new Map<AgentId, number>()
  #active = 0

  constructor(caps: Pick<Caps, 'max_concurrent_per_agent' | 'max_concurrent_total'>) {
    this.#perAgent = caps.max_concurrent_per_agent
    this.#total = caps.max_concurrent_total
  }

  get active(): number {
    return this.#active
  }

  /** Agents without a running program are not in it. */
  get activePerAgent(): Readonly<Record<AgentId, number>> {
    return Object.fromEntries(this.#running)
  }

  /** Null when this agent or the host has as many as it may. */
  reserve(agent: AgentId): Slot | null {
    const own = this.#running.get(agent) ?? 0
    if (own >= this.#perAgent || this.#active >= this.#total) return null
    this.#running.set(agent, own + 1)
    this.#active += 1
    let held = true
    return {
      release: () => {
        if (!held) return
        held = false
        this.#giveBack(agent)
      },
    }
  }

  #giveBack(agent: AgentId): void {
    this.#active -= 1
    const left = (this.#running.get(agent) ?? 0) - 1
    if (left > 0) this.#running.set(agent, left)
    else this.#running.delete(agent)
  }
}
