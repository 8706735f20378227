import { laterVersion } from '../base/files.ts'
import { clampedPreference, ranOn, execPreference } from './api/exec-target.ts'
import { parseTable } from './json-shape.ts'
import {
  type FieldTable,
  type Fields,
  type Sent,
  count,
  flag,
  integer,
  isText,
  list,
  matching,
  number,
  oneOf,
  optional,
  orNull,
  problemOf,
  record,
  table,
  text,
  texts,
} from './json-table.ts'

/** Of a record, in bytes: a result with both streams, each byte of them escaped. */
export const MAX_RECORD_LINE = 16 * 1024 * 1024
/** What one server records; its tools go on without being recorded. */
export const MAX_RECORD = 256 * 1024 * 1024
export const RECORD_VERSION = 1

const stream = oneOf(['stdout', 'stderr'])
const base64 = matching(/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/, 'base64')

const REQUEST = {
  operation: text,
  command: text,
  args: texts,
  /** Null: the first root here, or what the target says. */
  cwd: orNull(text),
  /** An agent of the mesh; null: this host. */
  target: orNull(text),
  /** Names of variables. */
  env: texts,
  /** Null: the default of the configuration. */
  timeout_ms: orNull(count),
  /** Where it is to run, and who is to be asked; absent: its caller does not say. */
  wish: optional(execPreference),
}

const OUTCOME = {
  code: orNull(integer),
  signal: orNull(count),
  duration_ms: number,
  stdout_bytes_total: count,
  stderr_bytes_total: count,
  truncated: flag,
  /** It never ran, and why. */
  denial_reason: orNull(text),
  detail: orNull(text),
  /** How it ended is not known, and why. */
  lost: orNull(text),
}

/** Fields of each event of a run besides its name; results follow from them. */
const RUN_EVENTS = {
  request: { request: record(REQUEST), request_hash: text, asked_at: number },
  /** Somebody is asked whether it may begin; `question_id` null: by its target. */
  waiting: { question_id: orNull(text), expires_at_ms: count },
  /** `ran_on`, `cuts`: absent where the configuration does not choose among hosts. */
  started: {
    started_at: text,
    cwd: orNull(text),
    timeout_ms: count,
    ran_on: optional(ranOn),
    cuts: optional(list(clampedPreference)),
  },
  stdout: { data_b64: base64 },
  stderr: { data_b64: base64 },
  /** `amount`: absent of all kinds but `descendants_ended`. */
  warning: { kind: text, amount: optional(count) },
  /** Null: it failed inside the executor. */
  ended: { outcome: orNull(record(OUTCOME)) },
  /** `code`: of the table of errors; null: a mistake of ours. */
  refused: { code: orNull(text), message: text, data: table },
  /**
   * What was answered, of how much of each stream; `text_sha256`: of the text that a model gets, with its frame; `of_dropped`: of its
   * output as it was before it was dropped.
   */
  result: { view: record({ stdout: count, stderr: count }), result: table, text_sha256: text, of_dropped: flag },
  /** Its output is no longer kept. */
  text_dropped: {},
  /** A part of the output that was answered: at most `max` bytes from byte `from` on. */
  part: { stream, from: count, max: count, part: table },
}
const OF_RUN = {
  run: text,
  /** Since the record began. */
  ms: number,
}

/** Fields of each other event. */
const RECORD_EVENTS = {
  record: { version: count, x0x: text, whoami: text, began_at: text },
  /** Not everything was recorded; nothing follows but `end`. */
  incomplete: { reason: text },
  /** The last line, written when the server ends by itself: how many lines stand before it, and their SHA-256 in hex. */
  end: { lines: count, sha256: text },
}

type RecordEventOf<E extends Readonly<Record<string, FieldTable>>> = {
  readonly [N in keyof E]: { readonly event: N } & Sent<E[N]>
}[keyof E]

/** What was asked; values of variables and stdin are not in it. */
export type RecordedRequest = Sent<typeof REQUEST>
/** How a run ended. */
export type RecordedOutcome = Sent<typeof OUTCOME>
/** What happened to a run of a tool, as far as its results follow from it. */
export type RunRecordEvent = RecordEventOf<typeof RUN_EVENTS>
/** One line of a record. */
export type RecordLine = RecordEventOf<typeof RECORD_EVENTS> | (RunRecordEvent & Sent<typeof OF_RUN>)

const checksOf = (event: string): FieldTable | null => {
  if (Object.hasOwn(RUN_EVENTS, event)) return { event: text, ...OF_RUN, ...RUN_EVENTS[event as RunRecordEvent['event']] }
  return Object.hasOwn(RECORD_EVENTS, event) ? { event: text, ...RECORD_EVENTS[event as keyof typeof RECORD_EVENTS] } : null
}

/** Depth of what a tool answers, arguments of a command and fields around them. */
const SHAPE = { depth: 8, values: 100_000 }

const problemWith = (line: Fields): string | null => {
  const version = line['event'] === 'record' ? line['version'] : RECORD_VERSION
  if (typeof version === 'number' && version > RECORD_VERSION) return laterVersion(version, RECORD_VERSION)
  const checks = isText(line['event']) ? checksOf(line['event']) : null
  if (checks === null) return 'event is none that is known'
  const unknown = Object.keys(line).find((name) => !Object.hasOwn(checks, name))
  return unknown === undefined ? problemOf(line, checks) : `${JSON.stringify(unknown.slice(0, 100))} is no field of it`
}

/** Reads one line of a record, without its line feed; a text says why it is none. */
export const parseRecordLine = (bytes: Uint8Array): RecordLine | string => {
  const line = parseTable(bytes, SHAPE)
  return isText(line) ? line : (problemWith(line) ?? (line as RecordLine))
}
