import { isLoopbackText, isPublicText } from '../identity/address.ts'
import { randomBytes } from '../identity/hash.ts'
import type { AgentAnswer } from '../protocol/api-answers.ts'
import type { EnrolKeyAnswer, EnrolKeyRecord } from '../protocol/api/enrolment.ts'
import { toHex } from '../protocol/ids.ts'
import { MAX_ENROL_ADDRESSES } from '../protocol/limits/enrolment.ts'
import { SEED_BYTES } from '../protocol/limits/wire.ts'
import { deriveEnrolSecret, encodeEnrolToken } from '../trust/enrolment-token.ts'
import type { LocalApi } from './daemon.ts'
import { operate, operatorKey } from './operator.ts'

/** Networks that container engines use for their bridges. */
const BRIDGE = /^\/ip4\/172\.(?:1[6-9]|2\d|3[01])\./

/** The smaller, the more likely a host can use the address. A machine often has many IPv6 addresses and few others. */
const rankOf = (address: string): number => {
  if (isLoopbackText(address)) return 5
  if (address.includes('/p2p-circuit/') || address.startsWith('/dns')) return 0
  if (BRIDGE.test(address)) return 4
  if (address.startsWith('/ip6/')) return 3
  return isPublicText(address) ? 1 : 2
}

/** Addresses of the operator for a token, those first that most hosts can use. */
const tokenAddresses = (addresses: readonly string[]): { readonly taken: string[]; readonly leftOut: string[] } => {
  const sorted = addresses.toSorted((a, b) => rankOf(a) - rankOf(b))
  return { taken: sorted.slice(0, MAX_ENROL_ADDRESSES), leftOut: sorted.slice(MAX_ENROL_ADDRESSES) }
}

/** A warning about the addresses of a token, or null. */
export const addressWarning = (addresses: readonly string[]): string | null => {
  const { leftOut } = tokenAddresses(addresses)
  const remedy = 'create the token with x0x enrol create --address ADDRESS'
  if (addresses.every(isLoopbackText)) return `the token has only loopback addresses, so only this machine can use it: ${remedy}`
  if (leftOut.every(isLoopbackText)) return null
  return `a token has at most ${MAX_ENROL_ADDRESSES} addresses, and lacks ${leftOut.join(' ')}: if the hosts need one of these, ${remedy}`
}

export interface EnrolKeyWish {
  readonly uses: number
  readonly expires_in_ms: number
  readonly labels: Readonly<Record<string, string>>
  readonly names: string | null
  readonly acl: string
  readonly agent: AgentAnswer
  readonly addresses: readonly string[]
}

export interface CreatedEnrolKey {
  readonly key: EnrolKeyRecord
  readonly token: string
}

/** The secret of the token is derived here and in the executor process, so that the network process never has it. */
export const createEnrolKey = async (
  context: { readonly api: LocalApi },
  { agent, addresses, names, acl, ...wish }: EnrolKeyWish,
): Promise<CreatedEnrolKey> => {
  const { agent_id: agentId, machine_id: machineId, name: operator_name } = agent
  const salt = randomBytes(SEED_BYTES)
  const body = { salt: toHex(salt), operator_name, ...wish, ...(names !== null && { names }), ...(acl !== '' && { acl }) }
  const { key } = await operate<EnrolKeyAnswer>(context, '/enrol/create', body)
  const secret = deriveEnrolSecret(operatorKey(context.api.paths.operatorKey), salt)
  const expiresAtMs = Date.parse(key.expires_at)
  const token = encodeEnrolToken({
    agentId,
    machineId,
    secret,
    expiresAtMs,
    hasAcl: acl !== '',
    addresses: tokenAddresses(addresses).taken,
  })
  return { key, token }
}
