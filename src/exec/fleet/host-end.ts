import { errorText, isAppError, nextOf } from '../../base/errors.ts'
import { type FanoutEnd, type FanoutHostJson, NO_FACTS, type NotStartedReason } from '../../protocol/api/fanout.ts'
import { denialText } from '../../protocol/denial-text.ts'
import type { AgentId, RequestId } from '../../protocol/ids.ts'
import type { RunOutcome } from '../run-spec.ts'
import { isCancelledUnsent, isIdUsed } from '../outgoing-runs.ts'

export interface FanoutHost {
  /** Name of the contact, or the ID. */
  readonly host: string
  readonly agent_id: AgentId
}

export interface RequestedMode {
  readonly argv: readonly string[]
  /** True if this daemon cancelled the run before its outcome. */
  readonly weCancelled: boolean
  /** The client chose the request ID, and may have used it before. */
  readonly idIsChosen: boolean
}

/** Derives the end of a host from its outcome. */
const endOf = (
  { code, signal, denial_reason, never_arrived, incomplete, warnings }: RunOutcome,
  { weCancelled, idIsChosen }: RequestedMode,
): FanoutEnd => {
  if (never_arrived === true) return weCancelled ? 'cancelled' : 'unreachable'
  // The command may have run under an ID that its executor has seen, or did not look for.
  if (idIsChosen && (denial_reason === 'request_id_used' || denial_reason === 'unverified_sender')) return 'unknown'
  if (denial_reason !== null) return 'denied'
  // The executor confirms the cancellation. A run that ended before Cancel arrived has run.
  if (!incomplete && warnings.includes('cancelled')) return 'cancelled'
  if (code !== null || signal !== null) return 'ran'
  // Without an Exit the end is unknown. An Exit without code and signal means that no process started.
  return incomplete ? 'unknown' : 'denied'
}

const USED_BEFORE = 'its agent refused the run ID: the command may have run before'
const USED_HERE = 'another run of this daemon had this ID: the command may have run before'
export const NOT_BEGUN = 'its agent stopped the run before a process started'

const nextOfDenial = ({ host }: FanoutHost, reason: string, { argv }: RequestedMode): string =>
  denialText(reason, { host, argv }).next.join('\n')

/** Result of a host whose run has an outcome. */
export const hostOfOutcome = (host: FanoutHost, outcome: RunOutcome, how: RequestedMode): FanoutHostJson => {
  const end = endOf(outcome, how)
  const { ok: _ok, never_arrived: _never, incomplete, message, waited_ms, warnings, ...facts } = outcome
  const isUsed = end === 'unknown' && outcome.denial_reason !== null
  const why = isUsed ? USED_BEFORE : (message ?? (end === 'denied' && outcome.denial_reason === null ? NOT_BEGUN : undefined))
  return {
    ...facts,
    ...host,
    end,
    error: end === 'unreachable' ? 'peer_unreachable' : null,
    incomplete: end === 'ran' && incomplete,
    warnings: [...warnings],
    ...(waited_ms === undefined ? {} : { waited_ms }),
    ...(why === undefined ? {} : { message: why }),
    ...(end === 'denied' && outcome.denial_reason !== null ? { next: nextOfDenial(host, outcome.denial_reason, how) } : {}),
  }
}

/** Result of a host whose run threw. If the Request was `sent`, or its ID was used before, the command may have run. */
export const hostOfError = (host: FanoutHost, request_id: RequestId | null, error: unknown, sent: boolean): FanoutHostJson => {
  const code = isAppError(error) ? error.code : 'internal'
  const cancelled = isCancelledUnsent(error) || code === 'shutting_down'
  const isUsed = isIdUsed(error)
  const end = sent || isUsed ? 'unknown' : cancelled ? 'cancelled' : 'unreachable'
  const message = isUsed ? USED_HERE : errorText(error)
  const next = end === 'unreachable' ? nextOf(error) : {}
  return { ...NO_FACTS, ...host, request_id, end, error: end === 'cancelled' ? null : code, message, ...next }
}

/** Result of a host that was cancelled before its run started. */
export const hostCancelled = (host: FanoutHost, request_id: RequestId): FanoutHostJson => ({
  ...NO_FACTS,
  ...host,
  request_id,
  end: 'cancelled',
  message: 'it was cancelled before its request was sent',
})

const WHY_STOPPED: Readonly<Record<NotStartedReason, string>> = {
  canary_failed: 'a canary host failed',
  max_failures_reached: '--max-failures was reached',
  deadline_over: '--deadline was reached',
  caller_left: 'the client has disconnected',
  fanout_cancelled: 'the fan-out was cancelled',
  shutting_down: 'the daemon was stopping',
}

/** Result of a host that was not started. */
export const hostNotStarted = (host: FanoutHost, reason: NotStartedReason): FanoutHostJson => ({
  ...NO_FACTS,
  host: host.host,
  agent_id: host.agent_id,
  request_id: null,
  end: 'not_started',
  error: reason,
  message: WHY_STOPPED[reason],
})

/** Adds to a cancelled host why its fan-out was stopped, because the Exit does not say so. */
export const hostStopped = (host: FanoutHostJson, reason: NotStartedReason | null): FanoutHostJson =>
  host.end === 'cancelled' && host.message === undefined && reason !== null
    ? { ...host, message: `it was stopped: ${WHY_STOPPED[reason]}` }
    : host
