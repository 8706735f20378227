import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { ServiceManager } from './service-manager.ts'

interface Reloading {
  readonly log: Logger
  /** Is told when it begins and when it is over. */
  readonly manager: ServiceManager
  readonly work: () => Promise<unknown>
}

/** SIGHUP, which from the first moment on asks a daemon to read its files again, and never ends it. */
export class ReloadSignal {
  #asked = false
  #serving: Reloading | null = null
  #working = false

  constructor() {
    process.on('SIGHUP', () => {
      this.#asked = true
      void this.#work()
    })
  }

  /** Does the work for each signal: at once for those that came before, once for all that come while it is done. */
  serve(serving: Reloading): void {
    this.#serving = serving
    void this.#work()
  }

  async #work(): Promise<void> {
    if (this.#serving === null || this.#working) return
    const { log, manager, work } = this.#serving
    this.#working = true
    while (this.#asked) {
      this.#asked = false
      await manager.reload(work).catch((error: unknown) => log.error({ err: errorText(error) }, 'nothing was read again'))
    }
    this.#working = false
  }
}
