import { Gathered } from './gathered.ts'

export const LINE_FEED = 0x0a
const NOTHING = Buffer.alloc(0)

/** NEL, LINE SEPARATOR and PARAGRAPH SEPARATOR: JSON allows them raw, and line readers such as Node's `readline` cut at them. */
const LINE_SEPARATORS = /[\u0085\u2028\u2029]/g

/** JSON on one line for every reader: each character that Unicode counts as a line separator is escaped. Reads back as the same value. */
export const jsonText = (value: unknown): string =>
  JSON.stringify(value).replaceAll(LINE_SEPARATORS, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)

/** A line without its line feed; `too_long` stands for one longer than `max`, whose bytes are skipped. */
export type Line = Buffer | 'too_long'

/** Cuts bytes into lines wherever the chunks end; keeps at most one line, in little more than its own size. */
export class LineSplitter {
  readonly #max: number
  readonly #kept: Gathered
  readonly #onSkipped: (part: Uint8Array) => void
  #tooLong = false

  /** `max`: bytes of the longest line. `onSkipped`: gets each part of a line that is longer, from its first byte on. */
  constructor({ max, onSkipped = () => undefined }: { max: number; onSkipped?: (part: Uint8Array) => void }) {
    this.#max = max
    this.#kept = new Gathered({ max })
    this.#onSkipped = onSkipped
  }

  /** The last line, when it had no end of its own; null where there is none. */
  rest(): Line | null {
    return this.#kept.length === 0 && !this.#tooLong ? null : this.#take(NOTHING)
  }

  /** The lines that end in this chunk. One may be a view of the chunk. */
  *push(chunk: Uint8Array): Generator<Line, void, undefined> {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
    let start = 0
    for (let end = bytes.indexOf(LINE_FEED); end !== -1; end = bytes.indexOf(LINE_FEED, start)) {
      const part = bytes.subarray(start, end)
      start = end + 1
      yield this.#take(part)
    }
    this.#keep(bytes.subarray(start))
  }

  /** As `push`, but throws as soon as a line has more than `max` bytes. */
  *pushStrictly(chunk: Uint8Array, tooLong: () => Error): Generator<Buffer, void, undefined> {
    for (const line of this.push(chunk)) {
      if (line === 'too_long') throw tooLong()
      yield line
    }
    if (this.#tooLong) throw tooLong()
  }

  #keep(part: Buffer): void {
    if (part.length === 0) return
    if (!this.#tooLong && this.#kept.length + part.length > this.#max) {
      this.#tooLong = true
      this.#onSkipped(this.#kept.take())
    }
    if (this.#tooLong) this.#onSkipped(part)
    else this.#kept.add(part)
  }

  #take(last: Buffer): Line {
    // Most lines lie wholly in one chunk and need no copy.
    if (this.#kept.length === 0 && !this.#tooLong && last.length <= this.#max) return last
    this.#keep(last)
    const line = this.#tooLong ? 'too_long' : this.#kept.take()
    this.#tooLong = false
    return line
  }
}

/** The lines of a stream, and the last one also without its end. Throws `tooLong` as soon as one has more than `max` bytes; stops reading while its consumer works. */
export async function* linesOf(
  chunks: AsyncIterable<Uint8Array>,
  max: number,
  tooLong: () => Error,
): AsyncGenerator<Buffer, void, undefined> {
  const lines = new LineSplitter({ max })
  for await (const chunk of chunks) yield* lines.pushStrictly(chunk, tooLong)
  const rest = lines.rest()
  if (rest !== null && rest !== 'too_long') yield rest
}
