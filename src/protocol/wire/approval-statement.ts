import { MAX_APPROVAL_QUESTION, MAX_APPROVAL_WAIT_MS } from '../limits/approvals.ts'
import { NONCE_BYTES } from '../limits/wire.ts'
import { PARTIES } from './exec.ts'
import { type ValueOf, bytes, id32, literal, oneOf, record, text, uint } from './schema.ts'

/** Domain of the agent key's signature over the exact bytes of an encoded `approval-request`. */
export const APPROVAL_REQUEST_DOMAIN = 'x0x-approval-request-v1'
/** Domain of the agent key's signature over the exact bytes of an encoded `approval-statement`. */
export const APPROVAL_STATEMENT_DOMAIN = 'x0x-approval-statement-v1'

const sha256 = bytes(32)

/** The target of a run asks another agent to approve it. Signed and bound to one stream of one host. It does not start a run. */
export const approvalRequest = record('approval-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds, as evidence only. */
  created_at_ms: uint(),
  /** SHA-256 of the exact bytes of the waiting Request. */
  request_sha256: sha256,
  /** Digest of the future permit. */
  permit_sha256: sha256,
  /** Nonce of this request to this approver. The statement repeats it. */
  nonce: bytes(NONCE_BYTES),
  /** Expiry in epoch milliseconds by the sender's clock. The statement repeats it and is invalid afterwards. */
  expires_at_ms: uint(),
  expires_in_ms: uint(MAX_APPROVAL_WAIT_MS),
  /** The approval request of the approval protocol as JSON, for display to the approver. */
  question: text(MAX_APPROVAL_QUESTION),
})
export type SignedApprovalRequest = ValueOf<typeof approvalRequest>

/** An approver's statement about one request for one target until a given time. It is valid evidence without the link. */
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
