import type { AgentId } from '../protocol/ids.ts'
import { MAX_PIECES_UNACKED, MAX_STDIN_HELD } from '../protocol/limits/wire.ts'
import type { Caps } from './mesh/acl.ts'

/** The right to one running program. */
export interface Slot {
  /** Gives it back, where `after` is given when that has come; later calls do nothing. */
  release(after?: Promise<unknown> | null): void
}

/** How many programs run now, of whom, and what of their stdin may be held back; hands out slots while the caps allow. */
export class Slots {
  #perAgent: number
  #total: number
  readonly #running = new Map<AgentId, number>()
  #active = 0
  #stdinBytes = 0

  constructor(caps: Pick<Caps, 'max_concurrent_per_agent' | 'max_concurrent_total'>) {
    this.#perAgent = caps.max_concurrent_per_agent
    this.#total = caps.max_concurrent_total
  }

  /** From now on; who has more already keeps them to their ends. */
  limit(caps: Pick<Caps, 'max_concurrent_per_agent' | 'max_concurrent_total'>): void {
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

  /** Stdin that the running programs may be sent ahead, in bytes. */
  get stdinBytes(): number {
    return this.#stdinBytes
  }

  /** Null when this agent or the host has as many as it may. `stdin`: the bytes that were announced. */
  reserve(agent: AgentId, stdin = 0): Slot | null {
    const own = this.#running.get(agent) ?? 0
    const ahead = Math.min(stdin, MAX_PIECES_UNACKED)
    if (own >= this.#perAgent || this.#active >= this.#total || this.#stdinBytes + ahead > MAX_STDIN_HELD) return null
    this.#running.set(agent, own + 1)
    this.#active += 1
    this.#stdinBytes += ahead
    let held = true
    return {
      release: (after) => {
        if (!held) return
        held = false
        this.#stdinBytes -= ahead
        if (after) void after.catch(() => undefined).then(() => this.#free(agent))
        else this.#free(agent)
      },
    }
  }

  #free(agent: AgentId): void {
    this.#active -= 1
    const left = (this.#running.get(agent) ?? 0) - 1
    if (left > 0) this.#running.set(agent, left)
    else this.#running.delete(agent)
  }
}
