import { AppError } from '../base/errors.ts'
import type { LinkExecutor } from './link.ts'

/** Number of stream nonces requested from the executor at a time. */
export const NONCE_BATCH = 8

/** Stream nonces of one link, requested from the executor in advance, so that a stream need not wait for one. */
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

  /** Takes one nonce. Throws the executor's error if the peer already holds `MAX_NONCES_PER_PEER`. */
  async take(): Promise<Uint8Array> {
    while (!this.#closed) {
      const nonce = this.#stock.shift()
      if (this.#stock.length < NONCE_BATCH / 2) this.#refillNow()
      if (nonce !== undefined) return nonce
      await this.#refill
    }
    throw new AppError('peer_unreachable', 'the link is closed')
  }

  /** Returns an unused nonce after its stream has ended. */
  drop(nonce: Uint8Array): void {
    if (!this.#closed) this.#port.dropNonces(this.#link, [nonce])
  }

  /** Ends the supply with its link, which makes all its nonces void. */
  close(): void {
    this.#closed = true
    this.#stock = []
  }

  #refillNow(): void {
    if (this.#refill !== null) return
    this.#refill = this.#mint()
    // A failure to mint in advance is reported to the next `take`, which awaits it.
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
