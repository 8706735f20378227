import { accessSync, constants, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { attempt, errorText } from '../base/errors.ts'
import { programFormat } from '../base/executable-format.ts'
import { realPath } from '../base/path-resolution.ts'
import type { Account } from '../policy/account.ts'
import { MAX_INTERPRETERS } from '../policy/scripts.ts'

/** Whether the mode lets a user of passwd(5) execute a file. The user has no supplementary groups. */
const mayExecute = (path: string, { uid, gid }: Account): boolean => {
  const { mode, uid: owner, gid: group } = statSync(path)
  const shift = uid === owner ? 6 : gid === group ? 3 : 0
  return ((mode >> shift) & 1) === 1
}

/** Throws if this user or our own cannot execute the file. */
const checkAccess = (path: string, account: Account | null): void => {
  accessSync(path, constants.X_OK)
  if (account === null) return
  const real = realPath(path)
  for (let at = real; ; at = dirname(at)) {
    if (!mayExecute(at, account)) throw new Error(`${account.name} may not ${at === real ? 'execute' : 'enter'} ${at}`)
    if (at === dirname(at)) return
  }
}

/** Maps a path of the running program to a path of this machine. Throws errors of the system. */
type PlaceOf = (path: string) => string

/** The error for a script in a sandbox. */
export const notShown = (path: string, interpreter: string): string =>
  `${path} names ${interpreter}, which the sandbox does not show; tools.exec.sandbox.readable can name its directory`

/**
 * Returns why the kernel would refuse this program, or null. Checked before the start, because execvp(3) would hand an unknown format to a
 * shell, and a wrapper would report other failures as exit statuses of the program.
 */
export const launchObstacle = (path: string, account: Account | null, placeOf: PlaceOf = (one) => one, depth = 0): string | null => {
  try {
    const place = placeOf(path)
    checkAccess(place, account)
    const format = programFormat(place)
    if (format.kind === 'foreign') return `${path} is neither an ELF file of this machine nor a script that names its interpreter`
    if (format.kind === 'direct') return null
    if (depth >= MAX_INTERPRETERS) return `${path} names too many interpreters`
    if (attempt(() => placeOf(format.interpreter)) === null) return notShown(path, format.interpreter)
    return launchObstacle(format.interpreter, account, placeOf, depth + 1)
  } catch (error) {
    return errorText(error)
  }
}
