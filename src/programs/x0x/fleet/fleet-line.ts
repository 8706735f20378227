import { attempt } from '../../../base/errors.ts'
import { shellWords } from '../../../base/format.ts'
import { type CommandLine, millisecondsOf } from '../../../cli/parse.ts'
import { failuresAllowed } from '../../../protocol/api/fanout.ts'
import { MAX_FANOUT_HOSTS, MAX_FANOUT_PARALLEL } from '../../../protocol/limits/fleet.ts'
import { carriedCommand, usageError } from '../failure.ts'
import { type LedgerRetry, isCopyCommand } from './ledger-state.ts'

/** How the outputs of the hosts are shown. */
export type FleetLineFormat = 'prefix' | 'group' | 'diff' | 'json'

/** A ledger, and which of its hosts to ask again. A copy asks all `unsuccessful` ones, a command the other kinds. */
export interface RetryOf {
  readonly file: string
  readonly which: LedgerRetry['which']
}

/** Options that limit a fan-out or record it. */
export interface FleetLimits {
  readonly parallel: number | null
  readonly canary: number | null
  readonly maxFailures: number | string | null
  readonly ledger: string | null
  /** Limits as typed, which no ledger records. */
  readonly bounds: readonly string[]
}

/** The parsed line of a fan-out. */
export interface FleetLine extends FleetLimits {
  /** Empty with `retry`. */
  readonly who: readonly string[]
  /** Null for the ledger's command with `retry`. */
  readonly argv: readonly string[] | null
  readonly timeoutMs: number | null
  readonly deadlineMs: number | null
  readonly session: string | null
  readonly stdinFile: string | null
  readonly raw: boolean
  readonly shape: FleetLineFormat
  readonly retry: RetryOf | null
}

const BOUNDS = ['canary', 'max-failures', 'parallel', 'timeout', 'deadline'] as const

const boundsOf = (line: CommandLine): string[] =>
  BOUNDS.flatMap((name) => {
    const text = line.value(name)
    return text === null ? [] : [`--${name}`, text]
  })

const countOf = (line: CommandLine, name: string, max: number): number | null => {
  const text = line.value(name)
  if (text === null) return null
  const count = /^[0-9]{1,9}$/.test(text) ? Number(text) : 0
  if (count >= 1 && count <= max) return count
  throw usageError(`--${name} must be a number from 1 to ${max}, not ${JSON.stringify(text)}`)
}

const timeOf = (line: CommandLine, name: string): number | null => {
  const text = line.value(name)
  if (text === null) return null
  const ms = millisecondsOf(text)
  if (ms !== null) return ms
  throw usageError(`--${name} must be a positive number of seconds, not ${JSON.stringify(text)}`)
}

const failuresOf = (line: CommandLine): number | string | null => {
  const text = line.value('max-failures')
  if (text === null) return null
  const limit = /^[0-9]{1,9}$/.test(text) ? Number(text) : text
  if (attempt(() => failuresAllowed(limit, MAX_FANOUT_HOSTS)) !== null) return limit
  throw usageError(`--max-failures must be a count (3) or a percentage up to 100% (10%), not ${JSON.stringify(text)}`)
}

/** An empty name usually comes from an unset shell variable. */
export const namedFile = (line: CommandLine, name: string): string | null => {
  const file = line.value(name)
  if (file === '') throw usageError(`--${name}: a file name is missing`)
  return file
}

const retryOf = (line: CommandLine): RetryOf | null => {
  const [certain, unknown] = [namedFile(line, 'retry'), namedFile(line, 'retry-unknown')]
  if (certain !== null) return { file: certain, which: 'certain' }
  return unknown === null ? null : { file: unknown, which: 'unknown' }
}

const shapeOf = (line: CommandLine): FleetLineFormat => {
  if (line.has('json')) return 'json'
  return line.has('group') ? 'group' : line.has('diff') ? 'diff' : 'prefix'
}

/** Throws `bad_request`. */
export const fleetLimits = (line: CommandLine, maxParallel: number): FleetLimits => ({
  parallel: countOf(line, 'parallel', maxParallel),
  canary: countOf(line, 'canary', MAX_FANOUT_HOSTS),
  maxFailures: failuresOf(line),
  ledger: namedFile(line, 'ledger'),
  bounds: boundsOf(line),
})

/** Throws for an invalid line, before any host is asked. */
export const fleetLine = (line: CommandLine): FleetLine => {
  const retry = retryOf(line)
  const [first] = line.words
  if (retry !== null && first !== undefined)
    throw usageError(
      `--retry takes its hosts from the ledger; remove ${JSON.stringify(first)}`,
      'For other hosts, use --ledger with a new file instead of --retry',
    )
  if (retry === null && first === undefined) throw usageError('no host given', 'Usage: x0x exec HOST... [options] -- COMMAND [ARGS...]')
  return {
    who: line.words,
    argv: retry !== null && line.behindDashes === null ? null : carriedCommand(line, Infinity),
    ...fleetLimits(line, MAX_FANOUT_PARALLEL),
    timeoutMs: timeOf(line, 'timeout'),
    deadlineMs: timeOf(line, 'deadline'),
    session: line.value('session'),
    stdinFile: namedFile(line, 'stdin-file'),
    raw: line.has('raw'),
    shape: shapeOf(line),
    retry,
  }
}

/** The command that asks hosts of a ledger again: those where it certainly did not run, or may have run. `argv` is that of the ledger. */
export const retryLine = (
  file: string,
  argv: readonly string[],
  { unknown = false, bounds = [] }: { readonly unknown?: boolean; readonly bounds?: readonly string[] } = {},
): string => shellWords(['x0x', isCopyCommand(argv) ? 'cp' : 'exec', `--retry${unknown ? '-unknown' : ''}`, file, ...bounds])
