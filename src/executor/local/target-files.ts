import { randomBytes } from 'node:crypto'
import { posix } from 'node:path'
import { Readable } from 'node:stream'
import { AppError, isAppError } from '../../base/errors.ts'
import { octal } from '../../base/format.ts'
import type { TimeSlice } from '../../base/time-slices.ts'
import type { FileAnswer, FileCall } from '../../executor-api/local.ts'
import { MAX_EDIT_BYTES } from '../../fs/content.ts'
import { edited, requireEdit } from '../../fs/edit-file.ts'
import { matchesIn } from '../../fs/glob.ts'
import { MISSING } from '../../fs/read.ts'
import { conflict, refusalOf, systemError, tooMuch } from '../../fs/refusals.ts'
import { BoundedEntries } from '../../fs/tree.ts'
import type { FileChangeJson, FileListJson, FileStatusJson, WrittenFileJson } from '../../protocol/api/files.ts'
import type { ExpectedFile } from '../../protocol/file-command.ts'
import { MAX_LISTED } from '../../protocol/limits/rexd.ts'
import { ByteBuilder } from '../../protocol/lines.ts'
import type { FsEntry } from '../../protocol/rexd/results.ts'
import { utf8Text } from '../../protocol/text.ts'
import { NO_BYTES } from '../../protocol/wire/schema.ts'

/** Content of a file on a target. */
export interface TargetContent {
  /** 32 hex digits that name the upload. */
  readonly upload: string
  readonly offset: 0
  readonly mode: null
  readonly mtimeMs: null
  readonly sha256: null
  readonly expect: ExpectedFile
  /** Whether missing directories are made. */
  readonly parents: boolean
  readonly stream: Readable
}

/** A part of a file of a certain version. */
export interface TargetFilePart {
  readonly version: string
  readonly offset: number
  readonly length: number
}

/** Files of another agent, through the daemon of this machine. The ACL of that agent decides. All methods throw an `AppError`. */
export interface TargetFiles {
  stat(path: string, signal: AbortSignal): Promise<FileStatusJson>
  list(path: string, recursive: boolean, signal: AbortSignal): Promise<FileListJson>
  download(path: string, part: TargetFilePart, signal: AbortSignal): Promise<{ readonly body: AsyncIterable<Uint8Array> }>
  upload(path: string, content: TargetContent, signal: AbortSignal): Promise<WrittenFileJson>
  append(path: string, mtime: string, data: Uint8Array, signal: AbortSignal): Promise<FileChangeJson>
}

/** The text of a field of a call. Throws `bad_request` if it is not UTF-8. */
export const utf8Of = (bytes: Uint8Array, name: string): string => {
  const decoded = utf8Text(bytes)
  if (decoded === null) throw new AppError('bad_request', `${name}: not valid UTF-8`)
  return decoded
}

type CallOf<M extends FileCall['method']> = Extract<FileCall, { method: M }>

const UPLOAD_ID_BYTES = 16
const TYPES = { file: 'file', directory: 'dir', symlink: 'symlink', other: 'other' } as const

const plain = (result: object): FileAnswer => ({ result, data: NO_BYTES })

const requireFile = ({ type }: FileStatusJson, path: string): void => {
  if (type === 'directory') throw systemError('EISDIR')
  if (type !== 'file') throw new AppError('file_error', `${path}: not a regular file`, { data: { path, errno: 'EINVAL' } })
}

/** Requires the time that a client expects, as `mtime` or `mtime_ms`. Null expects nothing. */
const requireTime = (expected: string | null, status: FileStatusJson | null, path: string): void => {
  if (expected === null || (status !== null && (expected === status.mtime || expected === String(status.mtime_ms)))) return
  const text = status === null ? 'it does not exist' : `it was changed at ${status.mtime}`
  throw conflict(path, 'changed', text, { expected_mtime: expected, mtime: status?.mtime ?? null })
}

/** Converts errors of file commands to those of local files. */
const asLocal = (error: unknown, path: string): unknown => {
  if (!isAppError(error, 'file_error') && !isAppError(error, 'file_not_found')) return refusalOf(error, path)
  const { code: errno, request_id } = error.data
  if (errno === 'EEXIST') return conflict(path, 'exists', 'it exists already')
  if (errno === 'ESTALE') return conflict(path, 'changed', 'it was changed meanwhile')
  return new AppError(error.code, error.message, { cause: error, data: { path, errno, request_id } })
}

/** Performs the file calls of a session for another agent. A change of a file replaces it by a new one in one step. */
export class TargetFileCalls {
  readonly #files: TargetFiles
  readonly #share: TimeSlice
  readonly #maxRead: number

  constructor(deps: { readonly files: TargetFiles; readonly share: TimeSlice }, init: { readonly maxRead: number }) {
    this.#files = deps.files
    this.#share = deps.share
    this.#maxRead = init.maxRead
  }

