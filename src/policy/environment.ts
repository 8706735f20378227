import { homedir } from 'node:os'
import { isAbsolute } from 'node:path'
import { AppError, attempt } from '../base/errors.ts'

/** Where programs are looked for, whatever the daemon's own PATH says. */
export const SCRUBBED_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/**
 * Variables that only change what is shown, or say who asks. What programs make of any other name cannot be known. `LANGUAGE` is none of
 * them: it may name a directory with messages, which programs use as format strings.
 */
const HARMLESS = /^(CI|TERM|COLORTERM|COLUMNS|LINES|TZ|LANG|LC_[A-Z]+|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|REXEC_WHOAMI)$/

/** False where a variable may decide what code a program loads or starts. */
export const isHarmless = (name: string): boolean => HARMLESS.test(name)

/** The whole environment of a child, built from nothing; `home` is the home directory of the daemon's user. */
export const scrubbedEnvironment = (home: string = homeOfUser()): Readonly<Record<string, string>> =>
  Object.freeze({ PATH: SCRUBBED_PATH, HOME: home, LANG: 'C.UTF-8', LC_ALL: 'C.UTF-8' })

/** The daemon's own home, where its data directory is by default: `x0x` in a child finds the daemon that runs it. Throws `bad_config`. */
const homeOfUser = (): string => {
  // A container may run us without HOME and under a number that has no entry.
  const home = attempt(homedir) ?? '/'
  if (!isAbsolute(home)) throw new AppError('bad_config', `HOME: ${JSON.stringify(home)} is not an absolute path`)
  return home
}
