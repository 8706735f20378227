import { matching, nameOf, text, wholeUpTo } from './json-table.ts'
import { MAX_EXIT_STATUS, MAX_SIGNAL } from './limits/wire.ts'
import { DENIAL_REASONS, WARNING_KINDS } from './reasons.ts'

/** Fields that many messages of the API have. */

/** Form of an ID that a reader of a response accepts. */
const ANY_ID = /^[\w-]{1,64}$/

export const hexId = matching(/^[0-9a-f]{64}$/, 'an id', ANY_ID).says('64 lower-case hex characters')
export const requestId = matching(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/, 'an id', ANY_ID).says(
  'a UUID in lower case',
)
export const base64 = text.says('standard base64 with padding')
export const exitStatus = wholeUpTo(MAX_EXIT_STATUS)
export const signalNumber = wholeUpTo(MAX_SIGNAL, 1)
export const denialReason = nameOf(DENIAL_REASONS)
export const warningKind = nameOf(WARNING_KINDS)
