import { isAppError } from '../../base/errors.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import { verifyAgent } from '../../identity/signing.ts'
import { checkArgvSize, EXEC_REQUEST_DOMAIN, execFrame, execRequest, type ExecRequest } from '../../protocol/exec.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import type { PeerLink } from '../links/links.ts'
import type { Nonces } from '../links/nonces.ts'

/** A Request as it came, readable but not believed. */
export interface Arrival {
  readonly request: ExecRequest
  /** The exact bytes that are signed. */
  readonly body: Uint8Array
  readonly signature: Uint8Array
  readonly sha256: Uint8Array
}

/** Null when the bytes are no Request at all: then there is nobody to answer. */
export const readArrival = (frame: Uint8Array): Arrival | null => {
  try {
    const decoded = execFrame.decode(frame)
    if (decoded.type !== 'request') return null
    const { body, signature } = decoded
    const request = execRequest.decode(body)
    checkArgvSize(request.argv)
    return { request, body, signature, sha256: sha256(body) }
  } catch (error) {
    if (isAppError(error, 'malformed')) return null
    throw error
  }
}

export interface VerifyContext {
  readonly link: PeerLink
  /** Ours, of the stream that the Request came on. */
  readonly streamNonce: Uint8Array
  readonly nonces: Nonces
  readonly own: { readonly agentId: AgentId; readonly machineId: MachineId }
}

/** What keeps the sender from being who the request says, or null. Uses up the stream's nonce whatever comes of it. */
export const senderProblem = (arrival: Arrival, context: VerifyContext): 'replayed' | 'wrong_party' | 'wrong_signature' | null => {
  const { request, body, signature } = arrival
  const { link, streamNonce, nonces, own } = context
  const fresh = nonces.consume(link.pair, streamNonce)
  if (!fresh || !equalBytes(request.stream_nonce, streamNonce)) return 'replayed'
  if (request.from_agent !== link.agentId || request.from_machine !== link.machineId) return 'wrong_party'
  if (request.to_agent !== own.agentId || request.to_machine !== own.machineId) return 'wrong_party'
  return verifyAgent(link.agentPublicKey, EXEC_REQUEST_DOMAIN, body, signature) ? null : 'wrong_signature'
}
