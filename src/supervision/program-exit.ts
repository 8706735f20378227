import { ERROR_TABLE, errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { StopFailure } from '../base/startable.ts'

/** What asks a program to stop. */
export const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const

/** Exit status for configuration, flags or ACL that are wrong; service managers do not start such a program again. */
export const EXIT_BAD_CONFIG = 2
/** Exit status for anything else. */
export const EXIT_FAILURE = 1

/** Writes to standard error why the program ends, each line behind its name, and answers the exit status. */
export const reportFailure = (program: string, error: unknown): number => {
  const lines = errorText(error).split('\n')
  process.stderr.write(`${lines.map((line) => `${program}: ${line}`).join('\n')}\n`)
  return isAppError(error) && ERROR_TABLE[error.code].exit === EXIT_BAD_CONFIG ? EXIT_BAD_CONFIG : EXIT_FAILURE
}

export const logStopFailures = (log: Logger, failures: readonly StopFailure[]): void => {
  for (const { name, error } of failures) log.error({ part: name, err: errorText(error) }, 'a part did not stop well')
}
