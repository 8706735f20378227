import { shellWord, signalName } from '../../base/format.ts'
import type { RunEventJson } from '../../protocol/api/run-events.ts'
import { denialText } from '../../protocol/denial-text.ts'
import type { DenialReason, WarningKind } from '../../protocol/reasons.ts'

export type ExitEvent = Omit<Extract<RunEventJson, { type: 'exit' }>, 'next'>

/** Transport failure, denial, or a cap's kill: the same number that ssh uses for its own failures. */
export const EXIT_NOT_RUN = 255

/** Ends that were not the command's own: its status would be a lie. */
export const KILLED_BY: readonly WarningKind[] = [
  'duration_cap_hit',
  'lease_expired',
  'peer_disconnected',
  'stdin_mismatch',
  'access_revoked',
  'ended_by_operator',
  'daemon_stopping',
]

export const killedBy = (exit: Pick<ExitEvent, 'warnings'>): WarningKind | null =>
  KILLED_BY.find((kind) => exit.warnings.includes(kind)) ?? null

/**
 * The exit status of `x0x exec`: the remote one, 128+n for a signal, 255 where the command did not run
 * to its own end. What was cancelled is no success, even where the command takes SIGTERM for a reason to exit with 0.
 */
export const statusOf = (exit: ExitEvent): number => {
  if (exit.denial_reason !== null || exit.incomplete || killedBy(exit) !== null) return EXIT_NOT_RUN
  if (exit.signal !== null) return 128 + exit.signal
  return exit.warnings.includes('cancelled') && exit.code === 0 ? EXIT_NOT_RUN : (exit.code ?? EXIT_NOT_RUN)
}

/** What a denial's explanation is filled in with. */
export interface RunFacts {
  /** As the user typed it. */
  readonly agent: string
  readonly argv: readonly string[]
  /** Our own `--timeout` was given. */
  readonly timed: boolean
  /** It had a lifetime of its own, and nobody who waited. */
  readonly detached?: boolean
  /** Ctrl-C was pressed, or another signal came. */
  readonly interrupted?: boolean
  /** Who we are, as the other side sees us; null when the daemon could not be asked any more. */
  readonly own: { readonly agent_id: string; readonly machine_id: string; readonly revoked?: boolean } | null
}

const KILLED_TEXT: Partial<Record<WarningKind, string>> = {
  duration_cap_hit: 'the command ran into the time limit and was ended; ask for less, or raise max_duration_secs there',
  lease_expired: 'the other side no longer heard from us and ended the command',
  peer_disconnected: 'the connection broke and the other side ended the command',
  stdin_mismatch: 'stdin was not what had been announced, so the command was ended; did the file change?',
  access_revoked: 'our access was withdrawn while the command ran, so it was ended',
  ended_by_operator: 'the operator there ended the command; ask them why before you run it again',
  daemon_stopping: 'the daemon there was stopping and ended the command',
}

/** A timeout above the cap is clamped to it and says so: without that warning the time that was up is the one asked for. */
export const killedText = (by: WarningKind, exit: Pick<ExitEvent, 'warnings'>, facts: Pick<RunFacts, 'timed' | 'detached'>): string =>
  by === 'duration_cap_hit' && facts.detached === true
    ? 'its lifetime was over and the command was ended; ask for a longer one (--lifetime), or raise max_detach_secs there'
    : by === 'duration_cap_hit' && facts.timed && !exit.warnings.includes('timeout_clamped')
      ? 'our --timeout was up and the command was ended; give it more time, or ask for less'
      : (KILLED_TEXT[by] ?? 'the command was ended')

/** What was denied and why, then what to do. */
export const denialLines = (reason: DenialReason, { agent, argv, own }: Pick<RunFacts, 'agent' | 'argv' | 'own'>): string[] => {
  const { what, next } = denialText(reason, { host: agent, argv, own })
  return [what, ...next]
}

/** What stderr says of an end that needs words: first what happened, then what to do. Empty for a plain end. */
export const outcomeLines = (exit: ExitEvent, facts: RunFacts): string[] => {
  if (exit.denial_reason === 'approval_denied' && facts.interrupted === true)
    return ['cancelled: nothing ran; the question to whoever had to allow it was withdrawn']
  return exit.denial_reason === null ? endLines(exit, facts) : denialLines(exit.denial_reason, facts)
}

/** The same of a run that was not denied. */
export const endLines = (exit: ExitEvent, facts: RunFacts): string[] => {
  if (exit.incomplete) {
    const why = exit.message ?? 'the connection was lost or bytes are missing'
    const lost = `lost contact with ${shellWord(facts.agent)} (incomplete): ${why}`
    if (exit.never_arrived === true) return [lost, 'the command did not run']
    return [
      lost,
      'the command may or may not have run to its end',
      `Try, on ${shellWord(facts.agent)}: x0x audit tail   (request ${exit.request_id})`,
    ]
  }
  const by = killedBy(exit)
  const end = exit.signal === null ? `exit status ${exit.code}` : (signalName(exit.signal) ?? `signal ${exit.signal}`)
  if (by !== null) return [`${by}: ${killedText(by, exit, facts)} (${end})`]
  if (exit.warnings.includes('cancelled')) return [`cancelled: the command ended with ${end}`]
  return exit.signal === null ? [] : [`${end} ended the command`]
}
