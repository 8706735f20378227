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

/** Size of an argv that is shown only in part. */
export const ARGV_CUT = { tokens: count, bytes: count, sha256: hexId }

/**
 * State of a detached run as its requester knows it. `unknown` means that its Request may have been sent without a reply, or that the host
 * does not know it. `waiting` means that it needs an approval. `lost` means that the host's executor was restarted meanwhile. `expired`
 * means that the host has removed it.
 */
export type AskedState = DetachedState

const sha256 = matching(/^[0-9a-f]{64}$/, '64 lower-case hex digits')

/** How the run ended. All fields are null if it has not ended or the end is unknown. */
const ENDED = {
  code: orNull(exitStatus),
  signal: orNull(wholeUpTo(MAX_SIGNAL)),
  /** Null for a reason that a later release added. */
  denial_reason: orNull(oneOf(DENIAL_REASONS)),
}
/** Last known state. */
const NEWS = { state: oneOf(DETACHED_STATES), ...ENDED }
export type DetachedRunUpdate = Sent<typeof NEWS>

/** A detached run that this daemon requested, with the keys of its file. Entries are replaced, never changed. */
export const DETACHED_REQUEST = {
  request_id: tested<RequestId>((value) => isText(value) && isRequestId(value), 'a UUID'),
  agent_id: sha256,
  machine_id: sha256,
  /** Beginning of a long argv. */
  argv: texts,
  /** Size and digest of the whole argv, or null if `argv` is complete. */
  argv_cut: orNull(record({ ...ARGV_CUT, sha256 })),
  /** Epoch milliseconds. */
  asked_at_ms: count,
  /** Requested lifetime and output storage, or null for the host's defaults. */
  lifetime_ms: orNull(count),
  keep_bytes: orNull(count),
  /** Run label of the client, or null. */
  session: orNull(text),
  ...NEWS,
  /** When `state` was received, in epoch milliseconds, or null if never. */
  heard_at_ms: orNull(count),
  /** Digest of the fields that a repeated Request has in common. Another command with the same ID has another digest. */
  digest: sha256,
  /** Digest of each Request that was signed for the run, the newest last. */
  requests: list(sha256, { min: 1, max: MAX_ASKED_REQUESTS }),
}
export type DetachedRequest = Sent<typeof DETACHED_REQUEST>

/** A page of detached runs, the oldest first. */
export interface DetachedRequestPage {
  readonly runs: readonly DetachedRequest[]
  readonly more: boolean
}

/** True if no later message can change the result. */
export const isOver = (state: AskedState): boolean => state === 'ended' || state === 'lost' || state === 'expired'

/** True if the end is known. */
export const hasEnd = ({ code, signal, denial_reason }: Sent<typeof ENDED>): boolean =>
  code !== null || signal !== null || denial_reason !== null

/** Output that the host stores. */
export const KEPT_THERE = {
  bytes_kept: count,
  bytes_dropped: count.says('bytes above the storage limit'),
  keep_bytes: count,
  lifetime_left_ms: orNull(count).says('time until the run is ended; null if it is not running'),
  kept_for_ms: orNull(count).says('time until the target deletes the output; null if the run has not ended'),
}
export type RetainedOutputJson = Sent<typeof KEPT_THERE>

/** A detached run as local clients see it. */
export const SHOWN_RUN = {
  request_id: requestId,
  agent_id: hexId,
  machine_id: hexId,
  agent: orNull(text).says('name of the contact; null if the agent is not a contact'),
  argv: texts,
  argv_cut: optional(record(ARGV_CUT)).says('size and digest of the whole argv; present if argv is only its beginning'),
  asked_at: time,
  lifetime_ms: orNull(count),
  keep_bytes: orNull(count),
  session: orNull(text),
  state: oneOf(DETACHED_STATES),
  code: orNull(exitStatus),
  signal: orNull(signalNumber),
  denial_reason: orNull(denialReason),
  heard_at: orNull(time).says('time at which state was received; null if never'),
  kept: orNull(record(KEPT_THERE)).says('current data from the target; null if it was not asked, or did not answer'),
  problem: orNull(record({ error: text, message: text, next: optional(text) })).says('why the target did not answer'),
}
export type DetachedRunView = Sent<typeof SHOWN_RUN>
