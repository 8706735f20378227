import { shellWord, shellWords } from '../../base/shell-word.ts'
import { signalName } from '../../base/signal-name.ts'
import type { DenialReason, WarningKind } from '../../protocol/reasons.ts'
import type { RunEventJson } from '../../protocol/run-events.ts'

export type ExitEvent = Extract<RunEventJson, { type: 'exit' }>

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

const REASONS: Record<DenialReason, string> = {
  unverified_sender: 'the other side could not verify this agent',
  trust_rejected: 'the other side does not trust this agent on this machine',
  exec_disabled: 'exec is switched off there',
  agent_machine_not_in_acl: 'its ACL has no entry for this agent on this machine',
  shell_metachar_in_argv: 'a token has a character that a shell would act on: ; | & > < ` $ newline or NUL',
  argv_not_allowed: 'its ACL lists other commands for this agent',
  cwd_not_allowed: 'a working directory cannot be asked for',
  detach_not_allowed: 'its ACL does not let this command outlive its caller, or keep so much of its output',
  stdin_too_large: 'stdin is larger than its cap',
  timeout_too_large: 'the timeout is longer than its cap',
  concurrency_limit_reached: 'too many commands run there already',
  approval_denied: 'whoever had to allow it did not',
  approval_timeout: 'nobody who had to allow it decided in time',
  approval_unavailable: 'a human must allow it, and nobody could be asked there',
  approval_mismatch: 'what was approved is no more what would run',
  audit_unavailable: 'its journal cannot be written, so nothing may run there',
  spawn_failed: 'it was allowed, but the program could not be started there',
}

const explainCommand = (facts: RunFacts): string => {
  const ids =
    facts.own === null ? '--agent ID --machine ID' : `--agent ${shellWord(facts.own.agent_id)} --machine ${shellWord(facts.own.machine_id)}`
  return `x0x acl explain ${ids} -- ${shellWords(facts.argv)}`
}

const trustCommands = (facts: RunFacts): string =>
  `x0x contacts import LINK (what x0x card prints here), x0x contacts trust NAME trusted, x0x contacts pin NAME ${facts.own === null ? 'MACHINE' : shellWord(facts.own.machine_id)}`

/** The command that explains or mends a denial, and where to type it. */
const denialNext = (reason: DenialReason, facts: RunFacts): string => {
  const there = `on ${shellWord(facts.agent)}`
  switch (reason) {
    case 'agent_machine_not_in_acl':
    case 'argv_not_allowed':
    case 'shell_metachar_in_argv':
      return `${there}: ${explainCommand(facts)}`
    case 'stdin_too_large':
      return `give it less or none; max_stdin_bytes, or stdin = false of the command, in the ACL ${there} says so`
    case 'timeout_too_large':
      return `ask for less time, or raise max_duration_secs in the ACL ${there}`
    case 'cwd_not_allowed':
      return `leave the working directory out; default_cwd in the ACL ${there} decides`
    case 'detach_not_allowed':
      return `run it without --detach, or set detach = true in its entry of the ACL ${there}; what may be: x0x acl mine ${shellWord(facts.agent)}`
    case 'trust_rejected':
      if (facts.own?.revoked === true)
        return 'this agent has been revoked, for ever: it needs a new identity (a new data directory), whose card others import and trust'
      return `${there}: ${trustCommands(facts)}`
    case 'unverified_sender':
      return `${there}: ${trustCommands(facts)}`
    case 'concurrency_limit_reached':
      return `wait for one to end (x0x exec sessions), or raise max_concurrent_per_agent or max_concurrent_total in the ACL ${there}`
    case 'exec_disabled':
    case 'audit_unavailable':
      return `${there}: x0xd --doctor`
    case 'spawn_failed':
      return `${there}: x0x acl check, and x0x audit tail`
    case 'approval_unavailable':
      return `${there}: x0x approvals watch, or x0x ui; then ask again`
    case 'approval_denied':
    case 'approval_timeout':
    case 'approval_mismatch':
      return `ask whoever approves commands on ${shellWord(facts.agent)}`
  }
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
export const denialLines = (reason: DenialReason, facts: RunFacts): string[] => {
  // The daemon may be newer than this command.
  if (!Object.hasOwn(REASONS, reason)) return [`denied: ${reason}`, `on ${shellWord(facts.agent)}: x0x audit tail`]
  return [`denied: ${reason}: ${REASONS[reason]}`, denialNext(reason, facts)]
}

/** What stderr says of an end that needs words: first what happened, then what to do. Empty for a plain end. */
export const outcomeLines = (exit: ExitEvent, facts: RunFacts): string[] => {
  if (exit.denial_reason === 'approval_denied' && facts.interrupted === true)
    return ['cancelled: nothing ran; the question to whoever had to allow it was withdrawn']
  if (exit.denial_reason !== null) return denialLines(exit.denial_reason, facts)
  if (exit.incomplete) {
    const lost = `incomplete: ${exit.message ?? 'the connection was lost or bytes are missing; how the command ended there is not known'}`
    return [lost, `on ${shellWord(facts.agent)}: x0x audit tail   (request ${exit.request_id})`]
  }
  const by = killedBy(exit)
  const end = exit.signal === null ? `exit status ${exit.code}` : (signalName(exit.signal) ?? `signal ${exit.signal}`)
  if (by !== null) return [`${by}: ${killedText(by, exit, facts)} (${end})`]
  if (exit.warnings.includes('cancelled')) return [`cancelled: the command ended with ${end}`]
  return exit.signal === null ? [] : [`${end} ended the command`]
}
