import { type BigIntStats, constants } from 'node:fs'
import { type FileHandle, lstat, mkdir } from 'node:fs/promises'
import { getSystemErrorMessage } from 'node:util'
import { AppError, errnoOf, errorText, isAppError } from '../base/errors.ts'
import { mtimeOf, versionOf } from '../base/mtime.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import {
  type FileCommand,
  type FileDigest,
  type FileListEnd,
  type FileListEntry,
  type FileFacts,
  fileErrorLine,
} from '../protocol/file-command.ts'
import { MAX_FILE_LIST } from '../protocol/limits/files.ts'
import { appendFile } from './append-file.ts'
import { beneath, giveMade } from './beneath.ts'
import { hashOf } from './content.ts'
import { type Found, filesProblem } from './open-file.ts'
import { pathOf, requirePermit, requireRegular, systemError } from './refusals.ts'
import { entriesBelow, entryTypeOf } from './tree.ts'
import type { UploadPermit, Uploads } from './uploads.ts'

/** Bytes read at once: several frames of a run. */
const READ_BYTES = 480 * 1024
/** Text of a listing that is collected before it is sent. */
const LIST_BATCH = 32 * 1024

/** What policy allowed of one file command. */
export interface PermittedFileCommand extends UploadPermit {
  readonly command: FileCommand
}

/** Input and output of a file command. */
export interface FileCommandStreams {
  /** Resolves when the reader takes more. Rejects if the command is to end. */
  write(data: Uint8Array): Promise<void>
  readonly stdin: AsyncIterable<Uint8Array>
  readonly share: TimeSlice
}

type CommandOf<O extends FileCommand['op']> = Extract<FileCommand, { op: O }>

/** Performs a file command. Throws errors of the system and of the error table; `failureLine` makes them the line for stderr. */
export const performFileCommand = async (permitted: PermittedFileCommand, streams: FileCommandStreams, uploads: Uploads): Promise<void> => {
  const { command, files } = permitted
  const problem = filesProblem()
  if (problem !== null) throw new AppError('unsupported_capability', problem, { data: { capability: 'fs' } })
  switch (command.op) {
    case 'stat':
      return writeJson(streams, await withFile(files, async ({ info }) => statusOf(info)))
    case 'list':
      return list(files, command, streams)
    case 'read':
      return withFile(files, async (found) => read(found, command, streams))
    case 'hash':
      return writeJson(streams, await withFile(files, async (found) => hash(found, command, streams)))
    case 'upload':
      return writeJson(streams, await uploads.state(permitted, command.upload))
    case 'write':
      return writeJson(streams, await uploads.write(permitted, command, streams))
    case 'append':
      return writeJson(streams, await appendFile(permitted, command, streams))
    case 'mkdir':
      return makeDirectory(permitted, command)
  }
}

/** Errors for which Node.js has no text. */
const TEXTS: Readonly<Record<string, string>> = {
  EDQUOT: 'above max_total_bytes of the ACL, above the disk quota, or too many unfinished uploads',
  ESTALE: 'the file was changed meanwhile',
}

/** The line that the requester gets on stderr. */
export const failureLine = (error: unknown, path: string): string => {
  const { code, errno } = error as NodeJS.ErrnoException
  if (!isAppError(error)) {
    const text = TEXTS[code ?? '']
    if (text !== undefined) return fileErrorLine(path, text, code!)
    if (typeof errno === 'number') return fileErrorLine(path, getSystemErrorMessage(errno), code ?? 'EIO')
    return fileErrorLine(path, errorText(error), 'internal')
  }
  const { errno: name } = error.data as { readonly errno?: unknown }
  // Most messages name the path already.
  const message = error.message.startsWith(path) ? error.message.slice(path.length).replace(/^:? /, '') : error.message
  return fileErrorLine(path, message, typeof name === 'string' ? name : error.code === 'file_not_found' ? 'ENOENT' : error.code)
}

const writeJson = async ({ write }: FileCommandStreams, value: object): Promise<void> => write(Buffer.from(`${JSON.stringify(value)}\n`))

const TYPES = { file: 'file', dir: 'directory', symlink: 'symlink', other: 'other' } as const

const ALL_BITS = 0o7777n

