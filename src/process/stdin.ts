import type { Writable } from 'node:stream'

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
