import type { AgentId } from '../protocol/ids.ts'
import { MAX_PIECES_UNACKED, MAX_STDIN_HELD } from '../protocol/limits/wire.ts'
import type { Caps } from './mesh/acl.ts'

/** The right to run one program. */
export interface Slot {
  /** Returns the slot, at once or when `after` settles. Later calls do nothing. */
  release(after?: Promise<unknown> | null): void
}

/** Counts running programs by agent and their pending stdin, and hands out slots within the limits. */
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

  /** Changes the limits. Running programs keep their slots. */
  limit(caps: Pick<Caps, 'max_concurrent_per_agent' | 'max_concurrent_total'>): void {
    this.#perAgent = caps.max_concurrent_per_agent
    this.#total = caps.max_concurrent_total
  }

  get active(): number {
    return this.#active
  }

  /** Agents without a running program are absent. */
  get activePerAgent(): Readonly<Record<AgentId, number>> {
    return Object.fromEntries(this.#running)
  }

  /** Bytes of stdin that the running programs may receive ahead of reading. */
  get stdinBytes(): number {
    return this.#stdinBytes
  }

  /** Null if the limit of this agent or host is reached. `stdin`: announced bytes. */
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
