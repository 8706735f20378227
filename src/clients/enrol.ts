import { randomBytes } from '../identity/hash.ts'
import type { AgentAnswer } from '../protocol/api-answers.ts'
import type { EnrolKeyAnswer, EnrolKeyRecord } from '../protocol/api/enrolment.ts'
import { toHex } from '../protocol/ids.ts'
import { SEED_BYTES } from '../protocol/limits/wire.ts'
import { deriveEnrolSecret, encodeEnrolToken } from '../trust/enrolment-token.ts'
import type { LocalApi } from './daemon.ts'
import { operate, operatorKey } from './operator.ts'

export const isLoopback = (address: string): boolean => /^\/(?:ip4\/127\.|ip6\/::1\/)/.test(address)

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
  const token = encodeEnrolToken({ agentId, machineId, secret, expiresAtMs, hasAcl: acl !== '', addresses })
  return { key, token }
}
