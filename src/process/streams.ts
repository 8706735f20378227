import { type Hash, createHash } from 'node:crypto'
import type { Readable, Writable } from 'node:stream'
import { MAX_FRAME_DATA } from '../protocol/limits/wire.ts'

/** Bytes that several streams may still forward together. */
export interface OutputBudget {
  left: number
}

export interface OutputLimits {
  /** Bytes that are forwarded; what comes after is counted and dropped. */
  readonly cap: number
  /** What this stream shares with others; null: nothing. */
  readonly budget: OutputBudget | null
  /** Bytes at which `onApproaching` is called. */
  readonly warn: number
}

export interface OutputHandlers {
  /** In order, at most MAX_FRAME_DATA each, at most `cap` together. May pause the pump. */
  onData(data: Uint8Array): void
  /** The total reached `warn`; once. */
  onApproaching(total: number): void
  /** A byte beyond the cap came and was dropped; once. */
  onCapHit(total: number): void
}

export interface OutputTotals {
  /** All bytes the child wrote. */
  readonly bytes_total: number
  readonly bytes_forwarded: number
  /** Of the forwarded bytes. */
  readonly sha256: Uint8Array
  /** Bytes were dropped; output of exactly the cap is whole. */
  readonly truncated: boolean
}

/**
 * Reads one output stream of a child: counts, caps and hashes. It pulls, so that a paused pump leaves
 * the bytes where they are and the child blocks once its pipe is full. Begins paused.
 */
export class OutputPump {
  readonly #source: Readable
  readonly #limits: OutputLimits
  readonly #handlers: OutputHandlers
  readonly #hash: Hash = createHash('sha256')
  #total = 0
  #forwarded = 0
  #paused = true
  /** `finish` was called: what still comes is not counted. */
  #finished = false
  #flushing = false
  #approached = false
  #capHit = false
  #ended = false
  /** Settles when the stream has ended, failed or been destroyed. */
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
      // A program behind a wrapper may be over before anybody is told that it began.
      if (this.#source.readableEnded || this.#source.destroyed) end()
    })
    this.#source.on('readable', () => this.#pullSoon())
  }

  get isEnded(): boolean {
    return this.#ended
  }

  /** All bytes taken so far, those beyond the cap included. */
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

  /** Gives the pipe up, whoever still holds its other end. */
  destroy(): void {
    this.#source.destroy()
  }

  /** The result; call it once, when no more will be read. */
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

  /** Small pieces that come in one turn of the event loop become one. */
  #pullSoon(): void {
    if (this.#source.readableLength >= MAX_FRAME_DATA) this.#pull(MAX_FRAME_DATA)
    if (this.#flushing) return
    this.#flushing = true
    setImmediate(() => {
      this.#flushing = false
      this.#pull(0)
    })
  }

  /** Takes what there is, in pieces of at least `least` bytes. */
  #pull(least: number): void {
    while (!this.#paused && this.#source.readableLength >= least) {
      // Asking for more than there is would wait for more; asking for nothing lets the stream refill or end.
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

/**
 * A child's standard input. A child that does not read, or has closed it, is no error: what it does
 * not take is dropped.
 */
export class StdinSink {
  readonly #target: Writable

  constructor(target: Writable) {
    this.#target = target
    // EPIPE and the like; every write that it fails is settled by its own callback.
    target.on('error', () => {})
  }

  /** Settles when the pipe has taken the bytes, or when they can only be dropped. */
  async write(data: Uint8Array): Promise<void> {
    if (!this.#target.writable) return
    await new Promise<void>((resolve) => {
      this.#target.write(data, () => resolve())
    })
  }

  /** End of file for the child, after what was written. */
  end(): void {
    if (this.#target.writable) this.#target.end()
  }

  destroy(): void {
    this.#target.destroy()
  }
}
