import { EXIT_BAD_CONFIG, reportFailure } from '../../supervision/program-exit.ts'
import { EXIT_NO_HOST } from './tell.ts'

/** The exit status of what was done; of an error, which is told: that of a wrong command line, or that of a failure to reach the host. */
export const reported = async (act: () => Promise<number>): Promise<number> => {
  try {
    return await act()
  } catch (error) {
    return reportFailure('rexec', error) === EXIT_BAD_CONFIG ? EXIT_BAD_CONFIG : EXIT_NO_HOST
  }
}
