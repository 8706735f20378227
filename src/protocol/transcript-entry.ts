import { count, flag, isCount, isTable, isText, orMissing, problemOf, text, texts, type FieldCheck } from './field-checks.ts'
import { ranOn, type RanOn } from './run-place.ts'
import { parseTable } from './json-shape.ts'

/** Milliseconds since the command began, and how many bytes of the output (in UTF-8) came then. */
export type OutputTiming = readonly (readonly [ms: number, bytes: number])[]

/** One command of a supervised console, as a line of its transcript says it. What other programs do not write is optional. */
export interface TranscriptEntry {
  /** As its caller calls itself. */
  readonly whoami: string
  readonly dir: string
  /** What was added to the environment; values only where they were asked for. */
  readonly envs: Readonly<Record<string, string>>
  readonly exec: readonly string[]
  /** Exit status; 128+n where signal n ended it. */
  readonly exit: number
  /** Text, without what a terminal obeys. */
  readonly output: string
  /** Why it did not end by itself, such as `aborted`. */
  readonly error?: string
  /** When it began, `2026-05-21T09:42:18Z`. */
  readonly time: string
  /** The same with milliseconds. */
  readonly started_at?: string
  readonly duration_ms?: number
  /** Of all of that text, in UTF-8. */
  readonly output_bytes?: number
  /** Something of it is not in `output`, which says where. */
  readonly output_truncated?: boolean
  readonly timing?: OutputTiming
  /** `exec` is not all of it. */
  readonly exec_truncated?: boolean
  /** Its place in the order in which commands began, from 1. */
  readonly arrival?: number
  /** Commands that ended before it, and that could not be written. */
  readonly missing_before?: number
  /** Where it ran; absent: it did not, or its console does not choose among hosts. */
  readonly ran_on?: RanOn
  /** Processes that the command left running and that were ended with it; absent: there were none. */
  readonly descendants_ended?: number
  /** Name of the transcript that this one goes on from. */
  readonly continues?: string
}

/** Stands for the value of a variable: values may be secrets. */
export const HIDDEN_VALUE = '[not recorded]'

/** What a line of a transcript is; a problem says why it is no entry. */
export type ParsedEntry = { readonly entry: TranscriptEntry } | { readonly problem: string }

/** An argv, an environment, and a piece of output for each few milliseconds. */
const SHAPE = { depth: 4, values: 100_000 }

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z$/

const isPair = (value: unknown): boolean => Array.isArray(value) && value.length === 2 && value.every(isCount)

const time: FieldCheck = { is: (value) => isText(value) && TIME.test(value) && !Number.isNaN(Date.parse(value)), what: 'a time' }

/** In the order in which they are written. */
const FIELDS: Readonly<Record<keyof TranscriptEntry, FieldCheck>> = {
  whoami: text,
  dir: text,
  envs: { is: (value) => isTable(value) && Object.values(value).every(isText), what: 'a table of texts' },
  exec: { is: (value) => texts.is(value) && (value as unknown[]).length > 0, what: texts.what },
  exit: { is: Number.isSafeInteger, what: 'a whole number' },
  output: text,
  error: orMissing(text),
  time,
  started_at: orMissing(time),
  duration_ms: orMissing(count),
  output_bytes: orMissing(count),
  output_truncated: orMissing(flag),
  timing: orMissing({ is: (value) => Array.isArray(value) && value.every(isPair), what: 'a list of pairs of counts' }),
  exec_truncated: orMissing(flag),
  arrival: orMissing(count),
  missing_before: orMissing(count),
  ran_on: orMissing(ranOn),
  descendants_ended: orMissing(count),
  continues: orMissing(text),
}

/** Reads one line, without its line feed. Fields of other programs are left out. */
export const parseEntry = (bytes: Uint8Array): ParsedEntry => {
  const fields = parseTable(bytes, SHAPE)
  if (isText(fields)) return { problem: fields }
  const problem = problemOf(fields, FIELDS)
  if (problem !== null) return { problem }
  const known = Object.keys(FIELDS).flatMap((name) => (fields[name] === undefined ? [] : [[name, fields[name]] as const]))
  return { entry: Object.fromEntries(known) as unknown as TranscriptEntry }
}
