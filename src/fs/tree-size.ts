import { lstat } from 'node:fs/promises'
import { AppError } from '../base/errors.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import type { Root } from '../policy/local/file-permit.ts'
import { MAX_COUNTED_FILES } from '../protocol/limits/files.ts'
import { holdRoot } from './open-file.ts'
import { systemError } from './refusals.ts'
import { entriesBelow } from './tree.ts'

/** Bytes of all regular files below a root. Links are not followed. Throws `resource_limit` if there are too many files. */
export const bytesBelow = async (root: Root, share: TimeSlice): Promise<number> => {
  using handle = await holdRoot(root)
  if (handle === null) throw systemError('ENOENT')
  let [bytes, files] = [0, 0]
  const tooMany = (): never => {
    throw new AppError('resource_limit', `${root.path}: too many files or directories to count for max_total_bytes`)
  }
  for await (const { directory, name, type } of entriesBelow(handle, { carried: true, enter: () => true, onTooDeep: tooMany, share })) {
    if (type !== 'file') continue
    if (++files > MAX_COUNTED_FILES) tooMany()
    bytes += Number((await lstat(directory.at(name), { bigint: true }).catch(() => null))?.size ?? 0n)
  }
  return bytes
}
