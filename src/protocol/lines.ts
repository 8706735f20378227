const FIRST_BYTES = 4_096
/**
 * Pieces of at least this size are kept without copying. Smaller ones are copied, because they may be views of the runtime's 64 KiB buffer
 * pool and would keep it in memory.
 */
const LARGE_PIECE = 32 * 1024
const NOTHING = Buffer.alloc(0)

/** Collects pieces in little more memory than their bytes. Small ones are copied together. */
export class ByteBuilder {
  readonly #max: number
  /** All pieces before `#kept`, in order. */
  #pieces: Uint8Array[] = []
  #piecesLength = 0
  /** The latest small pieces, joined. `#keptLength` bytes are filled. */
  #kept = NOTHING
  #keptLength = 0

  /** `max` is an upper bound of `length`, which the caller of `add` must keep. Buffers are never larger. */
  constructor(init: { max: number }) {
    this.#max = init.max
  }

  get length(): number {
    return this.#piecesLength + this.#keptLength
  }

  /** A piece of `LARGE_PIECE` or more is not copied before `take`, so its bytes must not change until then. */
  add(piece: Uint8Array): void {
    if (piece.length < LARGE_PIECE) return this.#join(piece)
    const joined = this.#takeJoined()
    if (joined.length > 0) this.#pieces.push(joined)
    this.#pieces.push(piece)
    this.#piecesLength += joined.length + piece.length
  }

  /** Returns all bytes in one buffer and becomes empty. */
  take(): Buffer {
    const joined = this.#takeJoined()
    if (this.#pieces.length === 0) return joined
    // `allocUnsafeSlow`, because a view of the runtime's pool would keep the whole pool in memory.
    const all = Buffer.allocUnsafeSlow(this.#piecesLength + joined.length)
    let at = 0
    for (const piece of [...this.#pieces, joined]) {
      all.set(piece, at)
      at += piece.length
    }
    this.#pieces = []
    this.#piecesLength = 0
    return all
  }

  #join(piece: Uint8Array): void {
    const length = this.#keptLength + piece.length
    if (length > this.#kept.length) {
      const room = Math.min(this.#max - this.#piecesLength, Math.max(FIRST_BYTES, 2 * this.#kept.length))
      const larger = Buffer.allocUnsafeSlow(Math.max(length, room))
      this.#kept.copy(larger, 0, 0, this.#keptLength)
      this.#kept = larger
    }
    this.#kept.set(piece, this.#keptLength)
    this.#keptLength = length
  }

  #takeJoined(): Buffer {
    const joined = this.#kept.subarray(0, this.#keptLength)
    this.#kept = NOTHING
    this.#keptLength = 0
    return joined
  }
}

export const LINE_FEED = 0x0a

/** NEL, LINE SEPARATOR and PARAGRAPH SEPARATOR. JSON allows them unescaped, and line readers such as Node's `readline` split at them. */
const LINE_SEPARATORS = /[\u0085\u2028\u2029]/g

/** JSON on one line for all readers, because characters that Unicode counts as line separators are escaped. Parses as the same value. */
export const jsonText = (value: unknown): string =>
  JSON.stringify(value).replaceAll(LINE_SEPARATORS, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)

/** A line without its line feed, or `too_long` for one longer than `max`, whose bytes are skipped. */
export type Line = Buffer | 'too_long'

/** Splits chunks of bytes into lines. Keeps at most one line, in little more than its own size. */
export class LineSplitter {
  readonly #max: number
  readonly #kept: ByteBuilder
  readonly #onSkipped: (part: Uint8Array) => void
  #tooLong = false

  /** `max` is the length of the longest line in bytes. `onSkipped` receives each part of a longer line, from its first byte. */
  constructor({ max, onSkipped = () => undefined }: { max: number; onSkipped?: (part: Uint8Array) => void }) {
    this.#max = max
    this.#kept = new ByteBuilder({ max })
    this.#onSkipped = onSkipped
  }

  /** The last line if it had no line feed, or null. */
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
    // Most lines are inside one chunk and need no copy.
    if (this.#kept.length === 0 && !this.#tooLong && last.length <= this.#max) return last
    this.#keep(last)
    const line = this.#tooLong ? 'too_long' : this.#kept.take()
    this.#tooLong = false
    return line
  }
}

/** The lines of a stream. Throws `tooLong` for one of more than `max` bytes. Stops reading while its consumer works. */
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
