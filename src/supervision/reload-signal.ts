import { systemClock, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { RELOAD_SETTLE_MS } from '../protocol/local-limits.ts'
import type { ServiceManager } from './service-manager.ts'

interface Reloading {
  readonly log: Logger
  /** Is told when it begins and when it is over. */
  readonly manager: ServiceManager
  readonly work: () => Promise<unknown>
}

/** SIGHUP, which from the first moment on asks a daemon to read its files again, and never ends it. */
export class ReloadSignal {
  readonly #clock: Clock
  #asked = false
  #serving: Reloading | null = null
  #working = false

  constructor({ clock }: { clock: Clock } = { clock: systemClock }) {
    this.#clock = clock
    process.on('SIGHUP', () => {
      this.#asked = true
      void this.#work()
    })
  }

  /** Does the work for each signal, for those that came before too: once for all that come together, and once for all that come while it is done. */
  serve(serving: Reloading): void {
    this.#serving = serving
    void this.#work()
  }

  async #work(): Promise<void> {
    if (this.#serving === null || this.#working) return
    const { log, manager, work } = this.#serving
    this.#working = true
    while (this.#asked)
      await manager
        .reload(async () => {
          await this.#settle()
          this.#asked = false
          await work()
        })
        .catch((error: unknown) => log.error({ err: errorText(error) }, 'nothing was read again'))
    this.#working = false
  }

  async #settle(): Promise<void> {
    return new Promise((resolve) => void this.#clock.setTimeout(resolve, RELOAD_SETTLE_MS))
  }
}
