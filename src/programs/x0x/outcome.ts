import { shellWord, signalName } from '../../base/format.ts'
import type { RunEventJson } from '../../protocol/api/run-events.ts'
import { denialText } from '../../protocol/denial-text.ts'
import type { DenialReason, WarningKind } from '../../protocol/reasons.ts'

interface Warned {
  readonly warnings: readonly WarningKind[]
}

/** Warnings about lost output, which are also printed with --quiet and --json. */
export const CUT_WARNINGS: readonly WarningKind[] = ['stdout_cap_hit', 'stderr_cap_hit']

/** Text such as `stdout was cut (stdout_cap_hit)`, or null for complete output. */
export const cutText = ({ warnings }: Warned): string | null => {
  const kinds = CUT_WARNINGS.filter((kind) => warnings.includes(kind))
  if (kinds.length === 0) return null
  const streams = kinds.map((kind) => kind.replace('_cap_hit', ''))
  return `${streams.join(' and ')} ${kinds.length === 1 ? 'was' : 'were'} cut (${kinds.join(', ')})`
}

/** How to avoid the loss in the next run. */
export const cutNext = (agent: string): string =>
  `Try: less output, or a larger max_stdout_bytes or max_stderr_bytes in the ACL on ${shellWord(agent)}`

/** Lines for standard error about a detached run whose output is not printed. Empty for complete output. */
export const detachedCutLines = (run: { readonly request_id: string; readonly outcome: Warned | null }): string[] => {
  const text = run.outcome && cutText(run.outcome)
  return text === null ? [] : [`${run.request_id}: ${text}`, 'Try: a larger --keep, up to max_detach_output_bytes of its ACL entry']
}

export type ExitEvent = Omit<Extract<RunEventJson, { type: 'exit' }>, 'next'>

/** Status of a transport failure, a denial, or a run ended at a limit. ssh uses the same number. */
export const EXIT_NOT_RUN = 255

/** Warnings about ends that were not the command's own, so its status does not count. */
export const KILLED_BY: readonly WarningKind[] = [
  'duration_cap_hit',
  'lease_expired',
  'peer_disconnected',
  'stdin_mismatch',
  'access_revoked',
  'ended_by_operator',
  'daemon_stopping',
  'recording_failed',
]

export const killedBy = (exit: Pick<ExitEvent, 'warnings'>): WarningKind | null =>
  KILLED_BY.find((kind) => exit.warnings.includes(kind)) ?? null

/**
 * The exit status of `x0x exec`, which is the remote one, 128+n for a signal, or 255 if the command was ended. A cancelled run is not a
 * success, even if the command exits with 0 after SIGTERM.
 */
export const statusOf = (exit: ExitEvent): number => {
  if (exit.denial_reason !== null || exit.incomplete || killedBy(exit) !== null) return EXIT_NOT_RUN
  if (exit.signal !== null) return 128 + exit.signal
  return exit.warnings.includes('cancelled') && exit.code === 0 ? EXIT_NOT_RUN : (exit.code ?? EXIT_NOT_RUN)
}

/** Facts for the explanation of an end. */
export interface RunFacts {
  /** As the user typed it. */
  readonly agent: string
  readonly argv: readonly string[]
  /** Whether `--timeout` was given. */
  readonly timed: boolean
  /** Whether it was a detached run. */
  readonly detached?: boolean
  /** Whether a signal such as Ctrl-C was received. */
  readonly interrupted?: boolean
  /** This agent as the target sees it, or null if the daemon does not answer any more. */
  readonly own: { readonly agent_id: string; readonly machine_id: string; readonly revoked?: boolean } | null
}

const KILLED_TEXT: Partial<Record<WarningKind, string>> = {
  duration_cap_hit: 'the time limit of the target was reached; to change it, raise max_duration_secs in the ACL of the target',
  lease_expired: 'the target lost contact with this machine and stopped the command',
  peer_disconnected: 'the connection was lost and the target stopped the command',
  stdin_mismatch: 'stdin changed while it was sent, so the target stopped the command',
  access_revoked: 'this agent lost its permission while the command ran, so the target stopped it',
  ended_by_operator: 'an operator of the target stopped the command; ask them before you run it again',
  daemon_stopping: 'the daemon of the target was stopping and stopped the command',
}

/** A timeout above the limit is clamped, with a warning. Without it, the requested timeout was used. */
export const killedText = (by: WarningKind, exit: Pick<ExitEvent, 'warnings'>, facts: Pick<RunFacts, 'timed' | 'detached'>): string =>
  by === 'duration_cap_hit' && facts.detached === true
    ? 'its lifetime has ended, so the target stopped it; use a longer --lifetime, or raise max_detach_secs in the ACL of the target'
    : by === 'duration_cap_hit' && facts.timed && !exit.warnings.includes('timeout_clamped')
      ? '--timeout was reached; use a longer one'
      : (KILLED_TEXT[by] ?? 'the command was ended')

/** The denial with its reason, then the next steps. */
export const denialLines = (reason: DenialReason, { agent, argv, own }: Pick<RunFacts, 'agent' | 'argv' | 'own'>): string[] => {
  const { what, next } = denialText(reason, { host: agent, argv, own })
  return [what, ...next]
}

/** The lines on stderr for an end that needs explanation, followed by the next steps. Empty for a plain end. */
export const outcomeLines = (exit: ExitEvent, facts: RunFacts): string[] => {
  if (exit.denial_reason === 'approval_denied' && facts.interrupted === true)
    return ['cancelled: nothing ran; the approval request was withdrawn']
  return exit.denial_reason === null ? endLines(exit, facts) : denialLines(exit.denial_reason, facts)
}

/** The same for a run that was not denied. */
export const endLines = (exit: ExitEvent, facts: RunFacts): string[] => {
  if (exit.incomplete) {
    const why = exit.message ?? 'the connection was lost or bytes are missing'
    const lost = `lost contact with ${shellWord(facts.agent)} (incomplete): ${why}`
    if (exit.never_arrived === true) return [lost, 'the command did not run']
    return [
      lost,
      'it is not known whether the command ran to its end',
      `Try, on ${shellWord(facts.agent)}: x0x audit tail   (request ${exit.request_id})`,
    ]
  }
  const by = killedBy(exit)
  const end = exit.signal === null ? `exit status ${exit.code}` : (signalName(exit.signal) ?? `signal ${exit.signal}`)
  if (by !== null) return [`stopped (${by}): ${killedText(by, exit, facts)} (${end})`]
  if (exit.warnings.includes('cancelled')) return [`cancelled: the command ended with ${end}`]
  return exit.signal === null ? [] : [`${end} ended the command`]
}
