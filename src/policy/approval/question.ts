import type { Question } from '../../protocol/question.ts'

export type {
  Answer,
  Ask,
  AskFallback,
  Asker,
  AskedStdin,
  Decision,
  Host,
  Question,
  Security,
  SignedAnswer,
} from '../../protocol/question.ts'

/** True where only a human of this host can allow it: no list, grant or fallback does. */
export const needsHuman = ({ always_ask, ask }: Pick<Question, 'always_ask' | 'ask'>): boolean => always_ask !== null || ask === 'always'

declare const brand: unique symbol

/** An answer that was checked, for one permit and one use: made by `openApproval` alone. */
export interface Approval {
  readonly [brand]: true
  readonly question_id: string
  readonly permit_sha256: string
  readonly by: string
}

const approvals = new WeakSet<object>()

/** For `openApproval` alone (a test holds every other file to that). */
export const sealApproval = (fields: { readonly question_id: string; readonly permit_sha256: string; readonly by: string }): Approval => {
  const { question_id, permit_sha256, by } = fields
  const approval = Object.freeze({ question_id, permit_sha256, by })
  approvals.add(approval)
  return approval as unknown as Approval
}

/** True once, for the very object that `openApproval` made. */
export const spendApproval = (thing: Approval): boolean => approvals.delete(thing)
