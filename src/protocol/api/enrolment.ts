import { hexId } from '../api-fields.ts'
import { type Sent, count, flag, list, map, matching, oneOf, orNull, record, text, time, yes } from '../json-table.ts'

/** Hex of an enrolment key's ID. */
const keyId = matching(/^[0-9a-f]{16}$/, 'an ID of 16 hex digits')

export const ENROL_STATES = ['valid', 'used_up', 'expired', 'revoked'] as const

const ENROLLED_HOST = {
  name: text.says('name that was given to the host'),
  agent_id: hexId,
  machine_id: hexId,
  granted_at: time,
  confirmed: flag.says('the host has confirmed that it wrote its files'),
}

/** An enrolment key, without its secret. */
export const ENROL_KEY = {
  id: keyId,
  state: oneOf(ENROL_STATES),
  names: orNull(text).says('node set of the names for hosts; null if hosts use their own names'),
  labels: map(text, text),
  uses: count,
  uses_left: count,
  acl: flag.says('hosts get ACL entries'),
  created_at: time,
  expires_at: time,
  hosts: list(record(ENROLLED_HOST)),
}
export type EnrolKeyRecord = Sent<typeof ENROL_KEY>

export const ENROL_KEY_ANSWER = { ok: yes, key: record(ENROL_KEY) }
export type EnrolKeyAnswer = Sent<typeof ENROL_KEY_ANSWER>
export const ENROL_KEYS_ANSWER = { ok: yes, keys: list(record(ENROL_KEY)) }
export type EnrolKeysAnswer = Sent<typeof ENROL_KEYS_ANSWER>
