import { fromHex, toHex } from '../protocol/ids.ts'
import { lightHmac, lightRandomBytes } from './light-hash.ts'

export const OPERATOR_PROOF_HEADER = 'x-x0x-operator-proof'
/** File of the shared secret in the data directory, with 64 hex digits and a line feed. */
export const OPERATOR_KEY_FILE = 'operator.key'

export const RUN_OPERATION = 'exec_run'
export const FANOUT_OPERATION = 'exec_fanout'

const NONCE_BYTES = 16

/** The secret in the text of `operator.key`, or null if invalid. */
export const decodeOperatorKey = (text: string): Uint8Array | null => (/^[0-9a-f]{64}\n$/.test(text) ? fromHex(text.trimEnd()) : null)

/** Beginning of the authenticated bytes, before the body. */
export const provenHead = (operation: string, issuedAt: string, nonce: string): Uint8Array =>
  new TextEncoder().encode(`x0x-operator-v1\n${operation}\n${issuedAt}\n${nonce}\n`)

/** The header's text, `v1.<epoch ms>.<nonce>.<mac>` over the operation and the exact bytes of the body. */
export const proveOperation = (key: Uint8Array, operation: string, body: Uint8Array, nowMs: number): string => {
  const nonce = Buffer.from(lightRandomBytes(NONCE_BYTES)).toString('base64url')
  return `v1.${nowMs}.${nonce}.${toHex(lightHmac(key, provenHead(operation, String(nowMs), nonce), body))}`
}
