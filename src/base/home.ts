import { homedir } from 'node:os'

import { AppError, attempt } from './errors.ts'

/** Why a relative path cannot be used. */
export const NO_DIRECTORY = 'the working directory does not exist or cannot be read: give an absolute path'

/** This user's home directory: `HOME`, or what passwd says. Throws `bad_config` if neither is there. */
export const homeDirectory = (): string => {
  const home = attempt(homedir)
  if (home !== null) return home
  throw new AppError(
    'bad_config',
    'the home directory is unknown: HOME is not set and this user has no passwd entry\n  Try: name the data directory with --data-dir or X0X_DATA_DIR, or set HOME',
  )
}
