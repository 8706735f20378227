import { isAppError } from '../../base/errors.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import { verifyInBatch } from '../../identity/signing.ts'
import type { Intent } from '../../policy/mesh/intent.ts'
import { APPROVAL_REQUEST_DOMAIN, type SignedApprovalRequest, approvalRequest } from '../../protocol/wire/approval-statement.ts'
import {
  EXEC_DETACHED_ASK_DOMAIN,
  EXEC_DETACH_REQUEST_DOMAIN,
  type ExecDetachRequest,
  type ExecDetachedAsk,
  execDetachRequest,
  execDetachedAsk,
} from '../../protocol/wire/detached.ts'
import {
  EXEC_REQUEST_DOMAIN,
  EXEC_RULES_REQUEST_DOMAIN,
  type ExecFrame,
  type ExecRequest,
  type ExecRulesRequest,
  checkArgvSize,
  execFrame,
  execRequest,
  execRulesRequest,
} from '../../protocol/wire/exec.ts'
import { EXEC_TERMINAL_REQUEST_DOMAIN, type ExecTerminalRequest, execTerminalRequest } from '../../protocol/wire/terminal.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { Nonces } from '../links/nonces.ts'
import type { OwnIds } from '../links/trust-evaluator.ts'
import { stdinDigest } from './run-facts.ts'

/** A decoded but unverified Request, also for a terminal, or a signed request for rules, for an approval, or about a detached run. */
export type Arrival = ArrivedBytes &
  (
    | { readonly asks: 'run'; readonly request: ExecRequest }
    | { readonly asks: 'terminal'; readonly request: ExecTerminalRequest }
    | { readonly asks: 'rules'; readonly request: ExecRulesRequest }
    | { readonly asks: 'approval'; readonly request: SignedApprovalRequest }
    | { readonly asks: 'detach'; readonly request: ExecDetachRequest }
    | { readonly asks: 'detached'; readonly request: ExecDetachedAsk }
  )

/** A request that runs a command. */
export type RunRequestArrival = Extract<Arrival, { asks: 'run' | 'terminal' | 'detach' }>

export const asksForRun = (arrival: Arrival): arrival is RunRequestArrival => ['run', 'terminal', 'detach'].includes(arrival.asks)

interface ArrivedBytes {
  /** The signed bytes. */
  readonly body: Uint8Array
  /** Signature of these bytes, or of a batch that contains them. */
  readonly signature: Uint8Array
  readonly sha256: Uint8Array
}

/** Null if the bytes are none of these: then nobody can be answered. */
export const readArrival = (frame: Uint8Array): Arrival | null => {
  try {
    const decoded = execFrame.decode(frame)
    if (!('body' in decoded)) return null
    const { type, body, signature } = decoded
    const bytes = { body, signature, sha256: sha256(body) }
    switch (type) {
      case 'approval_request':
        return { asks: 'approval', request: approvalRequest.decode(body), ...bytes }
      case 'rules_request':
        return { asks: 'rules', request: execRulesRequest.decode(body), ...bytes }
      case 'detached_ask':
        return { asks: 'detached', request: execDetachedAsk.decode(body), ...bytes }
      case 'detach_request':
        return { asks: 'detach', request: withArgv(execDetachRequest.decode(body)), ...bytes }
      case 'terminal_request':
        return { asks: 'terminal', request: withArgv(execTerminalRequest.decode(body)), ...bytes }
      case 'request':
        return { asks: 'run', request: withArgv(execRequest.decode(body)), ...bytes }
      default:
        return null
    }
  } catch (error) {
    if (isAppError(error, 'malformed')) return null
    throw error
  }
}

const withArgv = <T extends { readonly argv: readonly string[] }>(request: T): T => {
  checkArgvSize(request.argv)
  return request
}

export interface VerifyContext {
  readonly link: PeerLink
  /** Nonce that we issued for the stream. */
  readonly streamNonce: Uint8Array
  readonly nonces: Nonces
  readonly own: OwnIds
}

const DOMAINS = {
  run: EXEC_REQUEST_DOMAIN,
  terminal: EXEC_TERMINAL_REQUEST_DOMAIN,
  rules: EXEC_RULES_REQUEST_DOMAIN,
  approval: APPROVAL_REQUEST_DOMAIN,
  detach: EXEC_DETACH_REQUEST_DOMAIN,
  detached: EXEC_DETACHED_ASK_DOMAIN,
} as const

/** Returns why the sender is not who the request says, or null. Uses up the nonce of the stream in any case. */
export const senderProblem = (arrival: Arrival, context: VerifyContext): 'replayed' | 'wrong_party' | 'wrong_signature' | null => {
  const { asks, request, body, signature } = arrival
  const { link, streamNonce, nonces, own } = context
  const fresh = nonces.consume(link.pair, streamNonce)
  if (!fresh || !equalBytes(request.stream_nonce, streamNonce)) return 'replayed'
  if (request.from_agent !== link.agentId || request.from_machine !== link.machineId) return 'wrong_party'
  if (request.to_agent !== own.agentId || request.to_machine !== own.machineId) return 'wrong_party'
  return verifyInBatch(link.agentPublicKey, DOMAINS[asks], body, signature) ? null : 'wrong_signature'
}

export const readResume = (bytes: Uint8Array): Extract<ExecFrame, { type: 'resume' }> | null => {
  try {
    const frame = execFrame.decode(bytes)
    return frame.type === 'resume' ? frame : null
  } catch (error) {
    if (isAppError(error, 'malformed')) return null
    throw error
  }
}

/** Converts a Request for policy. */
export const intentOf = (arrival: RunRequestArrival): { intent: Intent; stdin: ExecRequest['stdin'] } => {
  if (arrival.asks === 'terminal') {
    const { argv, timeout_ms, clamp, columns, rows, term } = arrival.request
    const terminal = { columns, rows, term }
    return { intent: { argv, cwd: null, stdin_len: null, stdin_sha256: null, timeout_ms, clamp, terminal }, stdin: null }
  }
  if (arrival.asks === 'detach') {
    const { argv, cwd, clamp, lifetime_ms, keep_bytes } = arrival.request
    const detach = { lifetime_ms, keep_bytes }
    return { intent: { argv, cwd, stdin_len: null, stdin_sha256: null, timeout_ms: null, clamp, detach }, stdin: null }
  }
  const { argv, cwd, timeout_ms, clamp, stdin } = arrival.request
  const stdin_sha256 = stdinDigest(stdin?.pieces ?? [])
  return { intent: { argv, cwd, stdin_len: stdin?.len ?? null, stdin_sha256, timeout_ms, clamp }, stdin }
}
