import assert from 'node:assert/strict'

import type { ApprovalClient } from '../../src/clients/desk.ts'
import type { PendingApprovalRequest } from '../../src/protocol/desk/messages.ts'
import type { Decision } from '../../src/protocol/desk/approval-request.ts'
import type { DeskPlaceHandle } from './desk-place.ts'
import { soon } from './local-engine.ts'

/** An approver who watches an approval service, and everything that the approver received. */
export interface DeskWatcher {
  readonly human: ApprovalClient
  readonly asked: readonly PendingApprovalRequest[]
  /** IDs of the approval requests that ended. */
  readonly settled: readonly string[]
  /** Returns the n-th approval request that arrived, counted from 1. */
  next(count?: number): Promise<PendingApprovalRequest>
}

export const watching = async (desk: DeskPlaceHandle): Promise<DeskWatcher> => {
  const human = await desk.human()
  const asked: PendingApprovalRequest[] = []
  const settled: string[] = []
  await human.subscribe((news) => {
    if (news.type === 'question') asked.push(news)
    if (news.type === 'settled') settled.push(news.question_id)
  })
  const next = async (count = 1): Promise<PendingApprovalRequest> => {
    assert.ok(await soon(() => asked.length >= count), 'nobody was asked')
    return asked[count - 1]!
  }
  return { human, asked, settled, next }
}

/** Decides on exactly the permit that was shown. */
export const decide = async (
  human: ApprovalClient,
  { question_id, question }: PendingApprovalRequest,
  decision: Decision,
): Promise<unknown> => human.decide({ question_id, permit_sha256: question.permit_sha256, decision })
