import { systemClock } from '../../base/clock.ts'
import { type AppError, isAppError } from '../../base/errors.ts'
import { write } from '../../cli/output.ts'
import { untilBack } from '../../exec/drain-wait.ts'
import type { CliContext } from './context.ts'
import { drainingText } from './run-output.ts'

type Answer<T> = { readonly value: T } | { readonly draining: AppError }

/** Whether the daemon certainly has not performed the request. */
const isGone = (error: unknown): boolean =>
  isAppError(error, 'shutting_down') || (isAppError(error, 'daemon_unreachable') && error.data['asked'] === false)

/**
 * Calls the daemon of this machine again while it drains, until its successor answers. Throws the last `draining` if none comes, and the
 * errors of `ask`.
 */
export const askUntilBack = async <T>(
  { stderr, quiet }: Pick<CliContext, 'stderr' | 'quiet'>,
  signal: AbortSignal,
  ask: () => Promise<T>,
): Promise<T> => {
  let hasWaited = false
  const attempt = async (): Promise<Answer<T>> => {
    try {
      return { value: await ask() }
    } catch (error) {
      if (!isAppError(error, 'draining')) throw error
      return { draining: error }
    }
  }
  const onWait = async (): Promise<void> => {
    if (!hasWaited && !quiet) await write(stderr, drainingText('x0xd on this machine'))
    hasWaited = true
  }
  const isDraining = (answer: Answer<T>): boolean => 'draining' in answer
  const answer = await untilBack({ clock: systemClock, signal }, { attempt, isDraining, neverArrived: () => false, isGone, onWait })
  if ('draining' in answer) throw answer.draining
  return answer.value
}
