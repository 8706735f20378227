import { isAppError } from '../../base/errors.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import { verifyAgent } from '../../identity/signing.ts'
import { APPROVAL_REQUEST_DOMAIN, approvalRequest, type ApprovalRequest } from '../../protocol/approval-statement.ts'
import {
  checkArgvSize,
  EXEC_REQUEST_DOMAIN,
  EXEC_RULES_REQUEST_DOMAIN,
  execFrame,
  execRequest,
  execRulesRequest,
  type ExecFrame,
  type ExecRequest,
  type ExecRulesRequest,
} from '../../protocol/exec.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import type { PeerLink } from '../links/links.ts'
import type { Nonces } from '../links/nonces.ts'

/** A Request, or a question for rules or for an approval, as it came, readable but not believed. */
export type Arrival = ArrivedBytes &
  (
    | { readonly asks: 'run'; readonly request: ExecRequest }
    | { readonly asks: 'rules'; readonly request: ExecRulesRequest }
    | { readonly asks: 'approval'; readonly request: ApprovalRequest }
  )

interface ArrivedBytes {
  /** The exact bytes that are signed. */
  readonly body: Uint8Array
  readonly signature: Uint8Array
  readonly sha256: Uint8Array
}

/** Null when the bytes are neither: then there is nobody to answer. */
export const readArrival = (frame: Uint8Array): Arrival | null => {
  try {
    const decoded = execFrame.decode(frame)
    if (decoded.type !== 'request' && decoded.type !== 'rules_request' && decoded.type !== 'approval_request') return null
    const { body, signature } = decoded
    const bytes = { body, signature, sha256: sha256(body) }
    if (decoded.type === 'approval_request') return { asks: 'approval', request: approvalRequest.decode(body), ...bytes }
    if (decoded.type === 'rules_request') return { asks: 'rules', request: execRulesRequest.decode(body), ...bytes }
    const request = execRequest.decode(body)
    checkArgvSize(request.argv)
    return { asks: 'run', request, ...bytes }
  } catch (error) {
    if (isAppError(error, 'malformed')) return null
    throw error
  }
}

export interface VerifyContext {
  readonly link: PeerLink
  /** Ours, of the stream that it came on. */
  readonly streamNonce: Uint8Array
  readonly nonces: Nonces
  readonly own: { readonly agentId: AgentId; readonly machineId: MachineId }
}

const DOMAINS = { run: EXEC_REQUEST_DOMAIN, rules: EXEC_RULES_REQUEST_DOMAIN, approval: APPROVAL_REQUEST_DOMAIN } as const

/** What keeps the sender from being who the request says, or null. Uses up the stream's nonce whatever comes of it. */
export const senderProblem = (arrival: Arrival, context: VerifyContext): 'replayed' | 'wrong_party' | 'wrong_signature' | null => {
  const { asks, request, body, signature } = arrival
  const { link, streamNonce, nonces, own } = context
  const fresh = nonces.consume(link.pair, streamNonce)
  if (!fresh || !equalBytes(request.stream_nonce, streamNonce)) return 'replayed'
  if (request.from_agent !== link.agentId || request.from_machine !== link.machineId) return 'wrong_party'
  if (request.to_agent !== own.agentId || request.to_machine !== own.machineId) return 'wrong_party'
  return verifyAgent(link.agentPublicKey, DOMAINS[asks], body, signature) ? null : 'wrong_signature'
}

/** Null when the bytes are no Resume. */
export const readResume = (bytes: Uint8Array): Extract<ExecFrame, { type: 'resume' }> | null => {
  try {
    const frame = execFrame.decode(bytes)
    return frame.type === 'resume' ? frame : null
  } catch (error) {
    if (isAppError(error, 'malformed')) return null
    throw error
  }
}
