import { within } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { FileAnswer, FileCall } from '../../executor-api/local-executor.ts'
import type { SessionGrant } from '../../protocol/rexd-answers.ts'
import { fileRefusal } from '../tools/file-refusal.ts'
import type { ToolCall, ToolContext } from './tool.ts'

/** How long a call that is given up may take to say whether it has begun to change something. */
const GIVEN_UP_MS = 1_000

/** A call of the executor without the session that it is made in. */
type SessionlessCall = FileCall extends infer C ? (C extends FileCall ? Omit<C, 'session'> : never) : never

/**
 * Asks the executor about files of this host, in the session of this caller. Throws what refuses it, with the argument and a
 * remedy; `timeout` when the call is cancelled, or has no answer by the time of one: it is given up then, and changes nothing
 * unless it has begun to.
 */
export const callFiles = async (
  { sessions, executor, clock, answerWithinMs }: ToolContext,
  { signal }: ToolCall,
  callOf: (limits: SessionGrant['limits']) => SessionlessCall,
): Promise<FileAnswer> => {
  const given = new AbortController()
  const giveUp = (why: string): void => given.abort(new AppError('timeout', `path: ${why}, and nothing was changed`))
  const cancel = (): void => giveUp('the call was cancelled')
  if (signal.aborted) cancel()
  signal.addEventListener('abort', cancel, { once: true })
  const work = sessions.use(null, async ({ id, grant }) => executor.file({ ...callOf(grant.limits), session: id }, given.signal))
  try {
    const answer = await within(clock, answerWithinMs, work)
    if (answer !== null) return answer
    giveUp(`not done in ${answerWithinMs} ms`)
    const late = await within(clock, GIVEN_UP_MS, work)
    if (late !== null) return late
  } catch (error) {
    throw fileRefusal(error)
  }
  work.catch(() => undefined)
  const begun = 'a change that was begun may be made yet, or undone; stat_file and read_file show what is there'
  throw new AppError('timeout', `path: the file system has not answered in ${answerWithinMs} ms; ${begun}`)
}
