import { ranOn } from '../api/exec-target.ts'
import { parseTable } from '../json-shape.ts'
import { type JsonField, type Sent, count, flag, integer, isText, list, map, optional, problemOf, tested, text } from '../json-table.ts'
import { MAX_TRANSCRIPT_OUTPUT } from '../limits/tools.ts'

/** Times in milliseconds since the command's start, with the bytes of UTF-8 output that arrived then. */
export type OutputTiming = readonly (readonly [ms: number, bytes: number])[]

/** Replaces the value of a variable, which may be a secret. */
export const HIDDEN_VALUE = '[not recorded]'

/** Limits of a line. An argv, an environment, and a piece of output for each few milliseconds fit. */
const SHAPE = { depth: 4, values: 100_000 }

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z$/

const timing: JsonField<OutputTiming> = list(list(count, { min: 2, max: 2 }) as unknown as JsonField<OutputTiming[number]>)
const began = tested<string>((value) => isText(value) && TIME.test(value) && !Number.isNaN(Date.parse(value)), 'a time')

/** One ended command, with the fields of a transcript line in their order. Other programs omit optional fields. */
const FIELDS = {
  /** Name that the client gives itself. */
  whoami: text,
  dir: text,
  /** Variables added to the environment. Values are recorded only if the configuration says so. */
  envs: map(text, text),
  exec: list(text, { min: 1 }),
  /** Exit status, or 128+n if signal n ended the command. */
  exit: integer,
  /** Output text without terminal control sequences. */
  output: text,
  /** Why the command did not end by itself, such as `aborted`. */
  error: optional(text),
  /** Time of the start, `2026-05-21T09:42:18Z`. */
  time: began,
  /** The same with milliseconds. */
  started_at: optional(began),
  duration_ms: optional(count),
  /** Size of the complete text in UTF-8. */
  output_bytes: optional(count),
  /** True if `output` lacks a part. The text marks where. */
  output_truncated: optional(flag),
  timing: optional(timing),
  /** True if `exec` is not complete. */
  exec_truncated: optional(flag),
  /** Number in the order of starts, from 1. */
  arrival: optional(count),
  /** Number of earlier commands that could not be written. */
  missing_before: optional(count),
  /** Host of the run, or absent if it did not run or the console does not choose among hosts. */
  ran_on: optional(ranOn),
  /** Number of processes that the command left running and that were ended, or absent. */
  descendants_ended: optional(count),
  /** Name of the transcript that this one continues. */
  continues: optional(text),
}
export type TranscriptEntry = Sent<typeof FIELDS>

/** A parsed line, or why it is not an entry. */
export type ParsedEntry = { readonly entry: TranscriptEntry } | { readonly problem: string }

/** Parses one line without its line feed. Unknown fields are dropped. */
export const parseEntry = (bytes: Uint8Array): ParsedEntry => {
  const fields = parseTable(bytes, SHAPE)
  if (isText(fields)) return { problem: fields }
  const problem = problemOf(fields, FIELDS)
  if (problem !== null) return { problem }
  const known = Object.keys(FIELDS).flatMap((name) => (fields[name] === undefined ? [] : [[name, fields[name]] as const]))
  return { entry: Object.fromEntries(known) as unknown as TranscriptEntry }
}

/** Output of one command as a transcript records it. */
export interface RecordedOutput {
  readonly text: string
  /** Size of all output in UTF-8. */
  readonly bytes: number
  readonly truncated: boolean
  readonly timing: OutputTiming
}

export interface EndedCommand extends Pick<TranscriptEntry, 'whoami' | 'dir' | 'exec' | 'exit' | 'ran_on' | 'descendants_ended'> {
  /** Variables with their real values. */
  readonly envs: Readonly<Record<string, string>>
  readonly error: string | null
  /** Milliseconds since the Unix epoch. */
  readonly startedAt: number
  readonly duration_ms: number
  readonly output: RecordedOutput
}

interface Piece {
  readonly ms: number
  text: string
  bytes: number
}

/** Output within this many milliseconds, or within this share of the elapsed time, is one piece, so a long command has few pieces. */
const PIECE_MS = 10
const PIECE_SHARE = 1 / 500
const PIECE_BYTES = 16 * 1024

/** Cuts a text into pieces of about PIECE_BYTES without splitting characters. */
function* cut(text: string): Generator<string> {
  for (let at = 0; at < text.length;) {
    const end = at + PIECE_BYTES
    const splits = end < text.length && /[\ud800-\udbff]/.test(text[end - 1] ?? '')
    yield text.slice(at, splits ? end + 1 : end)
    at = splits ? end + 1 : end
  }
}

/** Records the output of one command in bounded memory. Long output loses its middle. */
export class TranscriptOutput {
  readonly #max: number
  readonly #head: Piece[] = []
  readonly #tail: Piece[] = []
  #headBytes = 0
  #tailBytes = 0
  #total = 0

  /** `max` is the number of stored bytes. Longer output keeps its beginning and its end in equal parts. */
  constructor({ max = MAX_TRANSCRIPT_OUTPUT }: { readonly max?: number } = {}) {
    this.#max = max
  }

  /** `ms` counts from the command's start. */
  push(text: string, ms: number): void {
    for (const part of cut(text)) this.#add(part, Math.max(0, Math.round(ms)))
  }

  recorded(): RecordedOutput {
    const left = this.#total - this.#headBytes - this.#tailBytes
    const note = left === 0 ? [] : [{ ms: (this.#tail[0] ?? this.#head.at(-1))?.ms ?? 0, text: `\n[… ${left} bytes are left out …]\n` }]
    const pieces = [...this.#head, ...note, ...this.#tail]
    return {
      text: pieces.map(({ text }) => text).join(''),
      bytes: this.#total,
      truncated: left > 0,
      timing: pieces.map(({ ms, text }) => [ms, Buffer.byteLength(text)] as const),
    }
  }

  #add(text: string, ms: number): void {
    const bytes = Buffer.byteLength(text)
    const fits = this.#tail.length === 0 && this.#headBytes + bytes <= this.#max / 2
    const pieces = fits ? this.#head : this.#tail
    const last = pieces.at(-1)
    if (last !== undefined && ms - last.ms <= Math.max(PIECE_MS, ms * PIECE_SHARE) && last.bytes + bytes <= PIECE_BYTES) {
      last.text += text
      last.bytes += bytes
    } else {
      // A concatenated string takes many times its length until it is copied.
      if (last !== undefined) last.text = Buffer.from(last.text, 'utf16le').toString('utf16le')
      pieces.push({ ms, text, bytes })
    }
    this.#total += bytes
    if (fits) this.#headBytes += bytes
    else this.#keepEnd(bytes)
  }

  #keepEnd(bytes: number): void {
    this.#tailBytes += bytes
    while (this.#tailBytes > this.#max / 2) this.#tailBytes -= this.#tail.shift()?.bytes ?? this.#tailBytes
  }
}
