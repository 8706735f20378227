import { stat } from 'node:fs/promises'
import { isMissing } from '../base/errors.ts'
import { readPasswd } from '../base/file-permissions.ts'
import { userNameOf } from '../supervision/network-user.ts'

/**
 * The user who examines a data directory. `owner`: its user, or the one who could make it. `became`: root, continuing as its user.
 * `stranger`: another user, who cannot read it.
 */
export type Examiner = { readonly kind: 'owner' } | { readonly kind: 'became' | 'stranger'; readonly user: string }

/** @types/node lacks these functions. */
const runtime = process as NodeJS.Process & { initgroups?(user: string, group: number): void }

/** The group of nobody, on every system. */
const NO_GROUP = 65_534

/** False without the right to change user, as in some containers. */
const become = (uid: number, gid: number): boolean => {
  const entry = readPasswd().find((user) => user.uid === uid)
  // The group of a user without an entry is unknown. The directory's group may be root's, whose rights must be dropped.
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
 * Finds out who examines, before anything is read. Root would see correct files as another user's, and nothing as forbidden. So root
 * becomes the user of the directory for good.
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