  /** Throws the errors of the same call for a local file, and those of the mesh. */
  async perform(call: Exclude<FileCall, { method: 'fs.patch' }>, path: string): Promise<FileAnswer> {
    return this.naming(path, async () => {
      switch (call.method) {
        case 'fs.read':
          return this.#read(call, path)
        case 'fs.write':
          return plain(await this.#write(call, path))
        case 'fs.list':
          return plain(await this.#list(call, path))
        case 'fs.glob': {
          const { entries, left_out } = await this.#files.list(path, true, this.#share.signal)
          const listed = entries.map((entry) => ({ path: entry.path, isDirectory: entry.type === 'directory' }))
          const maxMatches = Math.min(call.max_matches ?? MAX_LISTED, MAX_LISTED)
          const { matches, truncated } = await matchesIn(listed, { directory: path, pattern: call.pattern, maxMatches }, this.#share)
          return plain({ matches, truncated: truncated || left_out > 0 })
        }
        case 'fs.stat':
          return plain(await this.#stat(path))
        case 'fs.edit':
          return plain(await this.#edit(call, path))
      }
    })
  }

  /** Runs work whose errors name this path, and become those of local files. */
  async naming<T>(path: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw asLocal(error, path)
    }
  }

  /** Null if it does not exist. */
  async status(path: string): Promise<FileStatusJson | null> {
    try {
      return await this.#files.stat(path, this.#share.signal)
    } catch (error) {
      if (isAppError(error, 'file_not_found')) return null
      throw error
    }
  }

  /** A whole file for an edit, with its status. Throws ENOENT, and `resource_limit` above MAX_EDIT_BYTES. */
  async whole(path: string): Promise<{ readonly data: Buffer; readonly status: FileStatusJson }> {
    const status = await this.status(path)
    if (status === null) throw systemError('ENOENT')
    requireFile(status, path)
    if (status.size > MAX_EDIT_BYTES) throw tooMuch('edit_bytes', status.size, MAX_EDIT_BYTES)
    return { status, data: await this.#part(path, { version: status.version, offset: 0, length: status.size }) }
  }

  async put(path: string, data: Uint8Array, how: { expect: ExpectedFile; parents: boolean }): Promise<WrittenFileJson> {
    const fixed = { offset: 0, mode: null, mtimeMs: null, sha256: null } as const
    const stream = Readable.from(data.length === 0 ? [] : [data])
    const upload = randomBytes(UPLOAD_ID_BYTES).toString('hex')
    return this.#files.upload(path, { ...fixed, ...how, upload, stream }, this.#share.signal)
  }

  async #part(path: string, part: TargetFilePart): Promise<Buffer> {
    const gathered = new ByteBuilder({ max: part.length })
    if (part.length === 0) return gathered.take()
    const { body } = await this.#files.download(path, part, this.#share.signal)
    for await (const data of body) {
      if (gathered.length + data.length > part.length) throw new AppError('file_error', `${path}: the target sent more than requested`)
      gathered.add(data)
    }
    if (gathered.length < part.length) throw new AppError('file_error', `${path}: the target sent less than requested`)
    return gathered.take()
  }

  async #read({ offset, length }: CallOf<'fs.read'>, path: string): Promise<FileAnswer> {
    if (length !== null && length > this.#maxRead) throw tooMuch('max_file_read_bytes', length, this.#maxRead)
    const status = await this.#files.stat(path, this.#share.signal)
    requireFile(status, path)
    const { size, mtime, mtime_ms, version } = status
    const wanted = Math.max(0, Math.min(length ?? this.#maxRead, size - offset))
    const data = await this.#part(path, { version, offset, length: wanted })
    return { result: { size, mtime, mtime_ms, truncated: offset + wanted < size }, data }
  }

  async #write({ mode, data, mkdir_parents: parents, expected_mtime }: CallOf<'fs.write'>, path: string): Promise<object> {
    const isBlind = expected_mtime === null && mode !== 'append'
    const status = isBlind ? null : await this.status(path)
    requireTime(expected_mtime, status, path)
    const how = { bytes_written: data.length, atomic: true }
    if (mode === 'append' && status !== null)
      return { ...(await this.#files.append(path, status.mtime, data, this.#share.signal)), ...how, atomic: false }
    const expect = mode === 'replace' ? (status?.version ?? null) : 'absent'
    const { mtime, mtime_ms, created } = await this.put(path, data, { expect, parents })
    return { mtime, mtime_ms, created, ...how }
  }

  async #stat(path: string): Promise<object> {
    const status = await this.status(path)
    if (status === null) return MISSING
    const { type, size, mode, mtime, mtime_ms } = status
    return { exists: true, type: TYPES[type], size, mtime, mtime_ms, mode: octal(mode), uid: null, gid: null, symlink_target: null }
  }

  async #list({ recursive, max_entries }: CallOf<'fs.list'>, path: string): Promise<object> {
    const { entries, left_out } = await this.#files.list(path, recursive, this.#share.signal)
    const answer = new BoundedEntries<FsEntry>(Math.min(max_entries ?? MAX_LISTED, MAX_LISTED))
    for (const { path: below, type, size, mtime, mtime_ms } of entries) {
      const entry = { name: posix.basename(below), path: posix.join(path, below), type: TYPES[type], size, mtime, mtime_ms }
      if (!answer.add(entry)) break
    }
    return { entries: answer.sorted(), truncated: answer.truncated || left_out > 0 }
  }

  async #edit(call: CallOf<'fs.edit'>, path: string): Promise<object> {
    const [old_string, new_string] = [utf8Of(call.old_string, 'old_string'), utf8Of(call.new_string, 'new_string')]
    const options = { old_string, new_string, replace_all: call.replace_all }
    requireEdit(options)
    const isWhole = old_string === ''
    const { status, data: old } = isWhole ? { status: await this.status(path), data: null } : await this.whole(path)
    requireTime(call.expected_mtime, status, path)
    const { data, replacements } =
      old === null ? { data: Buffer.from(new_string), replacements: 1 } : await edited(old, options, path, this.#share)
    const { mtime, mtime_ms, created } = await this.put(path, data, { expect: status?.version ?? 'absent', parents: isWhole })
    return { mtime, mtime_ms, created, bytes_written: data.length, replacements }
  }
}
