import { MAX_SESSION_NAME } from '../protocol/lifecycle-limits.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS, MAX_EXIT_STATUS, MAX_SIGNAL } from '../protocol/limits.ts'
import { DENIAL_REASONS, DETACHED_STATES } from '../protocol/reasons.ts'
import { id32, list, nullable, oneOf, requestId, text, uint } from '../protocol/schema.ts'

const call = { id: uint() }
const one = { ...call, request_id: requestId }

/** Of the detached runs that this daemon asked for, whose file only the executor has. Each is answered by a result. */
export const ASKED_MESSAGES = {
  /** Before its Request leaves. `digest`: of all that another Request for it would repeat; `request`: SHA-256 of this one. */
  asked_add: [
    28,
    {
      ...one,
      agent_id: id32,
      machine_id: id32,
      argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
      lifetime_ms: nullable(uint()),
      keep_bytes: nullable(uint()),
      session: nullable(text(MAX_SESSION_NAME)),
      digest: id32,
      request: id32,
    },
  ],
  /** The oldest ones, or those behind `after`. */
  asked_page: [29, { ...call, after: nullable(requestId) }],
  asked_get: [30, one],
  /** What was heard of it. */
  asked_note: [
    31,
    {
      ...one,
      state: oneOf(DETACHED_STATES),
      code: nullable(uint(MAX_EXIT_STATUS)),
      signal: nullable(uint(MAX_SIGNAL)),
      denial_reason: nullable(oneOf(DENIAL_REASONS)),
    },
  ],
  asked_forget: [32, one],
} as const

/** Which answer belongs to which call. */
export const ASKED_ANSWERS = {
  asked_add: 'result',
  asked_page: 'result',
  asked_get: 'result',
  asked_note: 'result',
  asked_forget: 'result',
} as const
