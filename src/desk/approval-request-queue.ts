import type { Clock } from '../base/clock.ts'
import { RateLimit } from '../base/rate-limit.ts'
import { isGivenLabel } from '../policy/modes.ts'
import type { PendingApprovalRequest } from '../protocol/desk/messages.ts'
import { type ApprovalRequest, provenAgent } from '../protocol/desk/approval-request.ts'
import {
  MAX_CLAIMED_JSON,
  MAX_CLAIMED_QUESTIONS,
  MAX_QUESTIONS,
  MAX_QUESTIONS_OF_ASKER,
  MAX_WAITING_JSON,
  MAX_WAITING_JSON_OF_ASKER,
  QUESTION_RATE,
} from '../protocol/limits/approvals.ts'

/** Name of the requester: the ID of a mesh agent, or the label of a local client. */
export const requesterName = ({ asker }: Pick<ApprovalRequest, 'asker'>): string => (asker.kind === 'mesh' ? asker.agent_id : asker.label)

/** Key under which a request is counted. A requester that another machine merely claims must not use up the slots of a local one. */
export const countedAs = (question: Pick<ApprovalRequest, 'asker' | 'target'>): string => provenAgent(question) ?? requesterName(question)

/** Whether the client chose its own label. Such a client could appear as many by changing its label. */
const isClaimed = ({ door }: ApprovalRequest): boolean => door !== 'mesh' && !isGivenLabel(door)

/** The client as its engine knows it: a mesh agent or a session. */
export const clientOf = (question: ApprovalRequest): string =>
  question.door === 'mesh' ? countedAs(question) : (question.session_id ?? requesterName(question))

/** The source whose slots a request uses. If the label is chosen by the client, the session counts, because the engine assigns it. */
const sourceOf = (question: ApprovalRequest): string =>
  isClaimed(question) ? `claimed ${clientOf(question)}` : `${question.door} ${countedAs(question)}`

interface Counted {
  readonly source: string
  readonly claimed: boolean
  readonly bytes: number
}

/** Whether one more request of this size fits. */
const fits = (waiting: readonly Counted[], bytes: number, max: number, maxBytes: number): boolean =>
  waiting.length < max && waiting.reduce((sum, one) => sum + one.bytes, bytes) <= maxBytes

/** An approval request that awaits a decision. */
export interface QueuedApprovalRequest extends PendingApprovalRequest {
  /** The approver who is deciding it at this moment, or null. */
  decider: string | null
}

/** Pending requests, oldest first, bounded per requester and in total. A new request never displaces an earlier one. */
export class ApprovalRequestQueue {
  readonly #rate: RateLimit
  readonly #waiting = new Map<string, QueuedApprovalRequest>()
  readonly #counted = new Map<string, Counted>()

  constructor(deps: { clock: Clock }) {
    this.#rate = new RateLimit(deps, QUESTION_RATE)
  }

  get all(): readonly QueuedApprovalRequest[] {
    return [...this.#waiting.values()]
  }

  /** Reserves a slot. Returns false if all are taken. `bytes`: size of the request as JSON. */
  take(id: string, question: ApprovalRequest, bytes: number): boolean {
    const [source, claimed] = [sourceOf(question), isClaimed(question)]
    const all = [...this.#counted.values()]
    const own = all.filter((one) => one.source === source)
    const claims = claimed ? all.filter((one) => one.claimed) : []
    const isTaken =
      fits(own, bytes, MAX_QUESTIONS_OF_ASKER, MAX_WAITING_JSON_OF_ASKER) &&
      fits(claims, bytes, MAX_CLAIMED_QUESTIONS, MAX_CLAIMED_JSON) &&
      fits(all, bytes, MAX_QUESTIONS, MAX_WAITING_JSON) &&
      this.#rate.allows(source)
    if (isTaken) this.#counted.set(id, { source, claimed, bytes })
    return isTaken
  }

  add(waiting: QueuedApprovalRequest): void {
    this.#waiting.set(waiting.question_id, waiting)
  }

  /** Removes the request and its slot. */
  delete(id: string): void {
    this.#waiting.delete(id)
    this.#counted.delete(id)
  }
}
