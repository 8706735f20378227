import { AppError, attempt } from '../base/errors.ts'
import { addressProblem, dialable } from '../identity/address.ts'
import { equalBytes, hmac, sha256 } from '../identity/hash.ts'
import { peerIdOf } from '../identity/machine-key.ts'
import { type AgentId, type MachineId, toHex } from '../protocol/ids.ts'
import { ENROL_KEY_ID_BYTES, ENROL_SECRET_BYTES, MAX_ENROL_ADDRESSES, MAX_ENROL_TOKEN } from '../protocol/limits/enrolment.ts'
import { asCopied } from '../protocol/text.ts'
import { ENROL_TOKEN_PREFIX, enrolToken } from '../protocol/wire/enrolment.ts'

/** A token of an operator, as its bearer reads it. */
export interface EnrolToken {
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly secret: Uint8Array
  readonly expiresAtMs: number
  /** The operator sends ACL entries. */
  readonly hasAcl: boolean
  /** Each ends in `/p2p/<the machine's peer id>`. */
  readonly addresses: readonly string[]
}

/** Checksum at the end of a token, against copying mistakes and not against attacks. */
const SUM_BYTES = 4

const bytesOf = (label: string): Uint8Array => new TextEncoder().encode(`${label}\0`)
const SECRET_LABEL = bytesOf('x0x-enrol-secret-v1')

/** What a MAC of an enrolment is about. */
const MAC_LABELS = {
  request: bytesOf('x0x-enrol-request-v1'),
  grant: bytesOf('x0x-enrol-grant-v1'),
  confirmed: bytesOf('x0x-enrol-confirmed-v1'),
} as const

/** Both the operator's command and the executor process derive the secret, so it never passes through the network process. */
export const deriveEnrolSecret = (operatorKey: Uint8Array, salt: Uint8Array): Uint8Array =>
  hmac(operatorKey, SECRET_LABEL, salt).subarray(0, ENROL_SECRET_BYTES)

/** Public name of a key, as hex. It says nothing about the secret. */
export const enrolKeyId = (secret: Uint8Array): string => toHex(sha256(secret).subarray(0, ENROL_KEY_ID_BYTES))

export const enrolMac = (secret: Uint8Array, about: keyof typeof MAC_LABELS, body: Uint8Array): Uint8Array =>
  hmac(secret, MAC_LABELS[about], body)

/** Compares in constant time. */
export const isEnrolMac = (secret: Uint8Array, about: keyof typeof MAC_LABELS, body: Uint8Array, mac: Uint8Array): boolean =>
  equalBytes(enrolMac(secret, about, body), mac)

/** Encodes a token. The addresses end in the peer ID of the machine; others are left out. */
export const encodeEnrolToken = ({ agentId, machineId, secret, expiresAtMs, hasAcl, addresses }: EnrolToken): string => {
  const suffix = `/p2p/${peerIdOf(machineId)}`
  const own = addresses.filter((address) => address.endsWith(suffix)).map((address) => address.slice(0, -suffix.length))
  const encoded = enrolToken.encode({
    agent_id: agentId,
    machine_id: machineId,
    secret,
    expires_at_ms: expiresAtMs,
    acl: hasAcl,
    addresses: own.slice(0, MAX_ENROL_ADDRESSES),
  })
  return ENROL_TOKEN_PREFIX + Buffer.concat([encoded, sha256(encoded).subarray(0, SUM_BYTES)]).toString('base64url')
}

const bad = (reason: string): AppError => new AppError('bad_enrolment', reason)

const damaged = (): AppError => bad('the enrolment token is damaged or incomplete: copy the whole token')

/** Decodes a token. Throws `bad_enrolment` for a token that is truncated, altered or of another version. */
export const decodeEnrolToken = (copied: string): EnrolToken => {
  if (copied.length > MAX_ENROL_TOKEN) throw bad(`an enrolment token has at most ${MAX_ENROL_TOKEN} characters`)
  const text = asCopied(copied)
  if (!text.startsWith(ENROL_TOKEN_PREFIX))
    throw bad(
      /^x0xe\d+\./.test(text)
        ? 'the enrolment token is from another version of x0x: install the same release on both machines'
        : `this is not an enrolment token: it does not begin with ${ENROL_TOKEN_PREFIX}`,
    )
  const all = new Uint8Array(Buffer.from(text.slice(ENROL_TOKEN_PREFIX.length), 'base64url'))
  const encoded = all.subarray(0, -SUM_BYTES)
  const isWhole = all.length > SUM_BYTES && equalBytes(sha256(encoded).subarray(0, SUM_BYTES), all.subarray(-SUM_BYTES))
  if (!isWhole || ENROL_TOKEN_PREFIX + Buffer.from(all).toString('base64url') !== text) throw damaged()
  const fields = attempt(() => enrolToken.decode(encoded))
  if (fields === null) throw bad('the enrolment token is not valid: create another one')
  const peerId = peerIdOf(fields.machine_id)
  const addresses = fields.addresses.map((address) => `${address}/p2p/${peerId}`)
  for (const address of addresses) {
    const problem = addressProblem(address, peerId)
    if (problem !== null) throw bad(`the address ${JSON.stringify(address)} of the enrolment token ${problem}`)
  }
  if (addresses.length === 0) throw bad('the enrolment token has no address of the operator: create another one')
  return {
    agentId: fields.agent_id,
    machineId: fields.machine_id,
    secret: new Uint8Array(fields.secret),
    expiresAtMs: fields.expires_at_ms,
    hasAcl: fields.acl,
    addresses: dialable(addresses, bad),
  }
}
