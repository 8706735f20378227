import { within } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { FileAnswer, FileCall } from '../../executor/port/local-executor.ts'
import type { SessionGrant } from '../../protocol/rexd-answers.ts'
import { fileRefusal } from '../tools/file-refusal.ts'
import type { ToolContext } from './tool.ts'

/** A call of the executor without the session that it is made in. */
type SessionlessCall = FileCall extends infer C ? (C extends FileCall ? Omit<C, 'session'> : never) : never

/**
 * Asks the executor about files of this host, in the session of this caller. `argument` names what its path came from. Throws what
 * refuses it, with the argument and a remedy; `timeout` where the file system has not answered by the time of an answer.
 */
export const callFiles = async (
  { sessions, executor, clock, answerWithinMs }: ToolContext,
  argument: string,
  callOf: (limits: SessionGrant['limits']) => SessionlessCall,
): Promise<FileAnswer> => {
  const work = sessions.use(null, async ({ id, grant }) => executor.file({ ...callOf(grant.limits), session: id }))
  let answer: FileAnswer | null = null
  const answered = work.then((one) => (answer = one))
  try {
    await within(clock, answerWithinMs, answered)
  } catch (error) {
    throw fileRefusal(error, argument)
  }
  if (answer !== null) return answer
  answered.catch(() => undefined)
  throw new AppError(
    'timeout',
    `${argument}: the file system has not answered in ${answerWithinMs} ms; a change may have been made, or may yet be`,
  )
}
