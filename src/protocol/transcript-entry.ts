import { parseTable } from './json-shape.ts'
import { type Field, type Sent, count, flag, integer, isText, list, map, optional, problemOf, tested, text } from './json-table.ts'
import { ranOn } from './run-place.ts'

/** Milliseconds since the command began, and how many bytes of the output (in UTF-8) came then. */
export type OutputTiming = readonly (readonly [ms: number, bytes: number])[]

/** Stands for the value of a variable: values may be secrets. */
export const HIDDEN_VALUE = '[not recorded]'

/** An argv, an environment, and a piece of output for each few milliseconds. */
const SHAPE = { depth: 4, values: 100_000 }

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z$/

const timing: Field<OutputTiming> = list(list(count, { min: 2, max: 2 }) as unknown as Field<OutputTiming[number]>)
const began = tested<string>((value) => isText(value) && TIME.test(value) && !Number.isNaN(Date.parse(value)), 'a time')

/** One command of a supervised console, as a line of its transcript says it, in the order in which it is written. Fields that other programs do not write are optional. */
const FIELDS = {
  /** As its caller calls itself. */
  whoami: text,
  dir: text,
  /** What was added to the environment; values only where they were asked for. */
  envs: map(text, text),
  exec: list(text, { min: 1 }),
  /** Exit status; 128+n where signal n ended it. */
  exit: integer,
  /** Text, without what a terminal obeys. */
  output: text,
  /** Why it did not end by itself, such as `aborted`. */
  error: optional(text),
  /** When it began, `2026-05-21T09:42:18Z`. */
  time: began,
  /** The same with milliseconds. */
  started_at: optional(began),
  duration_ms: optional(count),
  /** Of all of that text, in UTF-8. */
  output_bytes: optional(count),
  /** Something of it is not in `output`, which says where. */
  output_truncated: optional(flag),
  timing: optional(timing),
  /** `exec` is not all of it. */
  exec_truncated: optional(flag),
  /** Its place in the order in which commands began, from 1. */
  arrival: optional(count),
  /** Commands that ended before it, and that could not be written. */
  missing_before: optional(count),
  /** Where it ran; absent: it did not, or its console does not choose among hosts. */
  ran_on: optional(ranOn),
  /** Processes that the command left running and that were ended with it; absent: there were none. */
  descendants_ended: optional(count),
  /** Name of the transcript that this one goes on from. */
  continues: optional(text),
}
export type TranscriptEntry = Sent<typeof FIELDS>

/** What a line of a transcript is; a problem says why it is no entry. */
export type ParsedEntry = { readonly entry: TranscriptEntry } | { readonly problem: string }

/** Reads one line, without its line feed. Fields of other programs are left out. */
export const parseEntry = (bytes: Uint8Array): ParsedEntry => {
  const fields = parseTable(bytes, SHAPE)
  if (isText(fields)) return { problem: fields }
  const problem = problemOf(fields, FIELDS)
  if (problem !== null) return { problem }
  const known = Object.keys(FIELDS).flatMap((name) => (fields[name] === undefined ? [] : [[name, fields[name]] as const]))
  return { entry: Object.fromEntries(known) as unknown as TranscriptEntry }
}
