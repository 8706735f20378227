export type { AskedStdin, Question, SealedAnswer } from '../../protocol/question.ts'

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

/** True where nobody has allowed the bytes of any file: by a mode, or by a pattern that lets a program run whatever it likes. */
export const allowsAnything = ({ by }: Approval, opaque: string | null): boolean =>
  by === 'mode:full' || by === 'fallback:full' || (opaque !== null && by.startsWith('allowlist:'))

/** True once, for the very object that `openApproval` made. */
export const spendApproval = (thing: Approval): boolean => approvals.delete(thing)
