import { fromHex } from '../protocol/ids.ts'
import { OPERATOR_PROOF_MS } from '../protocol/limits/daemon.ts'
import { equalBytes, hmac } from './hash.ts'
import { provenHead } from './operator-proof.ts'

const PROOF = /^v1\.(0|[1-9][0-9]{0,15})\.([A-Za-z0-9_-]{22})\.([0-9a-f]{64})$/

export interface OperatorProof {
  /** Nonce to remember until `fresh_until_ms`, so that the proof is not accepted twice. */
  readonly nonce: string
  readonly fresh_until_ms: number
}

/** Verifies a proof that is at most 60 s old or ahead, or null if invalid. The caller must prevent a second use. */
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
