import { AppError, errorText, isAppError } from './errors.ts'

/** A component that outlives a call. `stop` must be safe after a failed start, and must not throw because there is nothing to stop. */
export interface Startable {
  start?(signal: AbortSignal): Promise<void> | void
  stop?(): Promise<void> | void
}

export interface StartableEntry {
  readonly name: string
  readonly startable: Startable
  /** Milliseconds for the start and, separately, for the stop. */
  readonly deadlineMs?: number
}

export interface StopFailure {
  readonly name: string
  readonly error: unknown
}

/** Enough to bind a port or read a key on a loaded machine. A component that needs more sets its own deadline. */
const DEFAULT_DEADLINE_MS = 10_000

const withDeadline = async (work: Promise<void>, ms: number, what: string): Promise<void> => {
  let timer: NodeJS.Timeout | undefined
  const expired = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new AppError('timeout', `${what} took longer than ${ms} ms`)), ms)
  })
  try {
    await Promise.race([work, expired])
  } finally {
    clearTimeout(timer)
  }
}

const startOne = async ({ name, startable, deadlineMs = DEFAULT_DEADLINE_MS }: StartableEntry): Promise<void> => {
  const controller = new AbortController()
  try {
    await withDeadline((async () => startable.start?.(controller.signal))(), deadlineMs, `starting ${name}`)
  } catch (error) {
    controller.abort(error)
    throw error
  }
}

/**
 * Starts each component in order. If one fails, it stops that one and all started ones in reverse order and throws the error. The message
 * and `data.stop_failures` name those that could not be stopped.
 */
export const startAll = async (entries: readonly StartableEntry[]): Promise<void> => {
  const begun: StartableEntry[] = []
  for (const entry of entries) {
    begun.push(entry)
    try {
      await startOne(entry)
    } catch (error) {
      const failures = await stopAll(begun)
      if (failures.length === 0) throw error
      const list = failures.map((failure) => `${failure.name}: ${errorText(failure.error)}`)
      throw new AppError(isAppError(error) ? error.code : 'internal', `${errorText(error)} (not stopped: ${list.join('; ')})`, {
        cause: error,
        data: { ...(isAppError(error) ? error.data : {}), stop_failures: list },
      })
    }
  }
}

/** Stops each component in reverse order, within its deadline. Never throws. It returns the failures. */
export const stopAll = async (entries: readonly StartableEntry[]): Promise<readonly StopFailure[]> => {
  const failures: StopFailure[] = []
  for (const { name, startable, deadlineMs = DEFAULT_DEADLINE_MS } of entries.toReversed()) {
    try {
      await withDeadline((async () => startable.stop?.())(), deadlineMs, `stopping ${name}`)
    } catch (error) {
      failures.push({ name, error })
    }
  }
  return failures
}
