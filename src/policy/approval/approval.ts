import { createHmac, timingSafeEqual } from 'node:crypto'
import type { SealedAnswer } from '../../protocol/desk/approval-request.ts'
import { Framed } from './framed.ts'

export type { RequestedStdin, ApprovalRequest, SealedAnswer } from '../../protocol/desk/approval-request.ts'

declare const brand: unique symbol

/** A verified decision for one permit and one use. Only `openApproval` makes it. */
export interface Approval {
  readonly [brand]: true
  readonly question_id: string
  readonly permit_sha256: string
  readonly by: string
}

const approvals = new WeakSet<object>()

/** Only `openApproval` may call this. A test checks it for all other files. */
export const sealApproval = (fields: { readonly question_id: string; readonly permit_sha256: string; readonly by: string }): Approval => {
  const { question_id, permit_sha256, by } = fields
  const approval = Object.freeze({ question_id, permit_sha256, by })
  approvals.add(approval)
  return approval as unknown as Approval
}

/** True if the decision covers the program whatever its files contain: a mode, or a pattern for opaque programs. */
export const allowsAnything = ({ by }: Approval, opaque: string | null): boolean =>
  by === 'mode:full' || by === 'fallback:full' || (opaque !== null && by.startsWith('allowlist:'))

/** Spends an approval. True the first time, and only for the object that `openApproval` made. */
export const spendApproval = (thing: Approval): boolean => approvals.delete(thing)

/** Validity of an answer of the approval service. The executor uses it at once or never. */
export const ANSWER_FRESH_MS = 10_000
/** Answers that are remembered to prevent a second use. When full, no answer is accepted until some have expired. */
export const MAX_SPENT_ANSWERS = 4_096
const DOMAIN = 'x0x-approval-v1'
const NO_APPROVER = 'no approver is connected'

/** Why an answer permits no run: a denial reason and a sentence. */
export interface NoApproval {
  readonly kind: 'no_approval'
  readonly reason: 'approval_denied' | 'approval_timeout' | 'approval_unavailable' | 'approval_mismatch'
  readonly detail: string
}

const macOf = (answer: Omit<SealedAnswer, 'mac'>, key: Uint8Array): Buffer => {
  const { question_id, permit_sha256, decision, by, reason, expires_at_ms, nonce } = answer
  const framed = new Framed(DOMAIN)
    .add('question_id', question_id)
    .add('permit_sha256', permit_sha256)
    .add('decision', decision)
    .add('by', by)
    .add('reason', reason)
    .add('expires_at_ms', expires_at_ms)
    .add('nonce', nonce)
  return createHmac('sha256', key).update(framed.bytes()).digest()
}

/** Signs an answer of the approval service with the MAC that executors check. */
export const sealAnswer = (answer: Omit<SealedAnswer, 'mac'>, key: Uint8Array): SealedAnswer =>
  Object.freeze({ ...answer, mac: macOf(answer, key).toString('hex') })

/** Nonces of the answers that an executor has accepted, kept until they expire. */
export class SpentAnswers {
  readonly #until = new Map<string, number>()

  /** Records a nonce. False if it was used before, or if too many are remembered. */
  take(nonce: string, expiresAt: number, now: number): boolean {
    for (const [old, until] of this.#until) if (until <= now) this.#until.delete(old)
    if (this.#until.has(nonce) || this.#until.size >= MAX_SPENT_ANSWERS) return false
    this.#until.set(nonce, expiresAt)
    return true
  }
}

const none = (reason: NoApproval['reason'], detail: string): NoApproval => Object.freeze({ kind: 'no_approval', reason, detail })

/**
 * Verifies an answer of the approval service to one approval request. `key`: the token of the service's socket. Rejects an answer that is
 * forged, stale, used before or for another request.
 */
export const openApproval = (
  answer: SealedAnswer,
  asked: { readonly question_id: string; readonly permit_sha256: string },
  { key, now, spent }: { readonly key: Uint8Array; readonly now: number; readonly spent: SpentAnswers },
): { readonly kind: 'approval'; readonly approval: Approval } | NoApproval => {
  const given = Buffer.from(answer.mac, 'hex')
  const expected = macOf(answer, key)
  if (given.length !== expected.length || !timingSafeEqual(given, expected))
    return none('approval_unavailable', 'an answer is not from the approval service: its MAC is wrong; start x0xd --init or x0x desk again')
  const { expires_at_ms: expires, decision, reason, by, nonce } = answer
  if (!Number.isSafeInteger(expires) || expires <= now || expires > now + ANSWER_FRESH_MS)
    return none('approval_unavailable', 'the answer of the approval service is too old; try again')
  if (answer.question_id !== asked.question_id || answer.permit_sha256 !== asked.permit_sha256)
    return none('approval_mismatch', 'the answer of the approval service is for another request; try again')
  if (!spent.take(nonce, expires, now)) return none('approval_mismatch', 'the answer of the approval service was used before; try again')
  const why = reason === '' ? '' : `: ${reason}`
  switch (decision) {
    case 'allow':
      return { kind: 'approval', approval: sealApproval({ question_id: answer.question_id, permit_sha256: answer.permit_sha256, by }) }
    case 'deny':
      return none('approval_denied', `${by === 'desk' ? 'the approval service' : by} refused it${why}`)
    case 'timeout':
      return none('approval_timeout', `no approver answered in time${why}`)
    case 'no_ui':
      return none(
        'approval_unavailable',
        `${reason.startsWith(NO_APPROVER) ? reason : NO_APPROVER + why}; open x0x ui or run x0x approvals watch`,
      )
    case 'mismatch':
      return none('approval_mismatch', `the command has changed since it was requested${why}; try again`)
  }
}
