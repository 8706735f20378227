import { dirname } from 'node:path'
import type { CanWrite } from '../approval/pinned-files.ts'
import { sandboxGrant, sandboxPath } from '../sandbox/sandbox-grant.ts'
import { DEFAULT_SANDBOX } from '../sandbox/sandbox-settings.ts'
import type { LocalPolicy } from './policy.ts'

/**
 * What a requester can write: with `fs.write` all that is below its roots, and without it what is in a directory of them in which a
 * sandbox may run. No approver is asked for either.
 */
export const writesOf = ({ roots, granted }: Pick<LocalPolicy, 'roots' | 'granted'>): CanWrite => {
  const isBelow = (path: string): boolean => roots.some(({ real }) => path.startsWith(real === '/' ? real : `${real}/`))
  if (granted.has('fs.write')) return isBelow
  const place = sandboxPath()
  const holds = (directory: string): boolean => sandboxGrant(DEFAULT_SANDBOX, directory, place).kind === 'grant'
  return (path) => {
    for (let at = path; isBelow(at) && at !== '/'; at = dirname(at)) if (holds(dirname(at))) return true
    return false
  }
}
