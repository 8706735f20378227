import { homedir } from 'node:os'
import { resolve } from 'node:path'
import { AppError, attempt } from './errors.ts'

/** The reason why a relative path cannot be used. */
export const NO_DIRECTORY = 'the working directory does not exist or cannot be read: give an absolute path'

/** The absolute path of a file or directory that the user named. Throws `bad_config` if it is relative to a working directory that is gone. `what`: its name in messages. */
export const absolutePath = (what: string, path: string): string => {
  const absolute = attempt(() => resolve(path))
  if (absolute !== null) return absolute
  throw new AppError('bad_config', `${what} ${JSON.stringify(path)} is relative, and ${NO_DIRECTORY}`)
}

/** This user's home directory: `HOME`, or the entry in passwd. Throws `bad_config` if both are missing. */
export const homeDirectory = (): string => {
  const home = attempt(homedir)
  if (home !== null) return home
  throw new AppError(
    'bad_config',
    'the home directory is unknown: HOME is not set and this user has no passwd entry\n  Try: name the data directory with --data-dir or X0X_DATA_DIR, or set HOME',
  )
}
