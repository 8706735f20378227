import type { OutputName } from '../protocol/reasons.ts'
import type { Fullness } from './connection.ts'
import { toText } from './data.ts'
import { type CallOptions, type Deferred, deferred, whenAborted } from './promises.ts'

/** Unread output of one process, both streams: from here on nothing more is read from the connection, so that the program is held. */
const OUTPUT_HIGH_WATER = 1024 * 1024
/**
 * … and from here on not even to find the answer to a call, which stands behind output that is on its way: what the
 * server lets wait (1 MiB), and the buffers between, which for TCP on one host are up to 10 MiB (Linux).
 */
export const OUTPUT_LIMIT = 16 * 1024 * 1024
/** What a chunk counts beside its data, so that a flood of tiny ones is bounded too. */
const CHUNK_COST = 256

/** A part of what a process wrote, as the system gave it out: it ends anywhere. */
export interface OutputChunk {
  readonly stream: OutputName
  readonly data: Uint8Array
  /** 1, 2, 3, … within its stream. */
  readonly seq: number
}

interface Waiting {
  readonly chunk: OutputChunk
  /** Its place among those of both streams. */
  readonly order: number
}

const costOf = ({ chunk }: Waiting): number => chunk.data.length + CHUNK_COST

/** Output of one process that nobody has read yet, and what is said when there is no more. */
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

  /** No more comes: behind what is there, readers end, or get the error. */
  end(error: unknown): void {
    if (this.#end !== null) return
    this.#end = { error }
    this.#emit()
  }

  /** As `end`, and what is there is not given out any more. */
  fail(error: unknown): void {
    this.end(error)
    for (const name of ['stdout', 'stderr'] as const) this.#clear(name)
    this.#emit()
  }

  /** Nobody will read this stream: what is there and what comes is dropped, and holds nothing. */
  discard(name: OutputName): void {
    this.#discarded.add(name)
    this.#clear(name)
    this.#emit()
  }

  /** Throws a `TypeError` where somebody reads one of them already. The streams are discarded when the reader leaves. */
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

  /** What was written first of these streams. */
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

  /** What is full has room again when half of it is gone, so that not every chunk stops and starts the connection. */
  #now(): Fullness {
    if (this.#end !== null) return 'room'
    if (this.#cost >= OUTPUT_LIMIT) return 'limit'
    if (this.#cost >= OUTPUT_HIGH_WATER) return 'high'
    return this.#fullness !== 'room' && this.#cost > OUTPUT_HIGH_WATER / 2 ? 'high' : 'room'
  }
}

/** One stream of what a process writes. It can be read once; whoever stops reading it before its end discards the rest. */
export class RemoteOutput implements AsyncIterable<Uint8Array> {
  readonly #queue: OutputQueue
  readonly #name: OutputName

  constructor(components: { readonly queue: OutputQueue }, init: { name: OutputName }) {
    this.#queue = components.queue
    this.#name = init.name
  }

  /** Its bytes in parts that end anywhere. */
  [Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    return dataOf(this.#queue.read(this.#name))
  }

  /** All of it. Rejects with a `RangeError` when there are more than `max` bytes; the rest is discarded then. */
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

  /** As `bytes`, as UTF-8; what is none becomes U+FFFD. */
  async text(max: number, options: CallOptions = {}): Promise<string> {
    return toText(await this.bytes(max, options))
  }

  /** Nobody will read it: what comes is dropped, and does not hold the program. */
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
