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

/** One text for each asker: an agent of the mesh, or what a local one calls itself. */
export const requesterName = ({ asker }: Pick<ApprovalRequest, 'asker'>): string => (asker.kind === 'mesh' ? asker.agent_id : asker.label)

/** As whom it is counted: what another host says of who has asked it must take no place of that one here. */
export const countedAs = (question: Pick<ApprovalRequest, 'asker' | 'target'>): string => provenAgent(question) ?? requesterName(question)

/** Who asks it calls itself as it likes: by ever new names one caller is many. */
const isClaimed = ({ door }: ApprovalRequest): boolean => door !== 'mesh' && !isGivenLabel(door)

/** Who asks an engine, by what that one knows: an agent of the mesh, a session. */
export const callerOf = (question: ApprovalRequest): string =>
  question.door === 'mesh' ? countedAs(question) : (question.session_id ?? requesterName(question))

/** Whose places a question takes. A label that a caller chooses is that of no agent: its session is counted, which it has from the engine. */
const sourceOf = (question: ApprovalRequest): string =>
  isClaimed(question) ? `claimed ${callerOf(question)}` : `${question.door} ${countedAs(question)}`

interface Counted {
  readonly source: string
  readonly claimed: boolean
  readonly bytes: number
}

/** Whether one more of this size fits beside those that wait. */
const fits = (waiting: readonly Counted[], bytes: number, max: number, maxBytes: number): boolean =>
  waiting.length < max && waiting.reduce((sum, one) => sum + one.bytes, bytes) <= maxBytes

/** A question that waits for a human. */
export interface QueuedApprovalRequest extends PendingApprovalRequest {
  /** Who decides it at this moment; null: nobody yet. */
  decider: string | null
}

/** What waits, oldest first, bounded for each asker and in all: what is too much takes nothing from what is there. */
export class ApprovalRequestQueue {
  readonly #rate: RateLimit
  readonly #waiting = new Map<string, QueuedApprovalRequest>()
  readonly #counted = new Map<string, Counted>()

  constructor(components: { clock: Clock }) {
    this.#rate = new RateLimit(components, QUESTION_RATE)
  }

  get all(): readonly QueuedApprovalRequest[] {
    return [...this.#waiting.values()]
  }

  /** Keeps a place for it. `bytes`: of the question as JSON. False: there is none. */
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

  /** Where a place was taken for it. */
  add(waiting: QueuedApprovalRequest): void {
    this.#waiting.set(waiting.question_id, waiting)
  }

  /** It, and its place. */
  delete(id: string): void {
    this.#waiting.delete(id)
    this.#counted.delete(id)
  }
}
