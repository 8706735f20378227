import type { DenialReason } from '../../protocol/reasons.ts'
import type { RunCaps } from '../permit.ts'
import { type Detaching, type RunLimits, isStdinOpen } from './acl.ts'
import type { MatchedCommand } from './match.ts'

/** What is asked, decoded and not yet allowed. */
export interface Intent {
  readonly argv: readonly string[]
  /** A requester may not choose one: anything but null is refused. */
  readonly cwd: string | null
  /** Bytes of stdin announced; null: none. */
  readonly stdin_len: number | null
  /** SHA-256 of all of it, or of the hashes of its pieces where it has several, hex; null: none. */
  readonly stdin_sha256?: string | null
  /** Milliseconds; null: the cap. Below 1 is refused like one above the cap. */
  readonly timeout_ms: number | null
  /** A timeout above the cap runs at the cap instead of being refused; so do a lifetime and bytes to keep. */
  readonly clamp: boolean
  /** It is to outlive its caller; absent or null: it is not. Its time is then this one's, and `timeout_ms` is null. */
  readonly detach?: DetachIntent | null
}

/** How long a run is to outlive its caller, and what is to be kept of its output. */
export interface DetachIntent {
  /** Milliseconds; null: the cap. */
  readonly lifetime_ms: number | null
  /** Bytes of both streams together; null: the cap. */
  readonly keep_bytes: number | null
}

/** Why one of these gates refuses. */
export interface CapsDenied {
  readonly gate: 'cwd' | 'detach' | 'stdin' | 'timeout'
  readonly reason: DenialReason
  readonly detail: string
}

/** The gates of cwd, detaching, stdin and timeout; the caps of the run where they hold. */
export const resolveCaps = (intent: Intent, place: MatchedCommand): RunCaps | CapsDenied => {
  const { limits, detaching } = place.entry
  if (intent.cwd !== null) return { gate: 'cwd', reason: 'cwd_not_allowed', detail: 'a requester may not choose the working directory' }
  const { detach = null } = intent
  const kept = detach === null ? null : keptOf(detach, detaching, intent.clamp)
  if (kept !== null && 'gate' in kept) return kept
  const open = isStdinOpen(place.entry, place.command)
  if (!open && intent.stdin_len !== null) return tooMuchStdin('stdin is closed for this command')
  const stdin = intent.stdin_len ?? 0
  if (!Number.isSafeInteger(stdin) || stdin < 0 || stdin > limits.max_stdin_bytes)
    return tooMuchStdin(`${stdin} bytes of stdin; the cap is ${limits.max_stdin_bytes}`)
  const cap = (kept?.max_secs ?? limits.max_duration_secs) * 1000
  const asked = (detach === null ? intent.timeout_ms : detach.lifetime_ms) ?? cap
  const tooLong = asked > cap
  if (!Number.isSafeInteger(asked) || asked < 1 || (tooLong && intent.clamp !== true))
    return { gate: 'timeout', reason: 'timeout_too_large', detail: `a timeout of ${asked} ms; it must be from 1 to ${cap}` }
  const caps = runCaps({ ...limits, max_stdin_bytes: open ? limits.max_stdin_bytes : 0 }, tooLong ? cap : asked, tooLong)
  if (kept === null) return caps
  // It has no stdin.
  return { ...caps, max_stdin_bytes: 0, max_duration_ms: cap, max_output_bytes: kept.keep_bytes, keep_bytes: kept.keep_bytes }
}

const tooMuchStdin = (detail: string): CapsDenied => ({ gate: 'stdin', reason: 'stdin_too_large', detail })

/** What is kept of its output, and for how long it may run. */
const keptOf = (
  { keep_bytes }: DetachIntent,
  detaching: Detaching | null,
  clamp: boolean,
): { readonly max_secs: number; readonly keep_bytes: number } | CapsDenied => {
  const refused = (detail: string): CapsDenied => ({ gate: 'detach', reason: 'detach_not_allowed', detail })
  if (detaching === null) return refused('its entry does not say detach = true: no run of it may outlive its caller')
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
