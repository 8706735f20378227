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

/** Size of a record in bytes. A result with both streams fits, each byte escaped. */
export const MAX_RECORD_LINE = 16 * 1024 * 1024
/** Size of one server's recording. Its tools continue unrecorded. */
export const MAX_RECORD = 256 * 1024 * 1024
export const RECORD_VERSION = 1

const stream = oneOf(['stdout', 'stderr'])
const base64 = matching(/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/, 'base64')

const REQUEST = {
  operation: text,
  command: text,
  args: texts,
  /** Null for the first root, or for the target's directory. */
  cwd: orNull(text),
  /** A mesh agent, or null for this host. */
  target: orNull(text),
  /** Names of variables. */
  env: texts,
  /** Null for the default of the configuration. */
  timeout_ms: orNull(count),
  /** Preferred host and modes, or absent if the client stated no preference. */
  wish: optional(execPreference),
}

const OUTCOME = {
  code: orNull(integer),
  signal: orNull(count),
  duration_ms: number,
  stdout_bytes_total: count,
  stderr_bytes_total: count,
  truncated: flag,
  /** Why it never ran. */
  denial_reason: orNull(text),
  detail: orNull(text),
  /** Why its end is unknown. */
  lost: orNull(text),
}

/** Fields of each event of a run. Results follow from them. */
const RUN_EVENTS = {
  request: { request: record(REQUEST), request_hash: text, asked_at: number },
  /** The run needs an approval. `question_id` is null if its target decides. */
  waiting: { question_id: orNull(text), expires_at_ms: count },
  /** `ran_on` and `cuts` are absent if the configuration does not choose among hosts. */
  started: {
    started_at: text,
    cwd: orNull(text),
    timeout_ms: count,
    ran_on: optional(ranOn),
    cuts: optional(list(clampedPreference)),
  },
  stdout: { data_b64: base64 },
  stderr: { data_b64: base64 },
  /** `amount` is present only with `descendants_ended`. */
  warning: { kind: text, amount: optional(count) },
  /** Null if it failed inside the executor. */
  ended: { outcome: orNull(record(OUTCOME)) },
  /** `code` is from the error table, or null for a defect of x0x. */
  refused: { code: orNull(text), message: text, data: table },
  /**
   * The returned result, and the displayed part of each stream. `text_sha256` covers the text for the model with its frame. `of_dropped`
   * means output before it was dropped.
   */
  result: { view: record({ stdout: count, stderr: count }), result: table, text_sha256: text, of_dropped: flag },
  /** The output of the command was removed. */
  text_dropped: {},
  /** A part of the output that was returned. It has at most `max` bytes from byte `from`. */
  part: { stream, from: count, max: count, part: table },
}
const OF_RUN = {
  run: text,
  /** Milliseconds since the recording began. */
  ms: number,
}

const RECORD_EVENTS = {
  record: { version: count, x0x: text, whoami: text, began_at: text },
  /** The recording is incomplete. Only `end` follows. */
  incomplete: { reason: text },
  /** The last line, written at a regular end. It has the number of lines before it, and their SHA-256 as hex. */
  end: { lines: count, sha256: text },
}

type RecordEventOf<E extends Readonly<Record<string, FieldTable>>> = {
  readonly [N in keyof E]: { readonly event: N } & Sent<E[N]>
}[keyof E]

/** The request, without values of variables and stdin. */
export type RecordedRequest = Sent<typeof REQUEST>
export type RecordedOutcome = Sent<typeof OUTCOME>
/** An event of a tool's run that affects its results. */
export type RunRecordEvent = RecordEventOf<typeof RUN_EVENTS>
export type RecordLine = RecordEventOf<typeof RECORD_EVENTS> | (RunRecordEvent & Sent<typeof OF_RUN>)

const checksOf = (event: string): FieldTable | null => {
  if (Object.hasOwn(RUN_EVENTS, event)) return { event: text, ...OF_RUN, ...RUN_EVENTS[event as RunRecordEvent['event']] }
  return Object.hasOwn(RECORD_EVENTS, event) ? { event: text, ...RECORD_EVENTS[event as keyof typeof RECORD_EVENTS] } : null
}

/** Depth of a result, of the arguments of a command, and of the fields around them. */
const SHAPE = { depth: 8, values: 100_000 }

const problemWith = (line: Fields): string | null => {
  const version = line['event'] === 'record' ? line['version'] : RECORD_VERSION
  if (typeof version === 'number' && version > RECORD_VERSION) return laterVersion(version, RECORD_VERSION)
  const checks = isText(line['event']) ? checksOf(line['event']) : null
  if (checks === null) return 'unknown event'
  const unknown = Object.keys(line).find((name) => !Object.hasOwn(checks, name))
  return unknown === undefined ? problemOf(line, checks) : `unknown field ${JSON.stringify(unknown.slice(0, 100))}`
}

/** Parses one line without its line feed, or says why it is invalid. */
export const parseRecordLine = (bytes: Uint8Array): RecordLine | string => {
  const line = parseTable(bytes, SHAPE)
  return isText(line) ? line : (problemWith(line) ?? (line as RecordLine))
}
