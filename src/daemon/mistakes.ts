import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'

/** A mistake of ours must not leave a process that half works: resolves with the first, for it to stop. A stray rejection is only told. */
export const onMistake = (log: Logger): Promise<Error> =>
  new Promise((resolve) => {
    process.on('unhandledRejection', (reason) => log.error({ err: errorText(reason) }, 'a promise failed and nobody had waited for it'))
    process.once('uncaughtException', (error) => {
      log.error({ err: error.message, stack: error.stack }, 'stopping after a mistake')
      resolve(error)
    })
  })
