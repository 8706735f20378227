import { AppError } from '../base/errors.ts'
import { type Labels, labelsProblem } from '../protocol/hosts/labels.ts'
import { type AgentId, type MachineId, isHexId } from '../protocol/ids.ts'
import { isTable } from '../protocol/json-table.ts'
import { ENROL_ATTEMPT_BYTES, ENROL_KEY_ID_BYTES, ENROL_SECRET_BYTES, MAX_ENROL_KEYS } from '../protocol/limits/enrolment.ts'
import { type JsonPath, fileOf, listOf, objectOf, readJsonFile, refuse, textOf, within, writeJsonFile } from './json-file.ts'

/** A host that used an enrolment key. */
export interface EnrolledHost {
  readonly name: string
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  /** Number of the host's process, as hex. Until the host confirms, another process of it may take over. */
  readonly attempt: string
  readonly granted_at_ms: number
  /** The host has written its files. From then on, the same keys are a copy of the host. */
  readonly confirmed: boolean
}

/** An enrolment key, as an entry of `enrol-keys.json`. Entries are replaced, never changed. */
export interface EnrolKey {
  /** Hex. */
  readonly id: string
  /** Hex. */
  readonly secret: string
  readonly created_at_ms: number
  readonly expires_at_ms: number
  readonly uses: number
  /** Node set of the names that hosts get, or null if they bring their own. */
  readonly names: string | null
  readonly labels: Labels
  /** Name of this agent for the hosts. */
  readonly operator_name: string
  /** ACL entries for the hosts, or empty. */
  readonly acl: string
  readonly revoked: boolean
  /** One for each use. */
  readonly hosts: readonly EnrolledHost[]
}

export const isEnded = ({ revoked, expires_at_ms, uses, hosts }: EnrolKey, nowMs: number): boolean =>
  revoked || nowMs >= expires_at_ms || hosts.length >= uses

const FILE_VERSION = 1
const HOST_KEYS = ['name', 'agent_id', 'machine_id', 'attempt', 'granted_at_ms', 'confirmed'] as const
const KEYS = [
  'id',
  'secret',
  'created_at_ms',
  'expires_at_ms',
  'uses',
  'names',
  'labels',
  'operator_name',
  'acl',
  'revoked',
  'hosts',
] as const

const hexOf = (value: unknown, bytes: number, place: JsonPath): string =>
  typeof value === 'string' && new RegExp(`^[0-9a-f]{${2 * bytes}}$`).test(value)
    ? value
    : refuse(place, `expected ${2 * bytes} hex digits`)

const idOf = (value: unknown, place: JsonPath): string =>
  typeof value === 'string' && isHexId(value) ? value : refuse(place, 'expected 64 lower-case hex digits')

const countOf = (value: unknown, place: JsonPath): number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : refuse(place, 'expected a whole number')

const flagOf = (value: unknown, place: JsonPath): boolean => (typeof value === 'boolean' ? value : refuse(place, 'expected true or false'))

const hostOf = (value: unknown, place: JsonPath): EnrolledHost => {
  const host = objectOf(value, HOST_KEYS, place)
  const at = (key: (typeof HOST_KEYS)[number]): JsonPath => within(place, key)
  return {
    name: textOf(host.name, at('name')),
    agent_id: idOf(host.agent_id, at('agent_id')),
    machine_id: idOf(host.machine_id, at('machine_id')),
    attempt: hexOf(host.attempt, ENROL_ATTEMPT_BYTES, at('attempt')),
    granted_at_ms: countOf(host.granted_at_ms, at('granted_at_ms')),
    confirmed: flagOf(host.confirmed, at('confirmed')),
  }
}

const labelsOf = (value: unknown, place: JsonPath): Labels => {
  if (!isTable(value)) return refuse(place, 'expected an object')
  for (const [key, text] of Object.entries(value)) textOf(text, within(place, key))
  const labels = value as Labels
  const problem = labelsProblem(labels)
  return problem === null ? labels : refuse(place, problem)
}

