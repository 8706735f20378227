import { fromHex } from '../protocol/ids.ts'
import { OPERATOR_PROOF_MS } from '../protocol/limits/daemon.ts'
import { equalBytes, hmac } from './hash.ts'
import { provenHead } from './operator-proof.ts'

const PROOF = /^v1\.(0|[1-9][0-9]{0,15})\.([A-Za-z0-9_-]{22})\.([0-9a-f]{64})$/

export interface OperatorProof {
  /** To be remembered, and refused when seen again, until `fresh_until_ms`. */
  readonly nonce: string
  readonly fresh_until_ms: number
}

/** The proof when it is genuine and no more than 60 s old (or ahead); else null. That it is used once is for the caller to see to. */
export const checkOperatorProof = (
  key: Uint8Array,
  operation: string,
  body: Uint8Array,
  proof: string,
  nowMs: number,
): OperatorProof | null => {
  const [, issuedAt, nonce, mac] = PROOF.exec(proof) ?? []
  if (issuedAt === undefined || nonce === undefined || mac === undefined) return null
  if (!equalBytes(hmac(key, provenHead(operation, issuedAt, nonce), body), fromHex(mac))) return null
  if (Math.abs(nowMs - Number(issuedAt)) > OPERATOR_PROOF_MS) return null
  return { nonce, fresh_until_ms: Number(issuedAt) + OPERATOR_PROOF_MS }
}
