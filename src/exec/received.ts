import { createHash, type Hash } from 'node:crypto'

export type OutputName = 'stdout' | 'stderr'

/** One output stream as it arrives: its numbers without holes, its bytes counted and hashed. */
export class ReceivedStream {
  readonly #hash: Hash = createHash('sha256')
  #digest: Uint8Array | null = null
  #nextSeq = 0
  #bytes = 0

  /** The number of the next frame. */
  get next(): number {
    return this.#nextSeq
  }

  get bytes(): number {
    return this.#bytes
  }

  /** SHA-256 of what arrived; nothing may be added afterwards. */
  get sha256(): Uint8Array {
    this.#digest ??= this.#hash.digest()
    return this.#digest
  }

  /** False when `seq` is not the next one: bytes are missing or repeated. */
  add(seq: number, data: Uint8Array): boolean {
    if (seq !== this.#nextSeq || this.#digest !== null) return false
    this.#nextSeq += 1
    this.#bytes += data.length
    this.#hash.update(data)
    return true
  }
}

export type Received = Readonly<Record<OutputName, ReceivedStream>>
