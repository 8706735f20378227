import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Environment } from '../base/runtime.ts'
import { COMMAND_UMASK } from '../policy/mesh/confinement.ts'
import { findTool } from './launch-plan.ts'
import { openFilesOf, setCommandLimit, startingLimit } from './open-files.ts'

/** Open files of this process per run: pipes of the standard streams and of a terminal or namespace, and the directory. */
const FILES_PER_RUN = 4
/** Other open files: connections, journals and those of the runtime. */
const OTHER_FILES = 400

/** Files that this process creates for a client get the same modes as those of commands. */
export const setUmaskOfCommands = (): void => void process.umask(COMMAND_UMASK)

/**
 * Lets commands start with the soft limit of open files that this process was started with. `runs`: maximum number of concurrent runs. If
 * that limit suffices for all of them, this process takes it too, and commands inherit it. Otherwise each command is started through
 * `prlimit`.
 */
export const setOpenFilesOfCommands = async (env: Environment, runs: number, log: Pick<Logger, 'warn'>): Promise<void> => {
  const own = openFilesOf('self')
  const soft = own === null ? null : startingLimit(env, own)
  if (own === null || soft === null || soft >= own.soft) return
  const isInherited = OTHER_FILES + FILES_PER_RUN * runs <= soft
  const tool = findTool('prlimit')
  const problem = 'problem' in tool ? tool.problem : isInherited ? await lowerOwn(tool.path, soft) : null
  if (problem === null) setCommandLimit({ soft, isInherited })
  else log.warn({ problem, limit: own.soft }, 'commands start with a raised soft limit of open files')
}

/** Returns why the limit could not be lowered. */
const lowerOwn = async (prlimit: string, soft: number): Promise<string | null> => {
  try {
    await promisify(execFile)(prlimit, ['--pid', String(process.pid), `--nofile=${soft}:`], { env: {} })
    return null
  } catch (error) {
    return errorText(error)
  }
}
