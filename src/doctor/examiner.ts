import { stat } from 'node:fs/promises'
import { isMissing } from '../base/errors.ts'
import { readPasswd } from '../base/file-permissions.ts'
import { userNameOf } from '../supervision/network-user.ts'

/**
 * Who looks at a data directory. `owner`: its user, or whoever could make it; `became`: root, who goes on as its user;
 * `stranger`: another user, who may not see what is in it.
 */
export type Examiner = { readonly kind: 'owner' } | { readonly kind: 'became' | 'stranger'; readonly user: string }

/** Its types do not know it. */
const runtime = process as NodeJS.Process & { initgroups?(user: string, group: number): void }

/** Of nobody, on every system. */
const NO_GROUP = 65_534

/** False where we may not, as in a container that took the right from root. */
const become = (uid: number, gid: number): boolean => {
  const entry = readPasswd().find((user) => user.uid === uid)
  // Of a user without an entry nobody knows the group; the directory's may be root's, whose rights we mean to give up.
  const group = entry?.gid ?? (gid === 0 ? NO_GROUP : gid)
  try {
    if (entry === undefined) process.setgroups?.([group])
    else runtime.initgroups?.(entry.name, group)
    process.setgid?.(group)
    process.setuid?.(uid)
    return true
  } catch {
    return false
  }
}

/**
 * Finds out who looks, before anything is looked at. What root sees is not what the daemon's user sees: files that are as
 * they must be would belong to another, and nothing would be forbidden. So root becomes that user, for good.
 */
export const examinerOf = async (dataDir: string): Promise<Examiner> => {
  try {
    const { uid, gid } = await stat(dataDir)
    const us = process.geteuid?.() ?? uid
    if (uid === us) return { kind: 'owner' }
    return { kind: us === 0 && become(uid, gid) ? 'became' : 'stranger', user: userNameOf(uid) }
  } catch (error) {
    return isMissing(error) ? { kind: 'owner' } : { kind: 'stranger', user: 'USER' }
  }
}
