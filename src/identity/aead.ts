import { AppError } from '../base/errors.ts'
import type { OpaqueSecret } from './primitives-interface.ts'
import { primitives } from './primitives.ts'

const NONCE_BYTES = 12
const COUNTER_AT = 4

/** Nonces that never repeat: four zero bytes and a 64-bit counter, as in RFC 8439 §2.8 with a fixed part of zero. */
export class NonceCounter {
  readonly #nonce = new Uint8Array(NONCE_BYTES)
  readonly #view = new DataView(this.#nonce.buffer)
  #next: number

  constructor(first = 0) {
    this.#next = first
  }

  /** The next nonce, valid until the following call. Throws when the counter is used up: it never wraps. */
  take(): Uint8Array {
    if (this.#next >= Number.MAX_SAFE_INTEGER) throw new AppError('internal', 'the nonces of a stream key are used up')
    this.#view.setBigUint64(COUNTER_AT, BigInt(this.#next++))
    return this.#nonce
  }
}

/** One direction of one stream, sending: frame after frame under one ChaCha20-Poly1305 key. */
export class SealingKey {
  readonly #key: OpaqueSecret<'aead'>
  readonly #nonces = new NonceCounter()

  /** `key`: 32 bytes that seal this direction of this stream and nothing else. */
  constructor(key: Uint8Array) {
    this.#key = primitives().aeadKey(key)
  }

  /** Ciphertext and 16-byte tag of the parts one after the other, in parts that the caller joins where it writes them. */
  seal(...plaintext: readonly Uint8Array[]): Uint8Array[] {
    return primitives().aeadSeal(this.#key, this.#nonces.take(), plaintext)
  }
}

/** One direction of one stream, receiving: in order, without holes, or not at all. */
export class OpeningKey {
  readonly #key: OpaqueSecret<'aead'>
  readonly #nonces = new NonceCounter()
  #broken = false

  constructor(key: Uint8Array) {
    this.#key = primitives().aeadKey(key)
  }

  /** Throws `malformed` for anything but the next frame exactly as sealed, and from then on for everything. */
  open(sealed: Uint8Array): Uint8Array {
    const plaintext = this.#broken ? null : primitives().aeadOpen(this.#key, this.#nonces.take(), sealed)
    if (plaintext !== null) return plaintext
    this.#broken = true
    throw new AppError('malformed', 'a sealed frame does not open')
  }
}
