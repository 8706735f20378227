import type { DenialReason } from '../../protocol/reasons.ts'
import type { RunCaps } from '../permit.ts'
import { type Detaching, type RunLimits, isStdinOpen } from './acl.ts'
import type { MatchedCommand } from './match.ts'

/** A decoded request, not yet allowed. */
export interface Intent {
  readonly argv: readonly string[]
  /** Any value except null is denied: a requester may not choose the directory. */
  readonly cwd: string | null
  /** Announced bytes of stdin, or null. */
  readonly stdin_len: number | null
  /** SHA-256 of stdin as hex. If stdin has several pieces, the hash of their hashes. Null for none. */
  readonly stdin_sha256?: string | null
  /** Milliseconds, or null for the maximum. A value below 1 is denied, like one above the maximum. */
  readonly timeout_ms: number | null
  /** True to reduce a timeout, lifetime or output above its maximum instead of denying the run. */
  readonly clamp: boolean
  /** Detached run, absent or null for others. Its lifetime replaces `timeout_ms`, which is then null. */
  readonly detach?: DetachIntent | null
  /** Terminal of the run, absent or null for pipes. */
  readonly terminal?: TerminalIntent | null
}

/** Initial size and type of a terminal. */
export interface TerminalIntent {
  readonly columns: number
  readonly rows: number
  /** Value of the variable TERM. */
  readonly term: string
}

/** Lifetime and output storage of a detached run. */
export interface DetachIntent {
  /** Milliseconds, or null for the maximum. */
  readonly lifetime_ms: number | null
  /** Bytes of both streams together, or null for the maximum. */
  readonly keep_bytes: number | null
}

/** A denial by one of these gates. */
export interface CapsDenied {
  readonly gate: 'cwd' | 'detach' | 'terminal' | 'stdin' | 'timeout'
  readonly reason: DenialReason
  readonly detail: string
}

/** Checks the gates for cwd, detached runs, terminals, stdin and timeout. Returns the limits of the run. */
export const resolveCaps = (intent: Intent, place: MatchedCommand): RunCaps | CapsDenied => {
  const { limits, detaching } = place.entry
  if (intent.cwd !== null) return { gate: 'cwd', reason: 'cwd_not_allowed', detail: 'a requester cannot choose the working directory' }
  const { detach = null } = intent
  const kept = detach === null ? null : keptOf(detach, detaching, intent.clamp)
  if (kept !== null && 'gate' in kept) return kept
  if (intent.terminal && !(place.command.terminal && detach === null)) return NO_TERMINAL
  const open = isStdinOpen(place.entry, place.command)
  if (!open && intent.stdin_len !== null) return tooMuchStdin('stdin is closed for this command')
  const stdin = intent.stdin_len ?? 0
  if (!Number.isSafeInteger(stdin) || stdin < 0 || stdin > limits.max_stdin_bytes)
    return tooMuchStdin(`${stdin} bytes of stdin; the limit is ${limits.max_stdin_bytes}`)
  const cap = (kept?.max_secs ?? limits.max_duration_secs) * 1000
  const asked = (detach === null ? intent.timeout_ms : detach.lifetime_ms) ?? cap
  const tooLong = asked > cap
  if (!Number.isSafeInteger(asked) || asked < 1 || (tooLong && intent.clamp !== true))
    return { gate: 'timeout', reason: 'timeout_too_large', detail: `a timeout of ${asked} ms; it must be from 1 to ${cap}` }
  const caps = runCaps({ ...limits, max_stdin_bytes: open ? limits.max_stdin_bytes : 0 }, tooLong ? cap : asked, tooLong)
  if (kept === null) return caps
  // A detached run has no stdin.
  return { ...caps, max_stdin_bytes: 0, max_duration_ms: cap, max_output_bytes: kept.keep_bytes, keep_bytes: kept.keep_bytes }
}

const NO_TERMINAL: CapsDenied = {
  gate: 'terminal',
  reason: 'terminal_not_allowed',
  detail: 'the command lacks terminal = true, so it cannot run on a terminal',
}

const tooMuchStdin = (detail: string): CapsDenied => ({ gate: 'stdin', reason: 'stdin_too_large', detail })

/** Duration and output storage of a detached run. */
const keptOf = (
  { keep_bytes }: DetachIntent,
  detaching: Detaching | null,
  clamp: boolean,
): { readonly max_secs: number; readonly keep_bytes: number } | CapsDenied => {
  const refused = (detail: string): CapsDenied => ({ gate: 'detach', reason: 'detach_not_allowed', detail })
  if (detaching === null) return refused('the entry lacks detach = true, so a run cannot outlive its client')
  const { max_output_bytes: cap, max_secs } = detaching
  const asked = keep_bytes ?? cap
  if (!Number.isSafeInteger(asked) || asked < 1 || (asked > cap && clamp !== true))
    return refused(`${asked} bytes of output to keep; it must be from 1 to ${cap}`)
  return { max_secs, keep_bytes: Math.min(asked, cap) }
}

const runCaps = (limits: RunLimits, timeoutMs: number, clamped: boolean): RunCaps => ({
  max_stdout_bytes: limits.max_stdout_bytes,
  max_stderr_bytes: limits.max_stderr_bytes,
  max_output_bytes: null,
  max_stdin_bytes: limits.max_stdin_bytes,
  warn_stdout_bytes: limits.warn_stdout_bytes,
  warn_stderr_bytes: limits.warn_stderr_bytes,
  warn_duration_ms: limits.warn_duration_secs * 1000,
  max_duration_ms: limits.max_duration_secs * 1000,
  timeout_ms: timeoutMs,
  timeout_clamped: clamped,
  keep_bytes: null,
})
