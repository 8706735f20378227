import { type Hash, createHash } from 'node:crypto'
import type { Readable, Writable } from 'node:stream'
import { type BufferPool, giveBack } from '../base/buffers.ts'
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

export interface OutputPumpDeps {
  readonly source: Readable
  readonly handlers: OutputHandlers
  /** Source of buffers of MAX_FRAME_DATA bytes, to which the receiver may return them. Absent means that each frame has a new one. */
  readonly frames?: BufferPool
}

/**
 * Reads one output stream of a child: counts, limits and hashes. While it is paused, the bytes stay in the pipe and the child blocks when
 * that is full. It starts paused.
 */
export class OutputPump {
  readonly #source: Readable
  readonly #limits: OutputLimits
  readonly #handlers: OutputHandlers
  readonly #frames: BufferPool | null
  /** Chunks of the source, to be joined to frames. `#waiting` is their size without the first `#taken` bytes, which were forwarded. */
  readonly #chunks: Buffer[] = []
  #waiting = 0
  #taken = 0
  readonly #hash: Hash = createHash('sha256')
  #total = 0
  #forwarded = 0
  #paused = true
  /** `finish` was called: later bytes are not counted. */
  #finished = false
  #flushing = false
  /** True if a whole frame was forwarded since the last turn. Then more probably follows. */
  #busy = false
  /** True after the end of the source. */
  #over = false
  #approached = false
  #capHit = false
  #ended = false
  readonly #ending = Promise.withResolvers<void>()
  /** Resolves when the stream has ended, failed or been destroyed, and its bytes were forwarded. */
  readonly ended: Promise<void>

  constructor(deps: OutputPumpDeps, limits: OutputLimits) {
    this.#source = deps.source
    this.#handlers = deps.handlers
    this.#frames = deps.frames ?? null
    this.#limits = limits
    this.ended = this.#ending.promise
    const over = (): void => {
      this.#over = true
      this.#pull()
      this.#flush()
    }
    this.#source.once('end', over).once('close', over).once('error', over)
    // A program behind a wrapper may end before its start is reported.
    if (this.#source.readableEnded || this.#source.destroyed) over()
    this.#source.on('readable', () => this.#pull())
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
    this.#pull()
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

  /** Reads the available bytes and forwards whole frames. The rest waits for the end of the turn. */
  #pull(): void {
    this.#forwardFrames()
    while (!this.#paused) {
      // A read without a size also lets the stream refill or end.
      const chunk: Buffer | null = this.#source.read()
      if (chunk === null) break
      this.#chunks.push(chunk)
      this.#waiting += chunk.length
      this.#forwardFrames()
    }
    if (this.#flushing || this.#paused || (this.#waiting === 0 && !this.#over)) return
    this.#flushing = true
    setImmediate(() => this.#turn())
  }

  #forwardFrames(): void {
    while (!this.#paused && this.#waiting >= MAX_FRAME_DATA) {
      this.#busy = true
      this.#forward(this.#join(this.#frames?.take() ?? Buffer.allocUnsafeSlow(MAX_FRAME_DATA)))
    }
  }

  /** Forwards an incomplete frame only after a turn without a whole one. Otherwise every second frame of a fast program would be short. */
  #turn(): void {
    this.#flushing = false
    if (!this.#busy) return this.#flush()
    this.#busy = false
    this.#pull()
  }

  #flush(): void {
    this.#forwardFrames()
    if (this.#waiting > 0 && !this.#paused) this.#forward(this.#rest())
    if (!this.#over || this.#waiting > 0) return
    this.#ended = true
    this.#ending.resolve()
  }

  /** Takes all waiting bytes, which are less than a frame. */
  #rest(): Uint8Array {
    const [first, second] = this.#chunks
    if (second !== undefined || this.#taken > 0) return this.#join(new Uint8Array(this.#waiting))
    this.#chunks.length = 0
    this.#waiting = 0
    return first!
  }

  /** Fills `target` with waiting bytes. Call it only if there are enough. */
  #join<Target extends Uint8Array>(target: Target): Target {
    for (let at = 0; at < target.length;) {
      const chunk = this.#chunks[0]!
      const part = chunk.subarray(this.#taken, this.#taken + target.length - at)
      target.set(part, at)
      at += part.length
      this.#taken += part.length
      if (this.#taken < chunk.length) break
      this.#taken = 0
      this.#chunks.shift()
      giveBack(chunk)
    }
    this.#waiting -= target.length
    return target
  }

  #forward(bytes: Uint8Array): void {
    const { cap, warn, budget } = this.#limits
    this.#total += bytes.length
    const length = Math.min(bytes.length, cap - this.#forwarded, budget?.left ?? Number.MAX_SAFE_INTEGER)
    if (budget !== null) budget.left -= length
    if (length > 0) {
      const data = length === bytes.length ? bytes : bytes.subarray(0, length)
      this.#forwarded += length
      this.#hash.update(data)
      this.#handlers.onData(data)
    } else this.#frames?.give(bytes)
    if (!this.#approached && this.#total >= warn) {
      this.#approached = true
      this.#handlers.onApproaching(this.#total)
    }
    if (!this.#capHit && length < bytes.length) {
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
