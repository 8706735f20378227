import { isAppError, nextOf } from '../../base/errors.ts'
import { type FanoutHost, NOT_BEGUN } from '../../exec/fleet/host-end.ts'
import { type FanoutEnd, type FanoutHostJson, NO_FACTS } from '../../protocol/fanout.ts'
import type { RunEnd } from './run-end.ts'
import type { ToolRun } from './tool-run.ts'

interface Ending {
  readonly end: FanoutEnd
  /** A code of the errors, or a reason of a denial. */
  readonly error?: string | null
  readonly message?: string | null
  readonly incomplete?: boolean
}

/** By which a run ends that is cancelled before its target has it. */
const CANCELLED_BEFORE = ['shutting_down', 'conflict', 'peer_unreachable'] as const
/** By which this host says no to what is asked; other errors say why nobody could be asked. */
const SAID_NO = ['command_denied', 'bad_request'] as const

const refused = ({ refusal }: ToolRun, { denial_reason, launch_error, denial_detail }: RunEnd, weCancelled: boolean): Ending => {
  const code = refusal?.code ?? 'internal'
  if (weCancelled && CANCELLED_BEFORE.some((one) => one === code)) return { end: 'cancelled' }
  const why = refusal?.data['reason']
  const reason = denial_reason ?? (typeof why === 'string' ? why : code)
  const message = denial_detail ?? launch_error?.message ?? null
  if (denial_reason !== null || SAID_NO.some((one) => isAppError(refusal, one))) return { end: 'denied', error: reason, message }
  return { end: 'unreachable', error: code, message }
}

const endingOf = (run: ToolRun, end: RunEnd, weCancelled: boolean): Ending => {
  if (run.refusal !== null) return refused(run, end, weCancelled)
  const { exit_code, signal, interruption, launch_error } = end
  // One that ended by itself before our cancellation came has run.
  if (weCancelled && run.cancelledThere && interruption === null) return { end: 'cancelled' }
  if (exit_code !== null || signal !== null) return { end: 'ran', incomplete: interruption !== null || run.isCut, message: interruption }
  if (interruption !== null) return { end: 'unknown', message: interruption }
  if (weCancelled) return { end: 'cancelled' }
  return { end: 'denied', error: launch_error === null ? null : 'spawn_failed', message: launch_error?.message ?? NOT_BEGUN }
}

/** What became of a host, of the run that asked it, which is over: `error` is why it did not run. `weCancelled`: before it had ended. */
export const hostOfRun = ({ host, agent_id }: FanoutHost, run: ToolRun, weCancelled: boolean): FanoutHostJson => {
  const known = run.end
  const ending: Ending = known === null ? { end: 'unknown' } : endingOf(run, known, weCancelled)
  const { end, error = null, message = null, incomplete = false } = ending
  const next = end === 'cancelled' ? {} : nextOf(run.refusal)
  const facts = {
    ...NO_FACTS,
    request_id: null,
    host,
    agent_id,
    end,
    error,
    incomplete,
    code: end === 'ran' ? (known?.exit_code ?? null) : null,
  }
  return { ...facts, ...(message !== null && { message }), ...next }
}
