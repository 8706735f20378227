import { MAX_DRAIN_MS, MAX_WORK_ARGV, MAX_WORK_LISTED } from './limits/daemon.ts'
import { AppError, attempt } from '../base/errors.ts'
import {
  type EventOf,
  type Sent,
  closedProblemOf,
  count,
  eventReader,
  isTable,
  listUpTo,
  nameOf,
  orNull,
  record,
  textUpTo,
  wholeUpTo,
} from './json-table.ts'

/** Kinds of work that a draining daemon waits for. */
export const WORK_KINDS = ['run', 'detached', 'requested', 'fanout', 'copy', 'rexd'] as const

const MAX_WORK_TEXT = 1_024

/** One piece of work. `who` is the requester of a run on this machine, or the target of one that this machine requested. */
const WORK = {
  kind: nameOf(WORK_KINDS),
  /** Null if it has no ID, such as a copy. */
  id: orNull(textUpTo(MAX_WORK_TEXT)),
  who: orNull(textUpTo(MAX_WORK_TEXT)),
  /** The beginning of a long command. */
  argv: listUpTo(textUpTo(MAX_WORK_ARGV), MAX_WORK_ARGV),
}
export type Work = Sent<typeof WORK>

/** A list of work that may be cut, and the number of all pieces. */
export const WORK_LIST = { total: count, work: listUpTo(record(WORK), MAX_WORK_LISTED) }
export type WorkList = Sent<typeof WORK_LIST>

export const NO_WORK: WorkList = { total: 0, work: [] }

/** The beginning of a command. */
export const shortArgv = (argv: readonly string[]): string[] => {
  let left = MAX_WORK_ARGV
  return argv.slice(0, MAX_WORK_ARGV).flatMap((token) => {
    const part = token.slice(0, Math.max(0, left)).replaceAll('\0', '?')
    left -= token.length + 1
    return part === '' && token !== '' ? [] : [part]
  })
}

/** Joins lists. Beyond the limit, pieces are only counted. */
export const joinedWork = (lists: readonly WorkList[]): WorkList => ({
  total: lists.reduce((sum, { total }) => sum + total, 0),
  work: lists.flatMap(({ work }) => work).slice(0, MAX_WORK_LISTED),
})

export const workListOf = (work: readonly Work[]): WorkList => joinedWork([{ total: work.length, work }])

/** Throws `malformed`. */
export const readWorkList = (json: string): WorkList => {
  const fields = attempt(() => JSON.parse(json) as unknown)
  const problem = isTable(fields) ? closedProblemOf(fields, WORK_LIST) : 'it is not an object'
  if (problem !== null) throw new AppError('malformed', `invalid list of runs: ${problem}`)
  return fields as WorkList
}

/** The only line of a process that wants to replace the daemon. With 0, the daemon stops at once. */
export const HANDOVER_REQUEST = { drain_ms: wholeUpTo(MAX_DRAIN_MS) }
export type HandoverRequest = Sent<typeof HANDOVER_REQUEST>

/** Lines of the daemon. After `ending` it stops, and ends the work that the line lists. */
const HANDOVER_EVENTS = {
  draining: { left_ms: count, ...WORK_LIST },
  ending: WORK_LIST,
  refused: { message: textUpTo(MAX_WORK_TEXT) },
}
export type HandoverEvent = EventOf<typeof HANDOVER_EVENTS>

/** Throws SyntaxError. */
export const readHandoverEvent = eventReader('a daemon that is replaced', HANDOVER_EVENTS)
