import { type AppError, isAppError, nextOf } from '../../base/errors.ts'
import { signalName } from '../../base/format.ts'
import { shown } from '../../base/visible-text.ts'
import type { LocalOutcome } from '../../executor-api/local.ts'
import { MAX_NEXT } from '../../protocol/limits/tools.ts'
import type { LaunchError, ToolResult } from './tool-result.ts'

export type RunEnd = Pick<
  ToolResult,
  'exit_code' | 'signal' | 'duration_ms' | 'denial_reason' | 'denial_detail' | 'launch_error' | 'interruption'
>

export const NO_END: RunEnd = {
  exit_code: null,
  signal: null,
  duration_ms: 0,
  denial_reason: null,
  denial_detail: null,
  launch_error: null,
  interruption: null,
}

/** The reason why the end of a run of another process is not known. */
export const RUNS_ELSEWHERE = 'another server of this name runs it: call again with the same key to get the result'

/** As `nextOf`, cut and cleaned, because it may contain text of others. */
export const shownNext = (error: unknown): { readonly next?: string } => {
  const { next } = nextOf(error)
  return next === undefined ? {} : { next: shown(next).slice(0, MAX_NEXT).toWellFormed() }
}

/** Null means the executor failed. */
export const endOf = (outcome: LocalOutcome | null): RunEnd => {
  if (outcome === null) return { ...NO_END, interruption: 'the executor failed, so the end of the command is unknown' }
  const { code, signal, duration_ms, denial_reason, detail, lost } = outcome
  const launch_error = denial_reason === null ? null : { kind: 'spawn' as const, message: shown(detail ?? denial_reason) }
  return {
    ...NO_END,
    exit_code: code,
    signal: signal === null ? null : (signalName(signal) ?? `SIG${signal}`),
    duration_ms,
    launch_error,
    interruption: lost === null ? null : shown(lost),
  }
}

/** Errors that are denials by policy; other errors are launch errors. */
const DENIALS = [
  'command_denied',
  'forbidden_path',
  'unsupported_capability',
  'resource_limit',
  'conflict',
  'approval_denied',
  'approval_timeout',
  'approval_unavailable',
  'approval_mismatch',
  'sandbox_unavailable',
] as const

/** The target allowed the command and could not start it. */
const FAILED_THERE = 'spawn_failed'

/** The end of a run that the executor refused. A forbidden directory is both a denial and a launch error. */
export const refusalOf = (error: AppError): RunEnd => {
  const { reason } = error.data
  const launch_error = { kind: launchErrorOf(error), message: shown(error.message) }
  if (!DENIALS.some((code) => isAppError(error, code)) || reason === FAILED_THERE) return { ...NO_END, launch_error }
  const denial_reason = typeof reason === 'string' ? shown(reason) : error.code
  return {
    ...NO_END,
    denial_reason,
    denial_detail: launch_error.message,
    launch_error: isAppError(error, 'forbidden_path') ? launch_error : null,
  }
}

const launchErrorOf = (error: AppError): LaunchError['kind'] => {
  if (isAppError(error, 'file_not_found') && 'argv0' in error.data)
    return error.data['why'] === 'not_executable' ? 'not_executable' : 'not_found'
  return CONFIG.some((code) => isAppError(error, code)) ? 'config' : 'spawn'
}

const CONFIG = ['bad_request', 'file_not_found', 'file_error', 'forbidden_path', 'unknown_agent', 'ambiguous_agent'] as const
