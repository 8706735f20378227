import type { OutputName } from '../protocol/reasons.ts'
import type { Fullness } from './connection.ts'
import { toText } from './data.ts'
import { type CallOptions, type Deferred, deferred, whenAborted } from './promises.ts'

/**
 * Unread output of a process, both streams, at which reading from the connection stops, so that the program blocks. All processes of the
 * connection then wait, because REXD/1 has no acknowledgement for each process.
 */
const OUTPUT_HIGH_WATER = 1024 * 1024
/**
 * Unread output at which reading stops even if a caller waits for an answer. The answer may follow the output in transit. That is 1 MiB at
 * the server, and buffers, which for TCP on one host are up to 10 MiB (Linux).
 */
export const OUTPUT_LIMIT = 16 * 1024 * 1024
/** Added to the size of each chunk, so that many tiny ones are bounded too. */
const CHUNK_COST = 256

/** A part of the output, at arbitrary boundaries. */
export interface OutputChunk {
  readonly stream: OutputName
  readonly data: Uint8Array
  /** 1, 2, 3, … within its stream. */
  readonly seq: number
}

interface Waiting {
  readonly chunk: OutputChunk
  /** Its position among the chunks of both streams. */
  readonly order: number
}

const costOf = ({ chunk }: Waiting): number => chunk.data.length + CHUNK_COST

/** The unread output of a process, and its end. */
export class OutputQueue {
  readonly #onFullness: (fullness: Fullness) => void
  readonly #waiting: Readonly<Record<OutputName, Waiting[]>> = { stdout: [], stderr: [] }
  readonly #claimed = new Set<OutputName>()
  readonly #discarded = new Set<OutputName>()
  #order = 0
  #cost = 0
  #fullness: Fullness = 'room'
  #end: { readonly error: unknown } | null = null
  #changed: Deferred<void> | null = null

  constructor(init: { onFullness: (fullness: Fullness) => void }) {
    this.#onFullness = init.onFullness
  }

  push(chunk: OutputChunk): void {
    if (this.#end !== null || this.#discarded.has(chunk.stream) || chunk.data.length === 0) return
    const one: Waiting = { chunk, order: this.#order++ }
    this.#waiting[chunk.stream].push(one)
    this.#cost += costOf(one)
    this.#emit()
  }

  /** Ends the output. Readers get the rest, then end or get the error. */
  end(error: unknown): void {
    if (this.#end !== null) return
    this.#end = { error }
    this.#emit()
  }

  /** Like `end`, but drops the rest. */
  fail(error: unknown): void {
    this.end(error)
    for (const name of ['stdout', 'stderr'] as const) this.#clear(name)
    this.#emit()
  }

  /** Drops this stream now and later, so that it cannot block the program. */
  discard(name: OutputName): void {
    this.#discarded.add(name)
    this.#clear(name)
    this.#emit()
  }

  /** Throws a `TypeError` if one of the streams already has a reader. Leaving the loop discards the streams. */
  read(...names: readonly OutputName[]): AsyncGenerator<OutputChunk, void, undefined> {
    const taken = names.find((name) => this.#claimed.has(name))
    if (taken !== undefined) throw new TypeError(`${taken} is read already; each stream is read once`)
    for (const name of names) this.#claimed.add(name)
    return this.#read(names)
  }

  async *#read(names: readonly OutputName[]): AsyncGenerator<OutputChunk, void, undefined> {
    try {
      for (;;) {
        const chunk = this.#take(names)
        if (chunk !== null) yield chunk
        else if (this.#end === null) await (this.#changed ??= deferred<void>()).promise
        else if (this.#end.error === null) return
        else throw this.#end.error
      }
    } finally {
      for (const name of names) this.discard(name)
    }
  }

  /** The earliest chunk of these streams. */
  #take(names: readonly OutputName[]): OutputChunk | null {
    const [first] = names
      .map((name) => this.#waiting[name])
      .filter((list) => list.length > 0)
      .sort((a, b) => a[0]!.order - b[0]!.order)
    const one = first?.shift()
    if (one === undefined) return null
    this.#cost -= costOf(one)
    this.#emit()
    return one.chunk
  }

  #clear(name: OutputName): void {
    const dropped = this.#waiting[name].splice(0)
    this.#cost -= dropped.reduce((sum, one) => sum + costOf(one), 0)
  }

  #emit(): void {
    this.#changed?.resolve()
    this.#changed = null
    const fullness = this.#now()
    if (fullness === this.#fullness) return
    this.#fullness = fullness
    this.#onFullness(fullness)
  }

  /** A full queue has room again below 50 % of `OUTPUT_HIGH_WATER`, so that the connection does not stop and start for each chunk. */
  #now(): Fullness {
    if (this.#end !== null) return 'room'
    if (this.#cost >= OUTPUT_LIMIT) return 'limit'
    if (this.#cost >= OUTPUT_HIGH_WATER) return 'high'
    return this.#fullness !== 'room' && this.#cost > OUTPUT_HIGH_WATER / 2 ? 'high' : 'room'
  }
}

/** One output stream of a process. It can be read once. Stopping early discards the rest. */
export class RemoteOutput implements AsyncIterable<Uint8Array> {
  readonly #queue: OutputQueue
  readonly #name: OutputName

  constructor(components: { readonly queue: OutputQueue }, init: { name: OutputName }) {
    this.#queue = components.queue
    this.#name = init.name
  }

  /** Its bytes, at arbitrary boundaries. */
  [Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    return dataOf(this.#queue.read(this.#name))
  }

  /** All bytes. Rejects with a `RangeError` above `max`, and discards the rest. */
  async bytes(max: number, { signal }: CallOptions = {}): Promise<Uint8Array> {
    signal?.throwIfAborted()
    const chunks = this.#queue.read(this.#name)
    return new Promise((resolve, reject) => {
      const release = whenAborted(signal, (reason) => {
        this.discard()
        reject(reason)
      })
      void this.#collect(chunks, max).then(resolve, reject).finally(release)
    })
  }

  /** Like `bytes`, as UTF-8. Invalid bytes become U+FFFD. */
  async text(max: number, options: CallOptions = {}): Promise<string> {
    return toText(await this.bytes(max, options))
  }

  /** Drops the stream, so that it cannot block the program. */
  discard(): void {
    this.#queue.discard(this.#name)
  }

  async #collect(chunks: AsyncIterable<{ readonly data: Uint8Array }>, max: number): Promise<Uint8Array> {
    const parts: Uint8Array[] = []
    let length = 0
    for await (const { data } of chunks) {
      length += data.length
      if (length > max) throw new RangeError(`${this.#name} has more than ${max} bytes`)
      parts.push(data)
    }
    return Buffer.concat(parts, length)
  }
}

async function* dataOf(chunks: AsyncIterable<{ readonly data: Uint8Array }>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const { data } of chunks) yield data
}
