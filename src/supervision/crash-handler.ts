import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'

/**
 * An uncaught error must not leave a process that half works: resolves with the first one, for the process to stop.
 * `strays` says whether a rejection that nobody handled stops it too, or is only logged: a stranger might bring one about in
 * the libraries of the network's half, and that process decides nothing.
 */
export const firstCrash = (log: Logger, { strays }: { readonly strays: 'stop' | 'tell' }): Promise<Error> =>
  new Promise((resolve) => {
    const stop = (reason: unknown): void => {
      const error = reason instanceof Error ? reason : new Error(errorText(reason))
      log.error({ err: error.message, stack: error.stack }, 'stopping after a mistake')
      resolve(error)
    }
    const tell = (reason: unknown): void => log.error({ err: errorText(reason) }, 'a promise failed and nobody had waited for it')
    process.on('unhandledRejection', strays === 'stop' ? stop : tell)
    process.on('uncaughtException', stop)
  })
