import { MAX_APPROVAL_QUESTION, MAX_APPROVAL_WAIT_MS } from '../limits/approvals.ts'
import { NONCE_BYTES } from '../limits/wire.ts'
import { PARTIES } from './exec.ts'
import { type ValueOf, bytes, id32, literal, oneOf, record, text, uint } from './schema.ts'

/** Domain of the agent key's signature over the exact bytes of an encoded `approval-request`. */
export const APPROVAL_REQUEST_DOMAIN = 'x0x-approval-request-v1'
/** Domain of the agent key's signature over the exact bytes of an encoded `approval-statement`. */
export const APPROVAL_STATEMENT_DOMAIN = 'x0x-approval-statement-v1'

const sha256 = bytes(32)

/**
 * The agent that is to run a command asks another whether it may. Signed and bound to one stream of one host, as a Request is;
 * nothing runs for it.
 */
export const approvalRequest = record('approval-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds; evidence only. */
  created_at_ms: uint(),
  /** SHA-256 of the exact bytes of the Request that waits. */
  request_sha256: sha256,
  /** Of the permit that it would be. */
  permit_sha256: sha256,
  /** Of this question to this approver: a statement repeats it. */
  nonce: bytes(NONCE_BYTES),
  /** By the clock of who asks, epoch milliseconds: a statement repeats it, and is worth nothing afterwards. */
  expires_at_ms: uint(),
  expires_in_ms: uint(MAX_APPROVAL_WAIT_MS),
  /** What a human is shown: a question of the prompt protocol, as JSON. */
  question: text(MAX_APPROVAL_QUESTION),
})
export type SignedApprovalRequest = ValueOf<typeof approvalRequest>

/** The word of another agent on one request, for one target, until one moment: evidence that stands without the link. */
export const approvalStatement = record('approval-statement', {
  version: literal(1),
  request_sha256: sha256,
  permit_sha256: sha256,
  target_agent: id32,
  target_machine: id32,
  approver_agent: id32,
  approver_machine: id32,
  decision: oneOf(['allow', 'deny']),
  expires_at_ms: uint(),
  nonce: bytes(NONCE_BYTES),
})
export type ApprovalStatement = ValueOf<typeof approvalStatement>
