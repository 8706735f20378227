import type { Clock } from '../../base/clock.ts'
import type { Question } from '../../policy/approval/question.ts'
import { type AgentsApproval, type Statement, type StatementOf, countStatements, eligible } from '../../policy/approval/statements.ts'
import { type AgentId, shortId } from '../../protocol/ids.ts'
import { MAX_APPROVAL_QUESTION } from '../../protocol/waiting-limits.ts'
import type { ApproverAsk, ApproverAsks } from './approver-asks.ts'

export interface CoApprovalComponents {
  readonly approvers: Pick<ApproverAsks, 'open'>
  readonly clock: Clock
}

export interface CoApprovalInit {
  readonly of: StatementOf
  readonly question: Question
  /** Called for every approval that comes. */
  onGiven(): void
}

/** Why the agents' approval is not there. */
export interface NotGiven {
  readonly reason: 'approval_denied' | 'approval_timeout'
  readonly detail: string
}

interface Said {
  readonly statement: Statement
  /** Now. */
  isTrusted(): boolean
}

/** The word of other agents on one run: asks all whom the entry names, and counts until enough have allowed it, or too few are left. */
export class CoApproval {
  readonly #components: CoApprovalComponents
  readonly #init: CoApprovalInit
  readonly #said: Said[] = []
  readonly #open = new Map<AgentId, () => void>()
  readonly #settled = Promise.withResolvers<AgentsApproval | NotGiven>()

  constructor(components: CoApprovalComponents, init: CoApprovalInit) {
    this.#components = components
    this.#init = init
  }

  /** What agents have said that are trusted now: an operator who blocks one in the meantime takes its word away. */
  get #statements(): Statement[] {
    return this.#said.filter(({ isTrusted }) => isTrusted()).map(({ statement }) => statement)
  }

  get given(): number {
    return this.#statements.filter(({ decision }) => decision === 'allow').length
  }

  get needed(): number {
    return this.#init.of.needed
  }

  /** Enough of those who have allowed it are trusted still. */
  get stands(): boolean {
    return this.given >= this.needed
  }

  /** Settles when it is decided, or the time is up; then nobody is asked any more. `signal`: it is not wanted any more. */
  async collect(signal: AbortSignal): Promise<AgentsApproval | NotGiven> {
    const { clock } = this.#components
    const { of } = this.#init
    const onAbort = (): void => this.#settle({ reason: 'approval_denied', detail: 'it is not wanted any more' })
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    const timer = clock.setTimeout(() => this.#late(), Math.max(0, of.expires_at_ms - clock.now()))
    try {
      if (!signal.aborted) this.#ask()
      return await this.#settled.promise
    } finally {
      timer.cancel()
      signal.removeEventListener('abort', onAbort)
      for (const withdraw of this.#open.values()) withdraw()
    }
  }

  #ask(): void {
    const { of, question } = this.#init
    const agents = eligible(of)
    // Else no frame can carry it beside its signature.
    if (Buffer.byteLength(JSON.stringify(question)) > MAX_APPROVAL_QUESTION)
      return this.#settle({ reason: 'approval_denied', detail: 'it is too long to be shown to other agents' })
    for (const agentId of agents) {
      const onStatement: ApproverAsk['onStatement'] = (statement, isTrusted) => this.#take(agentId, { statement, isTrusted })
      const withdraw = this.#components.approvers.open({ agentId, of, question, onStatement })
      if (withdraw !== null) this.#open.set(agentId, withdraw)
    }
    this.#look()
  }

  #take(agentId: AgentId, said: Said): void {
    this.#open.delete(agentId)
    this.#said.push(said)
    if (said.statement.decision === 'allow') this.#init.onGiven()
    this.#look()
  }

  #look(): void {
    const { of } = this.#init
    const approval = countStatements(this.#statements, of)
    if (approval !== null) return this.#settle(approval)
    if (this.given + this.#open.size >= of.needed) return
    this.#settle({ reason: 'approval_denied', detail: `${this.#sofar()}; too few are left that could` })
  }

  #late(): void {
    this.#settle({ reason: 'approval_timeout', detail: `${this.#sofar()}; no answer came from ${[...this.#open.keys()].join(', ')}` })
  }

  #sofar(): string {
    const of = (decision: Statement['decision']): string =>
      this.#statements
        .filter((one) => one.decision === decision)
        .map(({ agent_id }) => shortId(agent_id))
        .join(', ') || 'none'
    return `${this.given} of ${this.needed} approvals of other agents came (allowed: ${of('allow')}; refused: ${of('deny')})`
  }

  #settle(result: AgentsApproval | NotGiven): void {
    this.#settled.resolve(result)
  }
}
