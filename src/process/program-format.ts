import { accessSync, constants, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { attempt, errorText } from '../base/errors.ts'
import { programFormat } from '../base/executable-format.ts'
import { realPath } from '../base/path-resolution.ts'
import type { Account } from '../policy/account.ts'
import { MAX_INTERPRETERS } from '../policy/scripts.ts'

/** What a number of passwd(5) may do by the mode alone: without supplementary groups that is all there is. */
const mayExecute = (path: string, { uid, gid }: Account): boolean => {
  const { mode, uid: owner, gid: group } = statSync(path)
  const shift = uid === owner ? 6 : gid === group ? 3 : 0
  return ((mode >> shift) & 1) === 1
}

/** Throws where this user, or we ourselves, could not execute it. */
const checkAccess = (path: string, account: Account | null): void => {
  accessSync(path, constants.X_OK)
  if (account === null) return
  const real = realPath(path)
  for (let at = real; ; at = dirname(at)) {
    if (!mayExecute(at, account)) throw new Error(`${account.name} may not ${at === real ? 'execute' : 'enter'} ${at}`)
    if (at === dirname(at)) return
  }
}

/** Where on this host a path stands that means something else where the program runs. Throws the system's error. */
type PlaceOf = (path: string) => string

/** Of a script in a sandbox. */
export const notShown = (path: string, interpreter: string): string =>
  `${path} names ${interpreter}, which the sandbox does not show; tools.exec.sandbox.readable can name its directory`

/**
 * Why the kernel would not start this program, or null. Looked at before, because whoever executes it
 * by execvp(3) would hand what is no program to a shell, and a wrapper would report the rest as an exit
 * status of the program's own.
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
