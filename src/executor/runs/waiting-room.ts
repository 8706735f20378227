import type { Clock } from '../../base/clock.ts'
import { RateLimit } from '../../base/rate-limit.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { MAX_PIECES_UNACKED } from '../../protocol/limits.ts'
import {
  MAX_WAITING_OF_AGENT,
  MAX_WAITING_RUNS,
  MAX_WAITING_STDIN,
  MAX_WAITING_STDIN_OF_AGENT,
  QUESTION_BURST,
  QUESTIONS_PER_SECOND,
} from '../../protocol/waiting-limits.ts'

/** How many runs wait to be allowed, of whom, and what of their stdin may be held back: they have no slot that would bound them. */
export class WaitingRoom {
  /** Waiting runs of each agent, on whatever machines. */
  readonly #waitingOf = new Map<AgentId, number>()
  readonly #questions: RateLimit
  readonly #stdinOf = new Map<AgentId, number>()
  #waiting = 0
  #stdin = 0

  constructor(components: { readonly clock: Clock }) {
    this.#questions = new RateLimit(components, { burst: QUESTION_BURST, perSecond: QUESTIONS_PER_SECOND })
  }

  get waiting(): number {
    return this.#waiting
  }

  /** Answers how to leave, once; or why there is no room. `stdinLength`: as announced. */
  enter(agentId: AgentId, stdinLength: number): (() => void) | string {
    const own = this.#waitingOf.get(agentId) ?? 0
    const ahead = Math.min(stdinLength, MAX_PIECES_UNACKED)
    if (own >= MAX_WAITING_OF_AGENT) return `${own} runs of this agent wait for an approval already`
    if (this.#waiting >= MAX_WAITING_RUNS) return `${this.#waiting} runs wait for an approval already`
    if (this.#stdin + ahead > MAX_WAITING_STDIN || (this.#stdinOf.get(agentId) ?? 0) + ahead > MAX_WAITING_STDIN_OF_AGENT)
      return 'runs that wait for an approval hold all the stdin that they may'
    if (!this.#questions.allows(agentId)) return 'this agent has asked for approvals too often; a moment later it may again'
    this.#waitingOf.set(agentId, own + 1)
    this.#waiting += 1
    this.#hold(agentId, ahead)
    let inside = true
    return () => {
      if (!inside) return
      inside = false
      this.#waiting -= 1
      this.#hold(agentId, -ahead)
      const left = (this.#waitingOf.get(agentId) ?? 0) - 1
      if (left > 0) this.#waitingOf.set(agentId, left)
      else this.#waitingOf.delete(agentId)
    }
  }

  #hold(agentId: AgentId, bytes: number): void {
    this.#stdin += bytes
    const own = (this.#stdinOf.get(agentId) ?? 0) + bytes
    if (own > 0) this.#stdinOf.set(agentId, own)
    else this.#stdinOf.delete(agentId)
  }
}
