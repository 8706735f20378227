import { ranOn } from '../api/exec-target.ts'
import { parseTable } from '../json-shape.ts'
import { type JsonField, type Sent, count, flag, integer, isText, list, map, optional, problemOf, tested, text } from '../json-table.ts'
import { MAX_TRANSCRIPT_OUTPUT } from '../limits/tools.ts'

/** Milliseconds since the command began, and how many bytes of the output (in UTF-8) came then. */
export type OutputTiming = readonly (readonly [ms: number, bytes: number])[]

/** Stands for the value of a variable: values may be secrets. */
export const HIDDEN_VALUE = '[not recorded]'

/** An argv, an environment, and a piece of output for each few milliseconds. */
const SHAPE = { depth: 4, values: 100_000 }

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z$/

const timing: JsonField<OutputTiming> = list(list(count, { min: 2, max: 2 }) as unknown as JsonField<OutputTiming[number]>)
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

/** What a transcript has of one command's output. */
export interface RecordedOutput {
  readonly text: string
  /** Of all that came, in UTF-8. */
  readonly bytes: number
  readonly truncated: boolean
  readonly timing: OutputTiming
}

/** A command of a console that has ended. */
export interface EndedCommand extends Pick<TranscriptEntry, 'whoami' | 'dir' | 'exec' | 'exit' | 'ran_on' | 'descendants_ended'> {
  /** With the values that the command had. */
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

/** What comes within so many milliseconds, or within this share of the time that has gone by, is one piece: few of them, however long it takes. */
const PIECE_MS = 10
const PIECE_SHARE = 1 / 500
const PIECE_BYTES = 16 * 1024

/** Cuts a text into pieces of about PIECE_BYTES, no character in two. */
function* cut(text: string): Generator<string> {
  for (let at = 0; at < text.length;) {
    const end = at + PIECE_BYTES
    const splits = end < text.length && /[\ud800-\udbff]/.test(text[end - 1] ?? '')
    yield text.slice(at, splits ? end + 1 : end)
    at = splits ? end + 1 : end
  }
}

/** Records the output of one command as it comes, in bounded memory: the beginning and the end of what is longer than a transcript takes. */
export class TranscriptOutput {
  readonly #max: number
  readonly #head: Piece[] = []
  readonly #tail: Piece[] = []
  #headBytes = 0
  #tailBytes = 0
  #total = 0

  /** `max`: bytes that are kept; half of them are of the beginning where more comes. */
  constructor({ max = MAX_TRANSCRIPT_OUTPUT }: { readonly max?: number } = {}) {
    this.#max = max
  }

  /** `ms`: since the command began. */
  push(text: string, ms: number): void {
    for (const part of cut(text)) this.#add(part, Math.max(0, Math.round(ms)))
  }

  /** What there is by now. */
  recorded(): RecordedOutput {
    const left = this.#total - this.#headBytes - this.#tailBytes
    const note =
      left === 0 ? [] : [{ ms: (this.#tail[0] ?? this.#head.at(-1))?.ms ?? 0, text: `\n[… ${left} bytes are left out here …]\n` }]
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
      // A text that was put together from many small ones takes many times its length until it is copied.
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
