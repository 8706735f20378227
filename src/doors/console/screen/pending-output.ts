const BLOCK_BYTES = 4_096

/** A byte queue in fixed blocks, so that many small pieces cost no more than one. */
export class ByteBlocks {
  #blocks: { readonly bytes: Buffer; begin: number; end: number }[] = []
  #size = 0

  get size(): number {
    return this.#size
  }

  push(data: Uint8Array): void {
    for (let at = 0; at < data.length;) {
      const last = this.#blocks.at(-1)
      if (last === undefined || last.end === BLOCK_BYTES) {
        this.#blocks.push({ bytes: Buffer.allocUnsafeSlow(BLOCK_BYTES), begin: 0, end: 0 })
        continue
      }
      const part = data.subarray(at, at + BLOCK_BYTES - last.end)
      last.bytes.set(part, last.end)
      last.end += part.length
      at += part.length
    }
    this.#size += data.length
  }

  /** The oldest bytes, at most `max` and no more than a block. */
  shift(max = BLOCK_BYTES): Uint8Array {
    const first = this.#blocks[0]
    if (first === undefined) return new Uint8Array()
    const data = first.bytes.subarray(first.begin, Math.min(first.end, first.begin + max))
    first.begin += data.length
    if (first.begin === first.end) this.#blocks.shift()
    this.#size -= data.length
    return data
  }
}

/** Bytes retained from the beginning and the end of one command until it is shown. */
const HEAD_BYTES = 256 * 1024
const TAIL_BYTES = 256 * 1024

/** Bounds the output that all commands of a screen retain. */
export class SharedByteBudget {
  readonly #max: number
  #bytes = 0

  constructor(init: { max: number }) {
    this.#max = init.max
  }

  /** Returns how many of the bytes are granted. */
  take(bytes: number): number {
    const granted = Math.min(bytes, this.#max - this.#bytes)
    this.#bytes += granted
    return granted
  }

  release(bytes: number): void {
    this.#bytes -= bytes
  }
}

/** The next bytes to show, or the number of bytes left out. */
export type NextOutput = { readonly data: Uint8Array } | { readonly left_out: number }

/** Output of one command that waits for the screen. If too much arrives, the middle is left out and counted. */
export class PendingOutput {
  readonly #shared: SharedByteBudget
  #head = new ByteBlocks()
  #tail = new ByteBlocks()
  #leftOut = 0

  constructor(shared: SharedByteBudget) {
    this.#shared = shared
  }

  /** Whether output arrives faster than it is shown. */
  get isBehind(): boolean {
    return this.#tail.size > 0 || this.#leftOut > 0
  }

  push(data: Uint8Array): void {
    const isInHead = this.#tail.size === 0 && this.#leftOut === 0
    const kept = isInHead ? this.#shared.take(Math.min(data.length, HEAD_BYTES - this.#head.size)) : 0
    this.#head.push(data.subarray(0, kept))
    const rest = data.subarray(kept)
    const last = rest.subarray(Math.max(0, rest.length - TAIL_BYTES))
    this.#leftOut += rest.length - last.length
    // Newer bytes replace the oldest of the tail.
    while (this.#tail.size > 0 && this.#tail.size + last.length > TAIL_BYTES) this.#forget()
    let granted = this.#shared.take(last.length)
    while (granted < last.length && this.#tail.size > 0) {
      this.#forget()
      granted += this.#shared.take(last.length - granted)
    }
    this.#leftOut += last.length - granted
    this.#tail.push(last.subarray(last.length - granted))
  }

  /** Releases output that will not be shown. */
  drop(): void {
    this.#shared.release(this.#head.size + this.#tail.size)
    this.#head = new ByteBlocks()
    this.#tail = new ByteBlocks()
    this.#leftOut = 0
  }

  #forget(): void {
    const { length } = this.#tail.shift()
    this.#leftOut += length
    this.#shared.release(length)
  }

  /** At most `max` bytes. Null means nothing is pending. */
  next(max: number): NextOutput | null {
    if (this.#head.size === 0) {
      if (this.#leftOut > 0) {
        const left_out = this.#leftOut
        this.#leftOut = 0
        return { left_out }
      }
      if (this.#tail.size === 0) return null
      this.#head = this.#tail
      this.#tail = new ByteBlocks()
    }
    const data = this.#head.shift(max)
    this.#shared.release(data.length)
    return { data }
  }
}
