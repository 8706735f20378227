import { AppError } from '../../base/errors.ts'
import { Condition } from '../../base/wait-queue.ts'
import { newSha256 } from '../../identity/hash.ts'
import { FILE_CHUNK_BYTES, FILE_DIGEST } from '../../protocol/api/files.ts'
import type { FileRuns, FileTarget } from './file-runs.ts'

/** Chunks of one download under way at once: the one that the client reads, and the next. */
const CHUNKS_AT_ONCE = 2
/** Bytes of the first chunk that wait for its reader. Then its run pauses, like every run with a slow client. */
const MAX_FIRST_WAITING = 1024 * 1024
/** Bytes of all downloads that wait for a reader. Then only first chunks go on. */
const MAX_READ_AHEAD = 64 * 1024 * 1024

/** Part of a file of a certain version. */
export interface FileRange {
  readonly path: string
  readonly version: string
  /** Size of the whole file. */
  readonly size: number
  readonly offset: number
  /** Offset after the last byte. */
  readonly end: number
}

/** Bytes of all downloads that wait for a reader. */
class ReadAhead {
  readonly changed = new Condition()
  #bytes = 0

  get isFull(): boolean {
    return this.#bytes >= MAX_READ_AHEAD
  }

  add(bytes: number): void {
    this.#bytes += bytes
  }

  remove(bytes: number): void {
    this.#bytes -= bytes
    this.changed.notifyAll()
  }
}

/** One `@read`, whose bytes wait for their turn. */
class ChunkRead {
  readonly #ahead: ReadAhead
  readonly #waiting: Uint8Array[] = []
  readonly #news = new Condition()
  /** Bytes that have not arrived yet. */
  #missing: number
  #waitingBytes = 0
  #isFirst = false
  #isOver = false
  #failure: { readonly error: unknown } | null = null

  constructor(deps: { readonly ahead: ReadAhead }, init: { readonly length: number }) {
    this.#ahead = deps.ahead
    this.#missing = init.length
  }

  /** Takes output. The promise resolves when more may come. */
  push(data: Uint8Array): void | Promise<void> {
    if (this.#isOver || data.length === 0) return undefined
    this.#missing -= data.length
    if (this.#missing < 0) throw new AppError('file_error', 'the agent sent more than requested')
    this.#waiting.push(data)
    this.#waitingBytes += data.length
    this.#ahead.add(data.length)
    this.#news.notifyAll()
    return this.#mayGoOn ? undefined : this.#room()
  }

  /** The run has ended. */
  end(failure: { readonly error: unknown } | null): void {
    this.#failure = failure ?? (this.#missing === 0 ? null : { error: new AppError('file_error', 'the agent sent less than requested') })
    this.#missing = 0
    this.#isOver = true
    this.#news.notifyAll()
  }

  /** The bytes in order, as they come. Throws the error of the run. */
  async *pieces(): AsyncGenerator<Uint8Array, void, undefined> {
    this.#isFirst = true
    this.#ahead.changed.notifyAll()
    for (;;) {
      for (let piece = this.#waiting.shift(); piece !== undefined; piece = this.#waiting.shift()) {
        this.#took(piece.length)
        yield piece
      }
      if (this.#failure !== null) throw this.#failure.error
      if (this.#isOver) return
      await this.#news.wait()
    }
  }

  /** Drops what nobody will read. */
  close(): void {
    this.#isOver = true
    this.#waiting.length = 0
    this.#took(this.#waitingBytes)
    this.#news.notifyAll()
  }

  get #mayGoOn(): boolean {
    return this.#isOver || (this.#isFirst ? this.#waitingBytes <= MAX_FIRST_WAITING : !this.#ahead.isFull)
  }

  #took(bytes: number): void {
    this.#waitingBytes -= bytes
    this.#ahead.remove(bytes)
  }

  async #room(): Promise<void> {
    while (!this.#mayGoOn) await this.#ahead.changed.wait()
  }
}

/** The chunks of one download, in order. */
class ChunkReads {
  readonly #deps: { readonly runs: FileRuns; readonly ahead: ReadAhead }
  readonly #of: { readonly target: FileTarget; readonly range: FileRange; readonly signal: AbortSignal }
  readonly #reads: ChunkRead[] = []
  #next: number

  constructor(
    deps: { readonly runs: FileRuns; readonly ahead: ReadAhead },
    of: { target: FileTarget; range: FileRange; signal: AbortSignal },
  ) {
    this.#deps = deps
    this.#of = of
    this.#next = of.range.offset
  }

  /** Whether the last chunk is under way. */
  get allBegun(): boolean {
    return this.#next >= this.#of.range.end
  }

  /** Begins further chunks, as many as may be under way. The first one, or null at the end. */
  first(): ChunkRead | null {
    while (this.#reads.length < CHUNKS_AT_ONCE && !this.allBegun) this.#begin()
    return this.#reads[0] ?? null
  }

  /** The first chunk has been read. */
  shift(): void {
    this.#reads.shift()
  }

  close(): void {
    for (const read of this.#reads) read.close()
  }

  #begin(): void {
    const { target, range, signal } = this.#of
    const { path, version, end } = range
    const length = Math.min(FILE_CHUNK_BYTES, end - this.#next)
    const read = new ChunkRead(this.#deps, { length })
    const command = { op: 'read', path, offset: this.#next, length, version } as const
    this.#next += length
    this.#reads.push(read)
    this.#deps.runs
      .run({ target, command, onOutput: (data) => read.push(data) }, signal)
      .then(() => read.end(null))
      .catch((error: unknown) => read.end({ error }))
  }
}

/** Reads files of other agents chunk by chunk. */
export class Downloads {
  readonly #deps: { readonly runs: FileRuns; readonly ahead: ReadAhead }

  constructor({ runs }: { readonly runs: FileRuns }) {
    this.#deps = { runs, ahead: new ReadAhead() }
  }

  /**
   * The bytes of a range. The last ones of a whole file come when the SHA-256 of the target's file fits. Throws `file_error` if it does
   * not, and as `FileRuns.run`.
   */
  async *download(target: FileTarget, range: FileRange, signal: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    const ending = new AbortController()
    const all = AbortSignal.any([signal, ending.signal])
    const chunks = new ChunkReads(this.#deps, { target, range, signal: all })
    const isWhole = range.offset === 0 && range.end === range.size
    const hash = newSha256()
    let digest: Promise<string> | null = null
    let last: Uint8Array | null = null
    try {
      for (let chunk = chunks.first(); chunk !== null; chunk = chunks.first()) {
        // The target hashes the file while the last chunk is under way.
        if (isWhole && chunks.allBegun) digest ??= this.#digest(target, range, all)
        for await (const piece of chunk.pieces()) {
          if (isWhole) hash.update(piece)
          if (last !== null) yield last
          last = piece
        }
        chunks.shift()
      }
      if (digest !== null && (await digest) !== hash.digest('hex'))
        throw new AppError('file_error', `${range.path}: the content differs from that of the agent`)
      if (last !== null) yield last
    } finally {
      ending.abort(new AppError('conflict', 'the download has ended'))
      chunks.close()
    }
  }

  #digest(target: FileTarget, { path, version }: FileRange, signal: AbortSignal): Promise<string> {
    const digest = this.#deps.runs.ask({ target, command: { op: 'hash', path, version } }, FILE_DIGEST, signal).then(({ sha256 }) => sha256)
    // A failed chunk is reported first.
    digest.catch(() => undefined)
    return digest
  }
}
