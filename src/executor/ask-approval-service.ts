import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { DeskLink, WaitNotice } from '../desk/desk-link.ts'
import { type ApprovalRequest, type SpentAnswers, openApproval } from '../policy/approval/approval.ts'

/**
 * Asks the approval service and opens its decision at once, because a decision is valid only for a moment. `by` names who decided. Throws
 * `approval_unavailable` and the signal's reason.
 */
export const askApprovalService = async (
  { clock, desk, spent }: { readonly clock: Clock; readonly desk: DeskLink | null; readonly spent: SpentAnswers },
  question: ApprovalRequest,
  signal: AbortSignal,
  onPending?: (waiting: WaitNotice) => void,
) => {
  if (desk === null) throw new AppError('approval_unavailable', 'this daemon has no approval service')
  signal.throwIfAborted()
  let pendingId: string | null = null
  const answer = await desk.ask(question, signal, (waiting) => {
    pendingId = waiting.question_id
    onPending?.(waiting)
  })
  signal.throwIfAborted()
  const asked = { question_id: pendingId ?? answer.question_id, permit_sha256: question.permit_sha256 }
  const opened = openApproval(answer, asked, { key: desk.approvalKey(), now: clock.now(), spent })
  return { opened, by: answer.by, question_id: asked.question_id }
}
