import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

import type { Environment } from '../base/environment.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { COMMAND_UMASK } from '../policy/mesh/confinement.ts'
import { findTool } from './launch-plan.ts'
import { openFilesOf, startingLimit } from './open-files.ts'

/**
 * Sets what commands inherit from this process: the umask, and the soft limit of open files that it was started with. The limit
 * then holds for this process as well: to set it for each command alone would cost each one more program.
 */
export const setCommandSettings = async (env: Environment, log: Pick<Logger, 'warn'>): Promise<void> => {
  process.umask(COMMAND_UMASK)
  const own = openFilesOf('self')
  const soft = own === null ? null : startingLimit(env, own)
  if (own === null || soft === null || soft >= own.soft) return
  const tool = findTool('prlimit')
  const problem = 'problem' in tool ? tool.problem : await lowerOwn(tool.path, soft)
  if (problem !== null) log.warn({ problem, limit: own.soft }, 'commands start with a raised soft limit of open files')
}

/** Answers why it could not be lowered. */
const lowerOwn = async (prlimit: string, soft: number): Promise<string | null> => {
  try {
    await promisify(execFile)(prlimit, ['--pid', String(process.pid), `--nofile=${soft}:`], { env: {} })
    return null
  } catch (error) {
    return errorText(error)
  }
}
