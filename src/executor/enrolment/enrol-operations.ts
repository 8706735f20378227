import { AppError } from '../../base/errors.ts'
import { parseNodeSet, expandNodeSet } from '../../protocol/hosts/node-set.ts'
import { labelsProblem, labelsText, sortedLabels } from '../../protocol/hosts/labels.ts'
import { fromHex, isHexId, toHex } from '../../protocol/ids.ts'
import { type Sent, map, optional, positive, text } from '../../protocol/json-table.ts'
import type { EnrolKeyRecord } from '../../protocol/api/enrolment.ts'
import { MAX_ENROL_ACL, MAX_ENROL_MS, MAX_ENROL_NAMES, MAX_ENROL_USES, MIN_ENROL_MS } from '../../protocol/limits/enrolment.ts'
import { nameProblem } from '../../trust/contact.ts'
import { type EnrolKey, type EnrolmentKeys, isEnded } from '../../trust/enrolment-keys.ts'
import { enrolKeyId } from '../../trust/enrolment-token.ts'
import { parseBody } from '../json-body.ts'
import type { ExecutorServices } from '../services.ts'

const CREATE = {
  salt: text,
  operator_name: text,
  uses: positive,
  expires_in_ms: positive,
  names: optional(text),
  labels: optional(map(text, text)),
  acl: optional(text),
}
type Create = Sent<typeof CREATE>

export type EnrolOperation = 'enrol_create' | 'enrol_list' | 'enrol_revoke'

export interface EnrolOperationsDeps extends Pick<ExecutorServices, 'authority' | 'clock' | 'gate'> {
  readonly keys: EnrolmentKeys
  /** Whether unlisted peers may connect, as every new host is one. */
  readonly acceptsUnlisted: boolean
}

const bad = (reason: string): AppError => new AppError('bad_request', reason)

/** Why a key cannot be created so, or null. */
const createProblem = ({ salt, operator_name, uses, expires_in_ms, names, labels = {}, acl = '' }: Create): string | null => {
  if (!isHexId(salt)) return 'salt: expected 64 lower-case hex digits'
  const named = nameProblem(operator_name)
  if (named !== null) return `operator_name: ${named}`
  if (uses > MAX_ENROL_USES) return `uses: at most ${MAX_ENROL_USES}`
  if (expires_in_ms < MIN_ENROL_MS || expires_in_ms > MAX_ENROL_MS)
    return `expires_in_ms: from ${MIN_ENROL_MS} to ${MAX_ENROL_MS}, which is a minute to 31 days`
  if (names !== undefined) {
    if (names.length > MAX_ENROL_NAMES) return `names: at most ${MAX_ENROL_NAMES} characters`
    const all = expandNodeSet(parseNodeSet(names))
    const wrong = all.map(nameProblem).find((found) => found !== null)
    if (wrong !== undefined) return `names: ${wrong}`
    if (all.length < uses) return `uses: ${uses} hosts need as many names, and ${names} has ${all.length}`
  }
  if (Buffer.byteLength(acl) > MAX_ENROL_ACL) return `acl: at most ${MAX_ENROL_ACL} bytes`
  return labelsProblem(labels)
}

const recordOf = (key: EnrolKey, nowMs: number): EnrolKeyRecord => ({
  id: key.id,
  state: key.revoked ? 'revoked' : !isEnded(key, nowMs) ? 'valid' : key.hosts.length >= key.uses ? 'used_up' : 'expired',
  names: key.names,
  labels: key.labels,
  uses: key.uses,
  uses_left: key.uses - key.hosts.length,
  acl: key.acl !== '',
  created_at: new Date(key.created_at_ms).toISOString(),
  expires_at: new Date(key.expires_at_ms).toISOString(),
  hosts: key.hosts.map(({ name, agent_id, machine_id, granted_at_ms, confirmed }) => ({
    name,
    agent_id,
    machine_id,
    granted_at: new Date(granted_at_ms).toISOString(),
    confirmed,
  })),
})

/** The operator's operations on enrolment keys. The proof was checked. */
export class EnrolOperations {
  readonly #deps: EnrolOperationsDeps

  constructor(deps: EnrolOperationsDeps) {
    this.#deps = deps
  }

  async run(operation: EnrolOperation, body: Uint8Array): Promise<unknown> {
    const { clock, keys } = this.#deps
    switch (operation) {
      case 'enrol_create':
        return this.#create(parseBody(body, CREATE))
      case 'enrol_list':
        parseBody(body, {})
        return { ok: true, keys: keys.list().map((key) => recordOf(key, clock.now())) }
      case 'enrol_revoke':
        return this.#revoke(parseBody(body, { id: text }).id)
    }
  }

  async #create(wish: Create): Promise<unknown> {
    const { acceptsUnlisted, authority, clock, gate, keys } = this.#deps
    const problem = createProblem(wish)
    if (problem !== null) throw bad(problem)
    if (!acceptsUnlisted)
      throw new AppError('conflict', 'this daemon has strangers = false, so it lets no new host connect', {
        data: { next: 'Try: set strangers = true in config.toml until the hosts have come, and restart x0xd' },
      })
    const { salt, operator_name, uses, expires_in_ms, labels = {}, acl = '' } = wish
    const names = wish.names ?? null
    const [nowMs, secret] = [clock.now(), gate.enrolSecret(fromHex(salt))]
    const key: EnrolKey = {
      id: enrolKeyId(secret),
      secret: toHex(secret),
      created_at_ms: nowMs,
      expires_at_ms: nowMs + expires_in_ms,
      uses,
      names,
      labels: sortedLabels(labels),
      operator_name,
      acl,
      revoked: false,
      hosts: [],
    }
    const given = [names, labelsText(key.labels), acl === '' ? null : 'with ACL entries'].filter(Boolean).join(', ')
    const detail = `key ${key.id}: ${uses} uses until ${new Date(key.expires_at_ms).toISOString()}${given && `, ${given}`}`
    await authority.announce({ operation: 'enrol_create', agent: null, machine: null, level: 'trusted', detail }, { widens: true })
    return { ok: true, key: recordOf(await keys.add(key, nowMs), nowMs) }
  }

  /** Revokes even if the log cannot be written, because that takes access away. */
  async #revoke(id: string): Promise<unknown> {
    const { authority, clock, keys } = this.#deps
    const revoked = await keys.revoke(id)
    const detail = `key ${revoked.id}, ${revoked.hosts.length} of ${revoked.uses} uses`
    await authority.announce({ operation: 'enrol_revoke', agent: null, machine: null, level: null, detail }, { widens: false })
    return { ok: true, key: recordOf(revoked, clock.now()) }
  }
}
