import { ERROR_TABLE, errnoOf, errorCodeOf, errorText } from '../../../base/errors.ts'
import { counted, shellWord, signalName } from '../../../base/format.ts'
import { wrapped } from '../../../cli/help.ts'
import { type FanoutEnd, type FanoutHostJson, type FanoutLedgerJson, isSuccess } from '../../../protocol/api/fanout.ts'
import { denialText } from '../../../protocol/denial-text.ts'
import { foldNodeSet } from '../../../protocol/hosts/node-set.ts'
import { type RunFacts, cutNext, cutText, killedBy, killedText } from '../outcome.ts'
import { retryLine } from './fleet-line.ts'
import { timeText } from './fleet-progress.ts'
import { certainlyDidNotRun, isCopyCommand } from './ledger-state.ts'

type Ended = Pick<FanoutHostJson, 'end' | 'code' | 'signal' | 'incomplete' | 'warnings'>

/** How a host ended, in a few words, or empty after success. */
export const endText = ({ end, code, signal, incomplete, warnings }: Ended): string => {
  if (end !== 'ran') return end.replaceAll('_', ' ')
  const ended = signal === null ? (code === 0 ? '' : `exit status ${code}`) : (signalName(signal) ?? `signal ${signal}`)
  const by = killedBy({ warnings }) ?? ''
  return [ended, by, incomplete ? 'output is missing' : '', cutText({ warnings }) ?? ''].filter((text) => text !== '').join(', ')
}

export const WENT_AWAY = 'the local daemon stopped before the end; the targets stop its runs'

/** Why the daemon's answer was interrupted. */
export const brokenBy = (error: unknown): string => (errnoOf(error) === 'ECONNRESET' ? WENT_AWAY : errorText(error))

export type HostLineFacts = Pick<RunFacts, 'argv' | 'timed' | 'interrupted' | 'own'>

export interface SummaryFacts extends HostLineFacts {
  /** Null for a ledger that was read. */
  readonly elapsedMs: number | null
  readonly ledger: { readonly path: string; readonly ends: readonly FanoutHostJson[]; readonly bounds: readonly string[] } | null
}

export type EndedHost = Pick<
  FanoutHostJson,
  | 'host'
  | 'request_id'
  | 'end'
  | 'code'
  | 'signal'
  | 'incomplete'
  | 'truncated'
  | 'warnings'
  | 'denial_reason'
  | 'error'
  | 'message'
  | 'next'
>

/** Hosts with the same text. */
interface ToldTogether {
  readonly label: string
  readonly hosts: EndedHost[]
  /** What happened, then the next steps. The first line follows the hosts. */
  readonly lines: readonly string[]
}

type Label = Exclude<FanoutEnd, 'ran'> | 'failed'

const ORDER: readonly Label[] = ['failed', 'denied', 'unreachable', 'not_started', 'cancelled', 'unknown']

const labelOf = (host: EndedHost): Label => (host.end === 'ran' ? 'failed' : host.end)

/** Hosts with the same key share a text. */
const keyOf = (host: EndedHost): string => {
  const reasons = {
    ran: endText(host),
    denied: host.denial_reason,
    cancelled: host.message,
    unreachable: host.error,
    not_started: host.error,
    unknown: host.error,
  }
  return `${labelOf(host)} ${reasons[host.end] ?? ''}`
}

const errorLine = (hosts: readonly EndedHost[], otherwise: string): string => {
  const [{ error, message }] = hosts as [EndedHost]
  // The message of one host has its addresses; several hosts share the general text.
  if (message !== undefined && hosts.every((host) => host.message === message)) return message
  return error === null ? otherwise : `${error}: ${ERROR_TABLE[errorCodeOf(error)].text}`
}

/** The hint for a host, if it is the same for all. */
const nextLine = (hosts: readonly EndedHost[]): string => {
  const [{ host, next }] = hosts as [EndedHost]
  return next !== undefined && hosts.every((one) => one.next === next) ? next : `Try: x0x doctor ${shellWord(host)}`
}

