import { readlink } from 'node:fs/promises'
import { isAppError } from '../base/errors.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import type { Result } from '../protocol/rexd-answers.ts'
import { beneath } from './beneath.ts'
import { mtimeOf } from './mtime.ts'
import { namingPath, requirePermit } from './refusals.ts'
import { entryTypeOf } from './tree.ts'

type PathStatus = Omit<Result<'fs.stat'>, 'path'>

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
