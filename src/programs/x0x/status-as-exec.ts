import { isAppError } from '../../base/errors.ts'
import type { CliContext } from './context.ts'
import { reportFailure } from './failure.ts'
import { EXIT_NOT_RUN } from './outcome.ts'

/**
 * Runs work whose result is the exit status of a command. Failures become 255, because any other status may be the command's. Throws
 * `bad_request`.
 */
export const statusAsExec = async (context: CliContext, work: () => Promise<number>): Promise<number> => {
  try {
    return await work()
  } catch (error) {
    if (isAppError(error, 'bad_request')) throw error
    await reportFailure(context, error)
    return EXIT_NOT_RUN
  }
}
