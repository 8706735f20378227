import { sha256 } from '../identity/hash.ts'
import { toHex } from '../protocol/ids.ts'
import { ENROL_ATTEMPT_BYTES } from '../protocol/limits/enrolment.ts'
import { type JsonPath, fileOf, readJsonFile, refuse, textOf, within, writeJsonFile } from './json-file.ts'

/** Enrolment of this machine by an operator, as `enrolment.json`. */
export interface PendingEnrolment {
  /** `written`: the operator's entries and contact are in force, and the operator may not know it. */
  readonly state: 'pending' | 'written' | 'done'
  /** Null when the enrolment is done, so that the secret is not kept. */
  readonly token: string | null
  /** Digest of the token, as hex, to recognise it at a later start. */
  readonly token_sha256: string
  /** Name that the operator must give, or null. */
  readonly name: string | null
  /** Entries may be added to an ACL that was edited. */
  readonly append: boolean
  /** Number of the process that got the grant, as hex. Null before. */
  readonly attempt: string | null
}

const FILE_VERSION = 1
const KEYS = ['state', 'token', 'token_sha256', 'name', 'append', 'attempt'] as const
const STATES = ['pending', 'written', 'done'] as const

export const enrolTokenDigest = (token: string): string => toHex(sha256(new TextEncoder().encode(token)))

/** The enrolment of the file, or null without one. Throws `bad_enrolment` or `loose_permissions`. */
export const loadEnrolment = async (path: string): Promise<PendingEnrolment | null> => {
  const value = await readJsonFile(path, 'bad_enrolment')
  if (value === undefined) return null
  const place: JsonPath = { file: path, code: 'bad_enrolment', path: '' }
  const root = fileOf(value, FILE_VERSION, KEYS, place)
  const at = (key: (typeof KEYS)[number]): JsonPath => within(place, key)
  const textOrNull = (key: 'token' | 'name' | 'attempt'): string | null => (root[key] === null ? null : textOf(root[key], at(key)))
  const state = STATES.find((one) => one === root.state) ?? refuse(at('state'), `expected one of ${STATES.join(', ')}`)
  const attempt = textOrNull('attempt')
  if (attempt === null ? state === 'written' : !new RegExp(`^[0-9a-f]{${2 * ENROL_ATTEMPT_BYTES}}$`).test(attempt))
    refuse(at('attempt'), `expected ${2 * ENROL_ATTEMPT_BYTES} hex digits`)
  const token = textOrNull('token')
  if (token === null && state !== 'done') refuse(at('token'), 'missing')
  return {
    state,
    token,
    token_sha256: textOf(root.token_sha256, at('token_sha256')),
    name: textOrNull('name'),
    append: typeof root.append === 'boolean' ? root.append : refuse(at('append'), 'expected true or false'),
    attempt,
  }
}

export const saveEnrolment = async (path: string, enrolment: PendingEnrolment): Promise<void> =>
  writeJsonFile(path, { version: FILE_VERSION, ...enrolment })
