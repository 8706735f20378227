import { denialReason, exitStatus, hexId, requestId, signalNumber } from '../api-fields.ts'
import { type RequestId, isRequestId } from '../ids.ts'
import {
  type Sent,
  count,
  isText,
  list,
  matching,
  oneOf,
  optional,
  orNull,
  record,
  tested,
  text,
  texts,
  time,
  wholeUpTo,
} from '../json-table.ts'
import { MAX_ASKED_REQUESTS } from '../limits/detached.ts'
import { MAX_SIGNAL } from '../limits/wire.ts'
import { DENIAL_REASONS, DETACHED_STATES, type DetachedState } from '../reasons.ts'

/** Of a whole argv of which only the beginning is shown. */
export const ARGV_CUT = { tokens: count, bytes: count, sha256: hexId }

/**
 * What is known here of a detached run: `unknown` where its Request may have left and nothing was heard yet, or where its host
 * knows nothing of it; `waiting` where somebody must allow it; `lost` where its host's executor was started anew meanwhile;
 * `expired` where its host has let go of it.
 */
export type AskedState = DetachedState

const sha256 = matching(/^[0-9a-f]{64}$/, '64 lower-case hex digits')

/** How it ended; all null where it has not, or where nobody knows. */
const ENDED = {
  code: orNull(exitStatus),
  signal: orNull(wholeUpTo(MAX_SIGNAL)),
  /** One that is not known here: the file is of a later release. */
  denial_reason: orNull(oneOf(DENIAL_REASONS)),
}
/** What was last heard of it. */
const NEWS = { state: oneOf(DETACHED_STATES), ...ENDED }
export type DetachedRunUpdate = Sent<typeof NEWS>

/** A detached run that this daemon asked for, as its file has it, key for key. Never changed, only replaced. */
export const DETACHED_REQUEST = {
  request_id: tested<RequestId>((value) => isText(value) && isRequestId(value), 'a UUID'),
  agent_id: sha256,
  machine_id: sha256,
  /** Its beginning, where it is long. */
  argv: texts,
  /** Of the whole argv; null: it is whole. */
  argv_cut: orNull(record({ ...ARGV_CUT, sha256 })),
  /** Epoch milliseconds. */
  asked_at_ms: count,
  /** How long it was asked to be kept, and how much of its output; null: as its host has it. */
  lifetime_ms: orNull(count),
  keep_bytes: orNull(count),
  /** Of the caller that asked; null: it gave none. */
  session: orNull(text),
  ...NEWS,
  /** When `state` was heard, epoch milliseconds; null: never. */
  heard_at_ms: orNull(count),
  /** Of all that a Request for it repeats: another command under the same id has another. */
  digest: sha256,
  /** Of each Request that was signed for it, the newest last. */
  requests: list(sha256, { min: 1, max: MAX_ASKED_REQUESTS }),
}
export type DetachedRequest = Sent<typeof DETACHED_REQUEST>

/** Some of them, the oldest first. */
export interface DetachedRequestPage {
  readonly runs: readonly DetachedRequest[]
  /** There are more behind the last of them. */
  readonly more: boolean
}

/** Nothing that comes later changes what the run did. */
export const isOver = (state: AskedState): boolean => state === 'ended' || state === 'lost' || state === 'expired'

/** Whether it is known how it ended. */
export const hasEnd = ({ code, signal, denial_reason }: Sent<typeof ENDED>): boolean =>
  code !== null || signal !== null || denial_reason !== null

/** What its host keeps of it. */
export const KEPT_THERE = {
  bytes_kept: count,
  bytes_dropped: count.says('beyond what is kept'),
  keep_bytes: count,
  lifetime_left_ms: orNull(count).says('until it is ended; null: it does not run'),
  kept_for_ms: orNull(count).says('until it is forgotten; null: it is not over'),
}
export type RetainedOutputJson = Sent<typeof KEPT_THERE>

/** A detached run as callers of the daemon are shown it. */
export const SHOWN_RUN = {
  request_id: requestId,
  agent_id: hexId,
  machine_id: hexId,
  agent: orNull(text).says('what the operator calls the agent; null: it is no contact'),
  argv: texts,
  argv_cut: optional(record(ARGV_CUT)).says('argv is only its beginning; this is of the whole'),
  asked_at: time,
  lifetime_ms: orNull(count),
  keep_bytes: orNull(count),
  session: orNull(text),
  state: oneOf(DETACHED_STATES),
  code: orNull(exitStatus),
  signal: orNull(signalNumber),
  denial_reason: orNull(denialReason),
  heard_at: orNull(time).says('when state was heard; null: never'),
  kept: orNull(record(KEPT_THERE)).says('what its host said just now; null: it was not asked, or did not answer'),
  problem: orNull(record({ error: text, message: text, next: optional(text) })).says('why its host did not answer'),
}
export type DetachedRunView = Sent<typeof SHOWN_RUN>
