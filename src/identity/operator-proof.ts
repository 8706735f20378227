import { fromHex, toHex } from '../protocol/ids.ts'
import { OPERATOR_PROOF_MS } from '../protocol/local-limits.ts'
import { equalBytes, hmac, randomBytes } from './hash.ts'

/** HTTP header of a proof. */
export const OPERATOR_PROOF_HEADER = 'x-x0x-operator-proof'
/** Where the shared secret lies in the data directory: 64 hex digits and a line feed. */
export const OPERATOR_KEY_FILE = 'operator.key'

/** What a proof of a run names as its operation. */
export const RUN_OPERATION = 'exec_run'

const NONCE_BYTES = 16
const PROOF = /^v1\.(0|[1-9][0-9]{0,15})\.([A-Za-z0-9_-]{22})\.([0-9a-f]{64})$/

/** The secret in the text of `operator.key`; null when it is none. */
export const decodeOperatorKey = (text: string): Uint8Array | null => (/^[0-9a-f]{64}\n$/.test(text) ? fromHex(text.trimEnd()) : null)

const macOf = (key: Uint8Array, operation: string, issuedAt: string, nonce: string, body: Uint8Array): Uint8Array =>
  hmac(key, new TextEncoder().encode(`x0x-operator-v1\n${operation}\n${issuedAt}\n${nonce}\n`), body)

/** The header's text: `v1.<epoch ms>.<nonce>.<mac>` over the operation and the exact bytes of the body. */
export const proveOperation = (key: Uint8Array, operation: string, body: Uint8Array, nowMs: number): string => {
  const nonce = Buffer.from(randomBytes(NONCE_BYTES)).toString('base64url')
  return `v1.${nowMs}.${nonce}.${toHex(macOf(key, operation, String(nowMs), nonce, body))}`
}

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
  if (!equalBytes(macOf(key, operation, issuedAt, nonce, body), fromHex(mac))) return null
  if (Math.abs(nowMs - Number(issuedAt)) > OPERATOR_PROOF_MS) return null
  return { nonce, fresh_until_ms: Number(issuedAt) + OPERATOR_PROOF_MS }
}
