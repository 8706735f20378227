import { readlink } from 'node:fs/promises'

import { isAppError } from '../base/errors.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import { beneath } from './beneath.ts'
import { mtimeOf } from './mtime.ts'
import { namingPath, requirePermit } from './refusals.ts'
import { entryTypeOf, type EntryType } from './tree.ts'

/** Where `exists` is false, everything else is null. */
export interface PathStatus {
  readonly exists: boolean
  readonly type: EntryType | null
  /** Bytes as the system counts them, also of what is no file. */
  readonly size: number | null
  readonly mtime: string | null
  readonly mtime_ms: number | null
  /** Permission bits as octal text: `0644`. */
  readonly mode: string | null
  readonly uid: number | null
  readonly gid: number | null
  /** What a link says, wherever that leads; null for everything else. */
  readonly symlink_target: string | null
}

const MISSING: PathStatus = Object.freeze({
  exists: false,
  type: null,
  size: null,
  mtime: null,
  mtime_ms: null,
  mode: null,
  uid: null,
  gid: null,
  symlink_target: null,
})

/** What stands at a path: of a link at its end the link itself. A missing directory on the way is no error. */
export const statPath = async (permit: FilePermit): Promise<PathStatus> => {
  requirePermit(permit, 'read')
  try {
    return await namingPath(permit, () => look(permit))
  } catch (error) {
    if (isAppError(error, 'file_not_found')) return MISSING
    throw error
  }
}

const look = async (permit: FilePermit): Promise<PathStatus> => {
  using place = await beneath(permit, { followLast: false })
  const { directory, name, found } = place
  if (found === null) return MISSING
  const { info } = found
  return {
    exists: true,
    type: entryTypeOf(info),
    size: Number(info.size),
    ...mtimeOf(info),
    mode: (info.mode & 0o7777n).toString(8).padStart(4, '0'),
    uid: Number(info.uid),
    gid: Number(info.gid),
    symlink_target: info.isSymbolicLink() && directory !== null ? await readlink(directory.at(name)) : null,
  }
}
