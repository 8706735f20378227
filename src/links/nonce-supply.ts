import { AppError } from '../base/errors.ts'
import type { LinkExecutor } from './link.ts'

/** Stream nonces asked of the executor at a time. */
export const NONCE_BATCH = 8

/** Stream nonces of one link, asked of the executor a few at a time so that a stream never waits for one. */
export class NonceSupply {
  readonly #port: LinkExecutor
  readonly #link: number
  #stock: Uint8Array[] = []
  #refill: Promise<void> | null = null
  #closed = false

  constructor(components: { port: LinkExecutor }, init: { link: number }) {
    this.#port = components.port
    this.#link = init.link
  }

  /** Throws what the executor answers when the peer already holds as many as it may (`MAX_NONCES_PER_PEER`). */
  async take(): Promise<Uint8Array> {
    while (!this.#closed) {
      const nonce = this.#stock.shift()
      if (this.#stock.length < NONCE_BATCH / 2) this.#refillNow()
      if (nonce !== undefined) return nonce
      await this.#refill
    }
    throw new AppError('peer_unreachable', 'the link is closed')
  }

  /** A stream that carried its nonce is over and the nonce was not used. */
  drop(nonce: Uint8Array): void {
    if (!this.#closed) this.#port.dropNonces(this.#link, [nonce])
  }

  /** The link is closed, and its nonces are void with it. */
  close(): void {
    this.#closed = true
    this.#stock = []
  }

  #refillNow(): void {
    if (this.#refill !== null) return
    this.#refill = this.#mint()
    // Minting ahead of need may fail without a caller that awaits it; a caller that does sees the failure.
    this.#refill.catch(() => undefined)
  }

  async #mint(): Promise<void> {
    try {
      this.#stock.push(...(await this.#port.mintNonces(this.#link, NONCE_BATCH)))
    } finally {
      this.#refill = null
    }
  }
}
