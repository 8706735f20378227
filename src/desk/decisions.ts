import { AppError, errorText } from '../base/errors.ts'
import type { ApprovalOutcome } from '../journal/desk-events.ts'
import { ANSWER_FRESH_MS, sealAnswer } from '../policy/approval/approval.ts'
import type { HumanDecision, PendingApprovalRequest } from '../protocol/desk/messages.ts'
import { unallowable } from '../protocol/desk/approval-request-size.ts'
import {
  type ApprovalAnswer,
  DECISIONS,
  type Decision,
  type ApprovalRequest,
  type SealedAnswer,
} from '../protocol/desk/approval-request.ts'
import { MAX_OPAQUE_GRANT_MS, grantBounds } from '../protocol/limits/approvals.ts'
import { storeProblem } from './approval-store.ts'
import { newNonce } from './seal.ts'
import { tokenBytes } from './store-format.ts'
import type { DeskServices } from './services.ts'

export interface Settled {
  readonly decision: string
  readonly by: string
}

/** The end of a request: `decision` goes to the requester, `outcome` to the approval log. */
export interface Ending {
  readonly decision: ApprovalAnswer
  readonly outcome: ApprovalOutcome
  readonly by: string
  readonly reason: string
}

export const denial = (decision: 'deny' | 'no_ui' | 'timeout', reason: string): Ending => ({
  decision,
  outcome: decision === 'deny' ? 'denied' : decision === 'timeout' ? 'timed_out' : 'no_ui',
  by: 'desk',
  reason,
})

/** The request cannot be shown to an approver completely. */
export const truncatedRest = (reason: string): Ending => ({ ...denial('deny', reason), outcome: 'not_shown' })

export const tooMany = (): Ending =>
  denial('deny', 'it has too many open approval requests, or sent too many at once: denied without an approver')

export const unanswered = (why: 'no_ui' | 'timeout'): Ending =>
  denial(why, why === 'timeout' ? 'no approver answered in time' : 'every approver disconnected before one answered')

export const stopping = (): Ending => denial('deny', 'the approval service is stopping')

export const byApprover = (by: string, isAllowed: boolean, reason = ''): Ending => ({
  decision: isAllowed ? 'allow' : 'deny',
  outcome: isAllowed ? 'allowed' : 'denied',
  by: `human:${by}`,
  reason,
})

export const withdrawn = (engine: string): Ending => ({
  decision: 'deny',
  outcome: 'withdrawn',
  by: engine,
  reason: 'its requester has gone',
})

export const decidedBy = ({ decision, by }: Settled): AppError =>
  new AppError('conflict', `it is ${decision} already, by ${by}`, { data: { won_by: by, decision } })

/** The decisions that an approver can choose; "always" only if it would take effect. */
export const decisionsFor = (mayLast: boolean): readonly Decision[] => DECISIONS.filter((one) => one !== 'allow_always' || mayLast)

/** Throws `bad_request` for a decision that the request does not permit. */
export const checkDecision = (
  { question, decisions }: PendingApprovalRequest,
  { decision, expires_in_ms: lasts, uses }: HumanDecision,
): void => {
  const problem = decision === 'deny' ? null : unallowable(question)
  if (problem !== null) throw new AppError('bad_request', `it cannot be allowed: ${problem}`)
  if (decision !== 'allow_always') {
    if (lasts !== undefined || uses !== undefined)
      throw new AppError('bad_request', `an expiry and uses need allow_always, not ${decision}`)
    return
  }
  if (decisions.includes(decision)) {
    const { most } = grantBounds(question.opaque)
    if (lasts === undefined || lasts <= most) return
    const hours = MAX_OPAQUE_GRANT_MS / 3_600_000
    throw new AppError('bad_request', `this command may run others, so it may be allowed for at most ${hours} hours, not ${lasts} ms`)
  }
  if (question.always_ask !== null) throw new AppError('bad_request', `it needs approval each time (${question.always_ask}): allow it once`)
  if (question.grant_sha256 === null)
    throw new AppError('bad_request', 'this may be allowed only once: the command of a later run is not known')
  throw new AppError('bad_request', 'ask is "always" for this AI agent, so a grant has no effect: allow it once')
}

/** No approver can be asked, for the reason `why`. */
export const unavailable = (why: string, cause?: unknown): AppError =>
  new AppError('approval_unavailable', `${why}; nothing was allowed`, { cause })

const unwritten = (error: unknown): AppError => unavailable(`the approval log cannot be written (${errorText(error)})`, error)

/** Logs requests and decisions before it signs the answers for the engine with a MAC. */
export class DecisionSigner {
  readonly #deps: Pick<DeskServices, 'clock' | 'journal' | 'store'>

  constructor(deps: Pick<DeskServices, 'clock' | 'journal' | 'store'>) {
    this.#deps = deps
  }

  /** Throws `approval_unavailable` if the log cannot be written; so does `ended`. */
  async asked(id: string, question: ApprovalRequest, engine: string): Promise<void> {
    await this.#deps.journal.asked(id, question, engine).catch((error: unknown) => {
      throw unwritten(error)
    })
  }

  async ended(id: string, { permit_sha256 }: ApprovalRequest, { outcome, by, reason }: Ending): Promise<void> {
    await this.#deps.journal.settled({ question_id: id, permit_sha256, outcome, by, reason }).catch((error: unknown) => {
      throw unwritten(error)
    })
  }

  async close(id: string, question: ApprovalRequest, ending: Ending): Promise<SealedAnswer> {
    await this.ended(id, question, ending)
    return this.seal(id, question, ending)
  }

  /** Throws `approval_unavailable` if the key cannot be read from the store. */
  async seal(id: string, { permit_sha256 }: ApprovalRequest, { decision, by, reason }: Ending): Promise<SealedAnswer> {
    const { clock, store } = this.#deps
    const expires_at_ms = clock.now() + ANSWER_FRESH_MS
    try {
      const key = tokenBytes(await store.read())
      return sealAnswer({ question_id: id, permit_sha256, decision, by, reason, expires_at_ms, nonce: newNonce() }, key)
    } catch (error) {
      throw unavailable(storeProblem(error), error)
    }
  }
}
