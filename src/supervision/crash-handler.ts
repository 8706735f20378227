import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'

/**
 * Resolves with the first uncaught error, for the process to stop: after one it would go on half working.
 * `unhandledRejections` says whether a rejected promise without a handler stops it too. The network's half only logs it: a
 * stranger's bytes may cause one in a library there, and that half decides nothing.
 */
export const firstCrash = (log: Logger, { unhandledRejections }: { readonly unhandledRejections: 'stop' | 'log' }): Promise<Error> =>
  new Promise((resolve) => {
    const stop = (reason: unknown): void => {
      const error = reason instanceof Error ? reason : new Error(errorText(reason))
      log.error({ err: error.message, stack: error.stack }, 'stopping after an uncaught error')
      resolve(error)
    }
    const note = (reason: unknown): void => log.error({ err: errorText(reason) }, 'a promise was rejected and had no handler')
    process.on('unhandledRejection', unhandledRejections === 'stop' ? stop : note)
    process.on('uncaughtException', stop)
  })
