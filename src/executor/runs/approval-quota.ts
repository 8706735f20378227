import type { Clock } from '../../base/clock.ts'
import { RateLimit } from '../../base/rate-limit.ts'
import type { AgentId } from '../../protocol/ids.ts'
import {
  MAX_WAITING_OF_AGENT,
  MAX_WAITING_RUNS,
  MAX_WAITING_STDIN,
  MAX_WAITING_STDIN_OF_AGENT,
  QUESTIONS_PER_SECOND,
  QUESTION_BURST,
} from '../../protocol/limits/approvals.ts'
import { MAX_PIECES_UNACKED } from '../../protocol/limits/wire.ts'

interface WaitingRun {
  readonly agentId: AgentId
  /** Bytes of stdin that may arrive before the start. */
  readonly ahead: number
}

/** Limits runs that wait for an approval and the stdin that they hold, because they have no slot. */
export class ApprovalQuota {
  readonly #rate: RateLimit
  readonly #runs = new Set<WaitingRun>()

  constructor(deps: { readonly clock: Clock }) {
    this.#rate = new RateLimit(deps, { burst: QUESTION_BURST, perSecond: QUESTIONS_PER_SECOND })
  }

  /** Returns a function that leaves the quota, or a text that says why the run has no room. `stdinLength` is the announced bytes. */
  enter(agentId: AgentId, stdinLength: number): (() => void) | string {
    const all = [...this.#runs]
    const own = all.filter((run) => run.agentId === agentId)
    const ahead = Math.min(stdinLength, MAX_PIECES_UNACKED)
    const stdinOf = (runs: readonly WaitingRun[]): number => runs.reduce((sum, run) => sum + run.ahead, ahead)
    if (own.length >= MAX_WAITING_OF_AGENT) return `${own.length} runs of this agent wait for an approval already`
    if (all.length >= MAX_WAITING_RUNS) return `${all.length} runs wait for an approval already`
    if (stdinOf(all) > MAX_WAITING_STDIN || stdinOf(own) > MAX_WAITING_STDIN_OF_AGENT)
      return 'runs that wait for an approval hold the maximum of stdin'
    if (!this.#rate.allows(agentId)) return 'this agent has sent too many approval requests; try again in a moment'
    const run = { agentId, ahead }
    this.#runs.add(run)
    return () => void this.#runs.delete(run)
  }
}
