import { userInfo } from 'node:os'

/** Where programs are looked for, whatever the daemon's own PATH says. */
export const SCRUBBED_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** The whole environment of a child, built from nothing; `home` is the home directory of the daemon's user. */
export const scrubbedEnvironment = (home: string = homeOfUser()): Readonly<Record<string, string>> =>
  Object.freeze({ PATH: SCRUBBED_PATH, HOME: home, LANG: 'C.UTF-8', LC_ALL: 'C.UTF-8' })

/** From the user database, never from a variable that whoever started the daemon could set. */
const homeOfUser = (): string => {
  try {
    return userInfo().homedir || '/'
  } catch {
    // A container may run us under a number that has no entry.
    return '/'
  }
}
