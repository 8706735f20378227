import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'

/**
 * A mistake of ours must not leave a process that half works: resolves with the first, thrown or of a promise that nobody
 * waited for, for it to stop. `strays`: what such a promise does. Where libraries speak with strangers it is only told,
 * because a stranger might bring it about, and that process decides nothing.
 */
export const onMistake = (log: Logger, { strays }: { readonly strays: 'stop' | 'tell' }): Promise<Error> =>
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
