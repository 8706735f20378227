import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { ServiceManager } from './service-manager.ts'

interface Reloading {
  readonly log: Logger
  /** Notified when a reload begins and ends. */
  readonly manager: ServiceManager
  readonly work: () => Promise<unknown>
}

/** Handles SIGHUP: it makes a daemon read its files again and, from the first moment on, never ends it. */
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

  /** Calls the reload for each signal: at once for earlier ones, and once for all that arrive during a reload. */
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
      await manager.reload(work).catch((error: unknown) => log.error({ err: errorText(error) }, 'nothing was reloaded'))
    }
    this.#working = false
  }
}