const attributesOf = (info: BigIntStats): Omit<FileFacts, 'version'> => ({
  type: TYPES[entryTypeOf(info)],
  size: Number(info.size),
  mode: Number(info.mode & ALL_BITS),
  ...mtimeOf(info),
})

const statusOf = (info: BigIntStats): FileFacts => ({ ...attributesOf(info), version: versionOf(info) })

interface FoundFile extends Found {
  /** The permitted path, for errors. */
  readonly path: string
}

/** Walks to an existing file. A final link that stays below the root is followed. */
const withFile = async <T>(permit: FilePermit, work: (found: FoundFile) => Promise<T>): Promise<T> => {
  requirePermit(permit, 'read')
  using place = await beneath(permit)
  if (place.found === null) throw systemError('ENOENT')
  return await work({ ...place.found, path: pathOf(permit) })
}

/** Runs work with the open file. Throws ESTALE if it has another version, before or after. */
const withVersion = async <T>(
  { handle, info, path }: FoundFile,
  version: string | null,
  work: (file: FileHandle, size: number) => Promise<T>,
): Promise<T> => {
  requireRegular(info, path)
  if (version !== null && version !== versionOf(info)) throw systemError('ESTALE')
  await using file = await handle.open(constants.O_RDONLY)
  const result = await work(file, Number(info.size))
  if (versionOf(await file.stat({ bigint: true })) !== versionOf(info)) throw systemError('ESTALE')
  return result
}

const read = async (
  found: FoundFile,
  { offset, length, version }: CommandOf<'read'>,
  { write, share }: FileCommandStreams,
): Promise<void> =>
  withVersion(found, version, async (file, size) => {
    const end = Math.min(size, offset + length)
    for (let at = offset; at < end;) {
      share.signal.throwIfAborted()
      const { buffer, bytesRead } = await file.read(Buffer.allocUnsafeSlow(Math.min(READ_BYTES, end - at)), 0, undefined, at)
      // The file became shorter.
      if (bytesRead === 0) throw systemError('ESTALE')
      at += bytesRead
      await write(buffer.subarray(0, bytesRead))
    }
  })

const hash = async (found: FoundFile, { version }: CommandOf<'hash'>, { share }: FileCommandStreams): Promise<FileDigest> =>
  withVersion(found, version, async (file, size) => ({ size, sha256: await hashOf(file, size, share) }))

const list = async (permit: FilePermit, { recursive }: CommandOf<'list'>, { write, share }: FileCommandStreams): Promise<void> =>
  withFile(permit, async ({ handle, info }) => {
    if (!info.isDirectory()) throw systemError('ENOTDIR')
    let [text, count, left_out] = ['', 0, 0]
    const enter = (): true | null => (recursive ? true : null)
    const leaveOut = (): void => void left_out++
    const options = { carried: true, enter, onTooDeep: leaveOut, onUnnamed: leaveOut, share } as const
    for await (const { directory, name, path } of entriesBelow(handle, options)) {
      if (count >= MAX_FILE_LIST) {
        leaveOut()
        continue
      }
      const status = await lstat(directory.at(name), { bigint: true }).catch(() => null)
      if (status === null) continue
      const entry: FileListEntry = { path, ...attributesOf(status) }
      text += `${JSON.stringify(entry)}\n`
      count++
      if (text.length < LIST_BATCH) continue
      await write(Buffer.from(text))
      text = ''
    }
    const end: FileListEnd = { left_out }
    await write(Buffer.from(`${text}${JSON.stringify(end)}\n`))
  })

const makeDirectory = async ({ files, limits }: PermittedFileCommand, { mode }: CommandOf<'mkdir'>): Promise<void> => {
  requirePermit(files, 'write')
  using place = await beneath(files, { makeParents: limits.create_dirs })
  await giveMade(place.made, limits)
  const { directory, name, found } = place
  if (found !== null) {
    if (found.info.isDirectory()) return
    throw systemError('EEXIST')
  }
  if (!limits.create_dirs) throw systemError('EACCES')
  try {
    await mkdir(directory!.at(name))
  } catch (error) {
    const status = errnoOf(error) === 'EEXIST' ? await lstat(directory!.at(name)).catch(() => null) : null
    // Another command has made it meanwhile.
    if (status?.isDirectory() === true) return
    throw error
  }
  await giveMade([{ parent: directory!, name }], limits, mode ?? undefined)
}