const keyOf = (value: unknown, place: JsonPath): EnrolKey => {
  const key = objectOf(value, KEYS, place)
  const at = (name: (typeof KEYS)[number]): JsonPath => within(place, name)
  return {
    id: hexOf(key.id, ENROL_KEY_ID_BYTES, at('id')),
    secret: hexOf(key.secret, ENROL_SECRET_BYTES, at('secret')),
    created_at_ms: countOf(key.created_at_ms, at('created_at_ms')),
    expires_at_ms: countOf(key.expires_at_ms, at('expires_at_ms')),
    uses: countOf(key.uses, at('uses')),
    names: key.names === null ? null : textOf(key.names, at('names')),
    labels: labelsOf(key.labels, at('labels')),
    operator_name: textOf(key.operator_name, at('operator_name')),
    acl: textOf(key.acl, at('acl')),
    revoked: flagOf(key.revoked, at('revoked')),
    hosts: listOf(key.hosts, at('hosts'), hostOf),
  }
}

/** The keys of a parsed `enrol-keys.json`. Throws `bad_enrolment` with file and place. */
export const enrolKeysOf = (value: unknown, file: string): EnrolKey[] => {
  const place: JsonPath = { file, code: 'bad_enrolment', path: '' }
  const root = fileOf(value, FILE_VERSION, ['keys'], place)
  const keys = listOf(root.keys, within(place, 'keys'), keyOf)
  keys.forEach(({ id }, index) => {
    if (keys.findIndex((other) => other.id === id) !== index) refuse(within(within(place, 'keys'), index), 'its id appears twice')
  })
  return keys
}

/** The operator's enrolment keys. Each change is on disk before it is confirmed, one after another. */
export class EnrolmentKeys {
  readonly #path: string
  #keys: readonly EnrolKey[] = []
  #last: Promise<unknown> = Promise.resolve()

  /** `path` is that of `enrol-keys.json` in the data directory. */
  constructor({ path }: { path: string }) {
    this.#path = path
  }

  /** Reads the file. Throws `bad_enrolment` or `loose_permissions`, which must prevent the start. */
  async load(): Promise<void> {
    const value = await readJsonFile(this.#path, 'bad_enrolment')
    this.#keys = value === undefined ? [] : enrolKeysOf(value, this.#path)
  }

  list(): readonly EnrolKey[] {
    return this.#keys
  }

  /**
   * Makes a change that depends on the present keys, after all earlier changes. The file is synchronised before the result is returned. If
   * it cannot be written, nothing changes.
   */
  async change<T>(work: (keys: readonly EnrolKey[]) => { readonly keys: readonly EnrolKey[]; readonly result: T }): Promise<T> {
    const changed = this.#last.then(async () => {
      const { keys, result } = work(this.#keys)
      if (keys === this.#keys) return result
      await writeJsonFile(this.#path, { version: FILE_VERSION, keys })
      this.#keys = keys
      return result
    })
    this.#last = changed.catch(() => undefined)
    return changed
  }

  /** Adds a key. Above the limit, it forgets the oldest ended key. Throws `conflict` if none has ended, or if the ID exists. */
  async add(key: EnrolKey, nowMs: number): Promise<EnrolKey> {
    return this.change((keys) => {
      if (keys.some(({ id }) => id === key.id)) throw new AppError('conflict', 'this enrolment key exists already')
      const ended = keys.length < MAX_ENROL_KEYS ? null : keys.find((one) => isEnded(one, nowMs))
      if (ended === undefined)
        throw new AppError('conflict', `${MAX_ENROL_KEYS} enrolment keys are valid: revoke one first with x0x enrol revoke ID`)
      return { keys: [...keys.filter((one) => one !== ended), key], result: key }
    })
  }

  /** Revokes the key with this ID or unique beginning of it. Throws `not_found`. */
  async revoke(id: string): Promise<EnrolKey> {
    return this.change((keys) => {
      const [found, ...others] = keys.filter((key) => id !== '' && key.id.startsWith(id))
      if (found === undefined || others.length > 0)
        throw new AppError(
          'not_found',
          `${found === undefined ? 'no enrolment key has' : 'more than one enrolment key has'} the ID ${JSON.stringify(id)}`,
          {
            data: { next: 'Try: x0x enrol list' },
          },
        )
      const revoked = { ...found, revoked: true }
      return { keys: replacedKey(keys, revoked), result: revoked }
    })
  }
}

export const replacedKey = (keys: readonly EnrolKey[], key: EnrolKey): readonly EnrolKey[] =>
  keys.map((one) => (one.id === key.id ? key : one))
