import type { OutputTiming, TranscriptEntry } from './transcript-entry.ts'
import { MAX_TRANSCRIPT_OUTPUT } from './transcript-limits.ts'

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
