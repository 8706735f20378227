import { isAbsolute } from 'node:path'
import { errorText } from '../base/errors.ts'
import { type PasswdEntry, readPasswd } from '../base/file-permissions.ts'

/** A user that runs commands. Its supplementary groups are not used. */
export interface Account {
  readonly name: string
  readonly uid: number
  readonly gid: number
  readonly home: string
}

export type AccountLookup = { readonly kind: 'found'; readonly account: Account } | { readonly kind: 'refused'; readonly detail: string }

const refused = (detail: string): AccountLookup => ({ kind: 'refused', detail })

/**
 * Finds a user in passwd(5). Refuses root under any name and root's group, because such a run would have the daemon's own rights. Users
 * from other sources are not found.
 */
export const findAccount = (name: string, file = '/etc/passwd'): AccountLookup => {
  let entries: PasswdEntry[]
  try {
    entries = readPasswd(file)
  } catch (error) {
    return refused(errorText(error))
  }
  const entry = entries.find((other) => other.name === name)
  if (entry === undefined) return refused(`no user ${JSON.stringify(name)} in ${file}`)
  const { uid, gid, home } = entry
  if (uid === null || gid === null) return refused(`${file} gives ${JSON.stringify(name)} no valid uid and gid`)
  if (uid === 0) return refused(`${JSON.stringify(name)} is root (uid 0)`)
  if (gid === 0) return refused(`${JSON.stringify(name)} has root's group (gid 0), which may write much that is root's`)
  return { kind: 'found', account: Object.freeze({ name, uid, gid, home: isAbsolute(home) ? home : '/' }) }
}

/** Why this daemon cannot run commands as this user, or null if it can. */
export const accountProblem = (name: string): string | null => {
  if (process.geteuid?.() !== 0) return 'only a daemon that runs as root can run programs as another user'
  const lookup = findAccount(name)
  return lookup.kind === 'refused' ? lookup.detail : null
}
