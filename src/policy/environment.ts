import { homedir } from 'node:os'
import { isAbsolute } from 'node:path'
import { AppError, attempt } from '../base/errors.ts'

/** Directories of programs, independent of the daemon's PATH. */
export const SCRUBBED_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/**
 * Variables that change only the display or name the client. The effect of other names is unknown. `LANGUAGE` is excluded because it can
 * name a directory of messages, which programs use as format strings.
 */
const HARMLESS = /^(CI|TERM|COLORTERM|COLUMNS|LINES|TZ|LANG|LC_[A-Z]+|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|REXEC_WHOAMI)$/

/** False if a variable may decide which code a program loads or starts. */
export const isHarmless = (name: string): boolean => HARMLESS.test(name)

/** The complete environment of a child process. `home`: the home of the daemon's user. */
export const scrubbedEnvironment = (home: string = homeOfUser()): Readonly<Record<string, string>> =>
  Object.freeze({ PATH: SCRUBBED_PATH, HOME: home, LANG: 'C.UTF-8', LC_ALL: 'C.UTF-8' })

/** Home of the daemon's user, so that `x0x` in a child process finds this daemon. Throws `bad_config`. */
const homeOfUser = (): string => {
  // A container may have no HOME and a user ID without a passwd entry.
  const home = attempt(homedir) ?? '/'
  if (!isAbsolute(home)) throw new AppError('bad_config', `HOME: ${JSON.stringify(home)} is not an absolute path`)
  return home
}
