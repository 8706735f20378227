import { count, flag, isTable, isText, orNull, problemOf, text, texts, type FieldCheck, type Fields } from './field-checks.ts'
import { parseTable } from './json-shape.ts'

/** Of a record, in bytes: a result with both streams, each byte of them escaped. */
export const MAX_RECORD_LINE = 16 * 1024 * 1024
/** What one server records; its tools go on without being recorded. */
export const MAX_RECORD = 256 * 1024 * 1024
export const RECORD_VERSION = 1

/** What the executor tells of a run that has ended. */
export interface RecordedOutcome {
  readonly code: number | null
  readonly signal: number | null
  readonly duration_ms: number
  readonly stdout_bytes_total: number
  readonly stderr_bytes_total: number
  readonly truncated: boolean
  readonly denial_reason: string | null
  readonly detail: string | null
  readonly lost: string | null
}

/** What was asked; values of variables and stdin are not in it. */
export interface RecordedRequest {
  readonly operation: string
  readonly command: string
  readonly args: readonly string[]
  readonly cwd: string | null
  readonly target: string | null
  /** Names of variables. */
  readonly env: readonly string[]
  readonly timeout_ms: number | null
}

/** What happened to a run of a tool, as far as its results follow from it. */
export type RunRecordEvent =
  | { readonly event: 'request'; readonly request: RecordedRequest; readonly request_hash: string; readonly asked_at: number }
  | { readonly event: 'started'; readonly started_at: string; readonly cwd: string | null; readonly timeout_ms: number }
  | { readonly event: 'stdout' | 'stderr'; readonly data_b64: string }
  | { readonly event: 'warning'; readonly kind: string }
  /** Null: it failed inside the executor. */
  | { readonly event: 'ended'; readonly outcome: RecordedOutcome | null }
  /** `code`: of the table of errors; null: a mistake of ours. */
  | { readonly event: 'refused'; readonly code: string | null; readonly message: string; readonly data: Fields }
  /** What was answered, of how much of each stream; `text_sha256`: of the text that a model gets, with its frame. */
  | {
      readonly event: 'result'
      readonly view: { readonly stdout: number; readonly stderr: number }
      readonly result: Fields
      readonly text_sha256: string
      /** Of the text as it was before it was dropped. */
      readonly of_dropped: boolean
    }
  /** Its text is no longer kept. */
  | { readonly event: 'text_dropped' }
  /** A part of the output that was answered: at most `max` bytes from byte `from` on. */
  | { readonly event: 'part'; readonly stream: 'stdout' | 'stderr'; readonly from: number; readonly max: number; readonly part: Fields }

/** One line of a record. `ms`: since it began. */
export type RecordLine =
  | { readonly event: 'record'; readonly version: number; readonly x0x: string; readonly whoami: string; readonly began_at: string }
  /** Not everything was recorded; nothing follows but `end`. */
  | { readonly event: 'incomplete'; readonly reason: string }
  /** The last line, written when the server ends by itself: how many lines stand before it, and their SHA-256 in hex. */
  | { readonly event: 'end'; readonly lines: number; readonly sha256: string }
  | (RunRecordEvent & { readonly run: string; readonly ms: number })

const table: FieldCheck = { is: isTable, what: 'a table' }
const stream: FieldCheck = { is: (value) => value === 'stdout' || value === 'stderr', what: 'stdout or stderr' }
const base64: FieldCheck = {
  is: (value) => isText(value) && /^[A-Za-z0-9+/]*={0,2}$/.test(value) && value.length % 4 === 0,
  what: 'base64',
}

const REQUEST: Readonly<Record<keyof RecordedRequest, FieldCheck>> = {
  operation: text,
  command: text,
  args: texts,
  cwd: orNull(text),
  target: orNull(text),
  env: texts,
  timeout_ms: orNull(count),
}

const OUTCOME: Readonly<Record<keyof RecordedOutcome, FieldCheck>> = {
  code: orNull({ is: Number.isSafeInteger, what: 'a whole number' }),
  signal: orNull(count),
  duration_ms: { is: Number.isFinite, what: 'a number' },
  stdout_bytes_total: count,
  stderr_bytes_total: count,
  truncated: flag,
  denial_reason: orNull(text),
  detail: orNull(text),
  lost: orNull(text),
}

const OF_RUN = { run: text, ms: { is: Number.isFinite, what: 'a number' } }

/** Fields of each event besides its name. */
const EVENTS: Readonly<Record<RecordLine['event'], Readonly<Record<string, FieldCheck>>>> = {
  record: { version: count, x0x: text, whoami: text, began_at: text },
  incomplete: { reason: text },
  end: { lines: count, sha256: text },
  request: { ...OF_RUN, request: table, request_hash: text, asked_at: { is: Number.isFinite, what: 'a number' } },
  started: { ...OF_RUN, started_at: text, cwd: orNull(text), timeout_ms: count },
  stdout: { ...OF_RUN, data_b64: base64 },
  stderr: { ...OF_RUN, data_b64: base64 },
  warning: { ...OF_RUN, kind: text },
  ended: { ...OF_RUN, outcome: orNull(table) },
  refused: { ...OF_RUN, code: orNull(text), message: text, data: table },
  result: { ...OF_RUN, view: table, result: table, text_sha256: text, of_dropped: flag },
  text_dropped: OF_RUN,
  part: { ...OF_RUN, stream, from: count, max: count, part: table },
}

/** Checks of the tables within. */
const WITHIN: Readonly<Record<string, Readonly<Record<string, FieldCheck>>>> = {
  request: REQUEST,
  outcome: OUTCOME,
  view: { stdout: count, stderr: count },
}

/** Depth of what a tool answers, arguments of a command and fields around them. */
const SHAPE = { depth: 8, values: 100_000 }

const problemWith = (line: Fields): string | null => {
  const { event } = line
  if (!isText(event) || !Object.hasOwn(EVENTS, event)) return 'event is none that is known'
  const checks = { event: text, ...EVENTS[event as RecordLine['event']] }
  const unknown = Object.keys(line).find((name) => !Object.hasOwn(checks, name))
  if (unknown !== undefined) return `${JSON.stringify(unknown.slice(0, 100))} is no field of it`
  const problem = problemOf(line, checks)
  if (problem !== null) return problem
  for (const [name, inner] of Object.entries(WITHIN)) {
    const value = line[name]
    const within = isTable(value) ? problemOf(value, inner) : null
    if (within !== null) return `${name}.${within}`
  }
  return null
}

/** Reads one line of a record, without its line feed; a text says why it is none. */
export const parseRecordLine = (bytes: Uint8Array): RecordLine | string => {
  const line = parseTable(bytes, SHAPE)
  return isText(line) ? line : (problemWith(line) ?? (line as RecordLine))
}
