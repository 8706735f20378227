import type { Clock } from '../../base/clock.ts'
import { AppError, errorText, isAppError } from '../../base/errors.ts'
import type { DeskLink, Waiting } from '../../desk/desk-link.ts'
import { openApproval, SpentAnswers } from '../../policy/approval/open-approval.ts'
import type { Question, SignedAnswer } from '../../policy/approval/question.ts'
import { authorize, type Asked, type Intent, type PolicyContext, type Verdict } from '../../policy/mesh/authorize.ts'
import type { ExecRequest } from '../../protocol/exec.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import { MAX_APPROVAL_WAIT_MS } from '../../protocol/waiting-limits.ts'
import type { PeerLink } from '../links/links.ts'
import type { TrustJudge } from '../links/trust-judge.ts'
import type { EndCause } from './execution.ts'
import type { Reports, RunSubject } from './reports.ts'
import type { Admitted, Awaited, WaitingState } from './run-wait.ts'
import { WaitingRoom } from './waiting-room.ts'
import { WARNING_TEXT } from './warning-text.ts'

export interface ApprovalsComponents {
  readonly clock: Clock
  /** Null: nobody can be asked, so that nothing runs that somebody must allow. */
  readonly desk: DeskLink | null
  readonly judge: TrustJudge
  readonly policy: PolicyContext
  readonly reports: Reports
}

/** A verified request that somebody must allow. */
export interface AskedRun {
  readonly subject: RunSubject
  readonly intent: Intent
  readonly link: PeerLink
  readonly stdin: ExecRequest['stdin']
  readonly question: Asked['question']
}

export interface NotAllowed {
  readonly reason: DenialReason
  readonly detail: string
}

/** Requests of peers that a human of this host must allow: asks the desk, and lets policy decide anew with its answer. */
export class Approvals {
  readonly #components: ApprovalsComponents
  readonly #room: WaitingRoom
  readonly #spent = new SpentAnswers()

  constructor(components: ApprovalsComponents) {
    this.#components = components
    this.#room = new WaitingRoom(components)
  }

  /** What its run waits for, or why it may not even be asked about. */
  admit(asked: AskedRun): Awaited | NotAllowed {
    const { agentId, pair } = asked.link
    const leave = this.#room.enter({ agentId, pair, stdinLength: asked.stdin?.len ?? 0 })
    if (typeof leave === 'string') return { reason: 'concurrency_limit_reached', detail: leave }
    const withdrawn = new AbortController()
    return {
      settle: async (tell) => this.#settle(asked, tell, withdrawn.signal).finally(leave),
      withdraw: (cause) => withdrawn.abort(new Withdrawal(cause)),
    }
  }

  async #settle(asked: AskedRun, tell: (state: WaitingState) => void, withdrawn: AbortSignal): Promise<Admitted | Uint8Array> {
    const { reports } = this.#components
    const { subject, stdin } = asked
    const verdict = await this.#decide(asked, tell, withdrawn)
    if ('reason' in verdict) return reports.denied(subject, verdict.reason, verdict.detail)
    return { ...verdict, report: reports.of(subject, verdict.permit, stdin) }
  }

  async #decide(
    asked: AskedRun,
    tell: (state: WaitingState) => void,
    withdrawn: AbortSignal,
  ): Promise<Extract<Verdict, { kind: 'permit' }> | NotAllowed> {
    const { clock } = this.#components
    const late = new AbortController()
    const timer = clock.setTimeout(() => late.abort(new AppError('timeout', 'the desk did not answer in time')), MAX_APPROVAL_WAIT_MS)
    try {
      return this.#authorize(asked, await this.#ask(asked.question, tell, AbortSignal.any([withdrawn, late.signal])), withdrawn)
    } catch (error) {
      if (withdrawn.aborted) return withdrawalOf(withdrawn.reason)
      return {
        reason: isAppError(error, 'timeout') ? 'approval_timeout' : 'approval_denied',
        detail: `nobody could be asked: ${errorText(error)}`,
      }
    } finally {
      timer.cancel()
    }
  }

  async #ask(
    question: Question,
    tell: (state: WaitingState) => void,
    signal: AbortSignal,
  ): Promise<{ readonly answer: SignedAnswer; readonly questionId: string; readonly key: Uint8Array }> {
    const { clock, desk } = this.#components
    if (desk === null) throw new AppError('approval_unavailable')
    signal.throwIfAborted()
    let pending: Waiting | null = null
    const onPending = (waiting: Waiting): void => {
      pending = waiting
      const expiresAt = clock.monotonic() + Math.max(0, waiting.expires_at_ms - clock.now())
      tell({ expiresAt, approvals_needed: 0, approvals_given: 0, reason: 'human' })
    }
    const answer = await desk.ask(question, signal, onPending)
    signal.throwIfAborted()
    const told = pending as Waiting | null
    return { answer, questionId: told?.question_id ?? answer.question_id, key: desk.approvalKey() }
  }

  /** Everything is decided anew: who asks may have lost its trust meanwhile, or the program may be another. */
  #authorize(
    { intent, link, question }: AskedRun,
    { answer, questionId, key }: { readonly answer: SignedAnswer; readonly questionId: string; readonly key: Uint8Array },
    withdrawn: AbortSignal,
  ): Extract<Verdict, { kind: 'permit' }> | NotAllowed {
    const { clock, judge, policy } = this.#components
    if (withdrawn.aborted) return withdrawalOf(withdrawn.reason)
    const asked = { question_id: questionId, permit_sha256: question.permit_sha256 }
    const opened = openApproval(answer, asked, { key, now: clock.now(), spent: this.#spent })
    if (opened.kind === 'no_approval') return { reason: toldReason(opened.reason), detail: opened.detail }
    const { agentId: agent_id, machineId: machine_id } = link
    const principal = { kind: 'mesh', agent_id, machine_id, verified: true, trust: judge.decide(agent_id, machine_id) } as const
    const verdict = authorize(intent, principal, policy, opened.approval)
    if (verdict.kind === 'permit') return verdict
    if (verdict.kind === 'ask')
      return { reason: 'approval_denied', detail: `it was allowed, and must be asked again: ${verdict.question.why}` }
    return { reason: toldReason(verdict.reason), detail: verdict.detail }
  }
}

/** What ended the run while it waited. */
class Withdrawal extends AppError {
  readonly by: EndCause

  constructor(by: EndCause) {
    super('approval_denied', WARNING_TEXT[by])
    this.by = by
  }
}

const withdrawalOf = (reason: unknown): NotAllowed => {
  const revoked = reason instanceof Withdrawal && reason.by === 'access_revoked'
  return { reason: revoked ? 'trust_rejected' : 'approval_denied', detail: `the question was withdrawn: ${errorText(reason)}` }
}

/** A requester learns whether it was refused or too late. Why nobody could be asked concerns this host alone. */
const toldReason = (reason: DenialReason): DenialReason =>
  reason === 'approval_unavailable' || reason === 'approval_mismatch' ? 'approval_denied' : reason
