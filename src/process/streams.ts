import { type Hash, createHash } from 'node:crypto'
import type { Readable, Writable } from 'node:stream'
import { MAX_FRAME_DATA } from '../protocol/limits/wire.ts'

/** Bytes that several streams may still forward together. */
export interface OutputBudget {
  left: number
}

export interface OutputLimits {
  /** Bytes to forward; later bytes are counted and dropped. */
  readonly cap: number
  /** Shared with other streams, or null if absent. */
  readonly budget: OutputBudget | null
  /** Bytes at which `onApproaching` is called. */
  readonly warn: number
}

export interface OutputHandlers {
  /** Output in order, at most MAX_FRAME_DATA bytes each and `cap` together. May pause the pump. */
  onData(data: Uint8Array): void
  /** Called once when the total reaches `warn`. */
  onApproaching(total: number): void
  /** Called once when a byte beyond the limit is dropped. */
  onCapHit(total: number): void
}

export interface OutputTotals {
  /** All bytes that the program wrote. */
  readonly bytes_total: number
  readonly bytes_forwarded: number
  /** Hash of the forwarded bytes. */
  readonly sha256: Uint8Array
  /** Bytes were dropped. Output of exactly the limit is complete. */
  readonly truncated: boolean
}

/**
 * Reads one output stream of a child: counts, limits and hashes. While it is paused, the bytes stay in the pipe and the child blocks when
 * that is full. It starts paused.
 */
export class OutputPump {
  readonly #source: Readable
  readonly #limits: OutputLimits
  readonly #handlers: OutputHandlers
  readonly #hash: Hash = createHash('sha256')
  #total = 0
  #forwarded = 0
  #paused = true
  /** `finish` was called: later bytes are not counted. */
  #finished = false
  #flushing = false
  #approached = false
  #capHit = false
  #ended = false
  /** Resolves when the stream has ended, failed or been destroyed. */
  readonly ended: Promise<void>

  constructor(deps: { source: Readable; handlers: OutputHandlers }, limits: OutputLimits) {
    this.#source = deps.source
    this.#handlers = deps.handlers
    this.#limits = limits
    this.ended = new Promise((resolve) => {
      const end = (): void => {
        this.#ended = true
        resolve()
      }
      this.#source.once('end', end).once('close', end).once('error', end)
      // A program behind a wrapper may end before its start is reported.
      if (this.#source.readableEnded || this.#source.destroyed) end()
    })
    this.#source.on('readable', () => this.#pullSoon())
  }

  get isEnded(): boolean {
    return this.#ended
  }

  /** All bytes read, including those beyond the limit. */
  get total(): number {
    return this.#total
  }

  pause(): void {
    this.#paused = true
  }

  resume(): void {
    if (!this.#paused || this.#finished) return
    this.#paused = false
    this.#pull(0)
  }

  /** Closes our end of the pipe. */
  destroy(): void {
    this.#source.destroy()
  }

  /** Returns the result. Call it once, when nothing more will be read. */
  finish(): OutputTotals {
    this.#paused = true
    this.#finished = true
    return {
      bytes_total: this.#total,
      bytes_forwarded: this.#forwarded,
      sha256: new Uint8Array(this.#hash.digest()),
      truncated: this.#total > this.#forwarded,
    }
  }

  /** Joins small pieces of one turn of the event loop. */
  #pullSoon(): void {
    if (this.#source.readableLength >= MAX_FRAME_DATA) this.#pull(MAX_FRAME_DATA)
    if (this.#flushing) return
    this.#flushing = true
    setImmediate(() => {
      this.#flushing = false
      this.#pull(0)
    })
  }

  /** Reads what is available, if that is at least `least` bytes. */
  #pull(least: number): void {
    while (!this.#paused && this.#source.readableLength >= least) {
      // Requesting more than is available would wait. A read without a size lets the stream refill or end.
      const available = Math.min(this.#source.readableLength, MAX_FRAME_DATA)
      const chunk: Buffer | null = available > 0 ? this.#source.read(available) : this.#source.read()
      if (chunk === null) return
      this.#take(chunk)
    }
  }

  #take(chunk: Buffer): void {
    const { cap, warn, budget } = this.#limits
    this.#total += chunk.length
    const data = chunk.subarray(0, Math.min(cap - this.#forwarded, budget?.left ?? Number.MAX_SAFE_INTEGER))
    if (budget !== null) budget.left -= data.length
    if (data.length > 0) {
      this.#forwarded += data.length
      this.#hash.update(data)
      this.#handlers.onData(data)
    }
    if (!this.#approached && this.#total >= warn) {
      this.#approached = true
      this.#handlers.onApproaching(this.#total)
    }
    if (!this.#capHit && data.length < chunk.length) {
      this.#capHit = true
      this.#handlers.onCapHit(this.#total)
    }
  }
}

/** Stdin of a child. Bytes that the child does not read are dropped without an error. */
export class StdinSink {
  readonly #target: Writable

  constructor(target: Writable) {
    this.#target = target
    // EPIPE and similar; the callback of each write settles it.
    target.on('error', () => {})
  }

  /** Resolves when the pipe has taken the bytes or they are dropped. */
  async write(data: Uint8Array): Promise<void> {
    if (!this.#target.writable) return
    await new Promise<void>((resolve) => {
      this.#target.write(data, () => resolve())
    })
  }

  /** Sends end of file after the written bytes. */
  end(): void {
    if (this.#target.writable) this.#target.end()
  }

  destroy(): void {
    this.#target.destroy()
  }
}
