const BLOCK_BYTES = 4_096

/** Bytes in the order they came, copied into blocks, so that a thousand small pieces cost no more than one. */
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
