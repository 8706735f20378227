import type { Logger } from '../base/log.ts'
import { errorText } from '../base/errors.ts'

/** SIGHUP, which from the first moment on asks a daemon to read its files again, and never ends it. */
export class ReloadSignal {
  #asked = false
  #serving: { readonly log: Logger; readonly work: () => Promise<unknown> } | null = null
  #working = false

  constructor() {
    process.on('SIGHUP', () => {
      this.#asked = true
      void this.#work()
    })
  }

  /** Does the work for each signal: at once for those that came before, once for all that come while it is done. */
  serve(log: Logger, work: () => Promise<unknown>): void {
    this.#serving = { log, work }
    void this.#work()
  }

  async #work(): Promise<void> {
    if (this.#serving === null || this.#working) return
    const { log, work } = this.#serving
    this.#working = true
    while (this.#asked) {
      this.#asked = false
      await work().catch((error: unknown) => log.error({ err: errorText(error) }, 'nothing was read again'))
    }
    this.#working = false
  }
}
