import { createPublicKey, verify } from 'node:crypto'
import { type AgentId, type MachineId, fromHex, isHexId } from '../protocol/ids.ts'
import { MACHINE_SIGNATURE_BYTES } from '../protocol/limits.ts'
import { primitives } from './primitives.ts'

/** Who can sign as an agent. The key itself stays inside. */
export interface AgentSigner {
  readonly publicKey: Uint8Array
  readonly agentId: AgentId
  /** The ML-DSA-65 signature of `statement(domain, body)`. */
  sign(domain: string, body: Uint8Array): Promise<Uint8Array>
}

const encoder = new TextEncoder()

/**
 * What is really signed: the domain, a NUL, the body. A domain contains no NUL, so a signature made
 * for one purpose fits no other.
 */
export const statement = (domain: string, body: Uint8Array): Uint8Array => {
  if (domain === '' || domain.includes('\0')) throw new TypeError('a domain is a text without NUL')
  return Buffer.concat([encoder.encode(domain), Uint8Array.of(0), body])
}

/** True when the agent key made this signature for this domain; false for anything else, of whatever size. */
export const verifyAgent = (publicKey: Uint8Array, domain: string, body: Uint8Array, signature: Uint8Array): boolean =>
  primitives().dsaVerify(publicKey, statement(domain, body), signature)

/** SubjectPublicKeyInfo of Ed25519 (RFC 8410) before the 32 raw bytes. */
const ED25519_SPKI = fromHex('302a300506032b6570032100')

/** True when the machine's Ed25519 key, which is its id, made this signature for this domain. */
export const verifyMachine = (machineId: MachineId, domain: string, body: Uint8Array, signature: Uint8Array): boolean => {
  if (!isHexId(machineId) || signature.length !== MACHINE_SIGNATURE_BYTES) return false
  const key = createPublicKey({ key: Buffer.concat([ED25519_SPKI, fromHex(machineId)]), format: 'der', type: 'spki' })
  return verify(null, statement(domain, body), key, signature)
}