const linesFor = (label: Label, hosts: readonly EndedHost[], facts: HostLineFacts): readonly string[] => {
  const [first] = hosts as [EndedHost]
  const on = `on ${shellWord(first.host)}`
  const by = killedBy(first)
  switch (label) {
    case 'failed':
      return [
        endText(first),
        ...(by === null ? [] : [killedText(by, first, facts)]),
        ...(cutText(first) === null ? [] : [cutNext(first.host)]),
        ...(first.incomplete ? [`Try, ${on}: x0x audit tail   (request ${first.request_id})`] : []),
      ]
    case 'denied': {
      if (first.denial_reason === null) return [errorLine(hosts, 'it was refused')]
      const { cause, next } = denialText(first.denial_reason, { ...facts, host: first.host, others: hosts.length > 1 })
      return [cause, ...next]
    }
    case 'unreachable':
      return [errorLine(hosts, 'it was not reached'), nextLine(hosts)]
    case 'not_started':
      return [first.message ?? 'not started, because the fan-out stopped before']
    case 'cancelled':
      return [first.message ?? 'it was stopped']
    case 'unknown':
      if (isCopyCommand(facts.argv)) return [errorLine(hosts, 'some files may be missing')]
      return [errorLine(hosts, 'it may have run'), `Try, ${on}: x0x audit tail   (whether request ${first.request_id} ran)`]
  }
}

const toldOf = (hosts: readonly EndedHost[], facts: HostLineFacts): ToldTogether[] => {
  const groups = [
    ...Map.groupBy(
      hosts.filter((host) => !isSuccess(host)),
      keyOf,
    ).values(),
  ]
  return groups
    .map((group) => ({ label: labelOf(group[0]!), hosts: group }))
    .sort((a, b) => ORDER.indexOf(a.label) - ORDER.indexOf(b.label))
    .map(({ label, hosts: group }) => ({ label: label.replaceAll('_', ' '), hosts: group, lines: linesFor(label, group, facts) }))
}

const toldLines = ({ label, hosts, lines: [what = '', ...next] }: ToldTogether): string[] => [
  `${label} (${hosts.length}): ${foldNodeSet(hosts.map(({ host }) => host))}${what === '' ? '' : `: ${what}`}`,
  ...next.map((line) => `  ${line}`),
]

/** Every unsuccessful host, with the next step. */
export const unsuccessfulLines = (hosts: readonly EndedHost[], facts: HostLineFacts): string[] => toldOf(hosts, facts).flatMap(toldLines)

const nextLines = ({ path, ends, bounds }: NonNullable<SummaryFacts['ledger']>, argv: readonly string[]): string[] => {
  const line = (unknown: boolean): string => retryLine(path, argv, { unknown, bounds })
  if (isCopyCommand(argv)) return ends.every(isSuccess) ? [] : [`To continue: ${line(false)}`]
  return [
    ...(ends.some(certainlyDidNotRun) ? [`Retry the hosts where it did not run: ${line(false)}`] : []),
    ...(ends.some(({ end }) => end === 'unknown') ? [`Retry the hosts where it may have run: ${line(true)}`] : []),
  ]
}

/** `20 hosts asked: 17 ran (1 failed), 1 denied, …`: always all six counts. */
export const countsLine = ({ asked, ran, failed, denied, unreachable, not_started, cancelled, unknown }: FanoutLedgerJson): string => {
  const ends = [
    `${ran} ran${failed === 0 ? '' : ` (${failed} failed)`}`,
    `${denied} denied`,
    `${unreachable} unreachable`,
    `${not_started} not started`,
    `${cancelled} cancelled`,
    `${unknown} unknown`,
  ]
  return `${counted(asked, 'host')} asked: ${ends.join(', ')}`
}

/** The six counts, then every unsuccessful host with the next step. */
export const summaryLines = (ledger: FanoutLedgerJson, hosts: readonly EndedHost[], facts: SummaryFacts): string[] => [
  `${countsLine(ledger)}${facts.elapsedMs === null ? '' : `; ${timeText(facts.elapsedMs)}`}`,
  ...unsuccessfulLines(hosts, facts),
  ...(facts.ledger === null ? [] : nextLines(facts.ledger, facts.argv)),
]

/** Width of the prefix that `printProblem` adds. */
const INDENT = 5

/** Wraps a line at blanks for the terminal. A command is not broken, so that it can be copied. */
export const fittedLines = (line: string, columns: number): string[] => {
  if (line.includes('x0x ') || line.length + INDENT <= columns) return [line]
  const [first = '', ...rest] = wrapped(line, columns - INDENT - 2)
  return [first, ...rest.map((part) => `  ${part}`)]
}
