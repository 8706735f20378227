import { constants } from 'node:os'
import { ERROR_TABLE, errorText, isAppError, textWithNext } from '../base/errors.ts'
import { NONE_GIVEN, pasteable } from '../base/hint.ts'
import type { Logger } from '../base/log.ts'
import type { StopFailure } from '../base/startable.ts'

/** Signals that stop a program. */
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const

/** Signals that stop a daemon. SIGHUP makes it reload its files. */
export const DAEMON_STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const

/** Calls `listener` for each signal until the returned function is called. */
export const onStopSignal = (
  listener: (signal: NodeJS.Signals) => void,
  signals: readonly NodeJS.Signals[] = STOP_SIGNALS,
): (() => void) => {
  for (const signal of signals) process.on(signal, listener)
  return () => {
    for (const signal of signals) process.off(signal, listener)
  }
}

/** The exit status that a shell reports for a program that a signal ended. */
export const exitOfSignal = (signal: NodeJS.Signals): number => 128 + constants.signals[signal]

/** Exit status for a wrong configuration, flags or ACL. Service managers do not restart such a program. */
export const EXIT_BAD_CONFIG = 2
/** Exit status for any other failure. */
export const EXIT_FAILURE = 1

/** `failure` is the status for anything but a wrong command line or configuration. */
export const programExitStatus = (error: unknown, failure = EXIT_FAILURE): number =>
  isAppError(error) && ERROR_TABLE[error.code].exit === EXIT_BAD_CONFIG ? EXIT_BAD_CONFIG : failure

/**
 * Writes an error to standard error, each line after the program's name, and returns the exit status. `failure` is the status for anything
 * but a wrong command line or configuration.
 */
export const printFailure = (program: string, error: unknown, failure = EXIT_FAILURE, given = NONE_GIVEN): number => {
  const lines = textWithNext(error).split('\n')
  process.stderr.write(`${lines.map((line) => `${program}: ${pasteable(line, given)}`).join('\n')}\n`)
  return programExitStatus(error, failure)
}

export const logStopFailures = (log: Logger, failures: readonly StopFailure[]): void => {
  for (const { name, error } of failures) log.error({ part: name, err: errorText(error) }, 'a part did not stop cleanly')
}

/**
 * Resolves with the first uncaught error. The process must then stop, because its state is unknown. `unhandledRejections` says whether a
 * rejected promise without a handler counts. The network process only logs it, because bytes of an unlisted peer may cause one in a
 * library, and that process makes no decisions.
 */
export const firstCrash = (log: Logger, { unhandledRejections }: { readonly unhandledRejections: 'stop' | 'log' }): Promise<Error> =>
  new Promise((resolve) => {
    const stop = (reason: unknown): void => {
      const error = reason instanceof Error ? reason : new Error(errorText(reason))
      log.error({ err: error.message, stack: error.stack }, 'stopping after an uncaught error')
      resolve(error)
    }
    const note = (reason: unknown): void => log.error({ err: errorText(reason) }, 'a rejected promise had no handler')
    process.on('unhandledRejection', unhandledRejections === 'stop' ? stop : note)
    // A daemon outlives its terminal, its log and their readers, so lost output is not an error.
    for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
    process.on('uncaughtException', stop)
  })

/**
 * Aborts at the first of `signals`, at an uncaught error, or, with `untilEof`, at the end of standard input. `status` is the exit status,
 * or null if the program was not stopped.
 */
export const stopConditions = (
  log: Logger,
  { untilEof, signals = STOP_SIGNALS }: { readonly untilEof: boolean; readonly signals?: readonly NodeJS.Signals[] },
): { readonly signal: AbortSignal; status(): number | null } => {
  const controller = new AbortController()
  let status: number | null = null
  const end = (as: number): void => {
    status ??= as
    controller.abort()
  }
  onStopSignal((signal) => end(exitOfSignal(signal)), signals)
  void firstCrash(log, { unhandledRejections: 'stop' }).then(() => end(EXIT_FAILURE))
  if (untilEof) {
    const over = (): void => controller.abort()
    process.stdin.on('end', over).on('close', over).on('error', over).resume()
  }
  return { signal: controller.signal, status: () => status }
}
