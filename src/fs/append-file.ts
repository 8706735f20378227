import { isAppError } from '../base/errors.ts'
import type { FileChange, FileCommand } from '../protocol/file-command.ts'
import { MAX_APPEND_BYTES } from '../protocol/limits/files.ts'
import { ByteBuilder } from '../protocol/lines.ts'
import { beneath } from './beneath.ts'
import { pathOf, requirePermit, requireRegular, systemError } from './refusals.ts'
import { bytesBelow } from './tree.ts'
import type { UploadPermit, UploadStreams } from './uploads.ts'
import { writeFile } from './write-file.ts'

/**
 * Adds stdin to the end of an existing file. Throws ESTALE if the file has another modification time, EFBIG and EDQUOT above a limit, and
 * errors of the system. A failure leaves the file as it was, or `data.left_changed` names it.
 */
export const appendFile = async (
  permit: UploadPermit,
  { mtime }: Pick<Extract<FileCommand, { op: 'append' }>, 'mtime'>,
  { stdin, share }: UploadStreams,
): Promise<FileChange> => {
  requirePermit(permit.files, 'write')
  const data = new ByteBuilder({ max: MAX_APPEND_BYTES })
  for await (const part of stdin) {
    if (data.length + part.length > MAX_APPEND_BYTES) throw systemError('EFBIG')
    data.add(part)
  }
  // The run was ended while it waited for stdin.
  share.signal.throwIfAborted()
  await requireRoom(permit, data.length, share)
  const appended = { data: data.take(), mode: 'append', mkdir_parents: false, atomic: false, expected_mtime: mtime } as const
  try {
    const written = await writeFile(permit.files, appended, share.signal)
    return { mtime: written.mtime, mtime_ms: written.mtime_ms, created: written.created }
  } catch (error) {
    if (isAppError(error, 'conflict') && error.data['left_changed'] === undefined) throw systemError('ESTALE')
    throw error
  }
}

const requireRoom = async ({ files, limits }: UploadPermit, bytes: number, share: UploadStreams['share']): Promise<void> => {
  using place = await beneath(files)
  if (place.found === null) throw systemError('ENOENT')
  requireRegular(place.found.info, pathOf(files))
  if (Number(place.found.info.size) + bytes > limits.max_file_bytes) throw systemError('EFBIG')
  if (limits.max_total_bytes === null) return
  if ((await bytesBelow(files.root, share)) + bytes > limits.max_total_bytes) throw systemError('EDQUOT')
}
