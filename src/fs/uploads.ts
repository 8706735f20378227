import { createHash } from 'node:crypto'
import { type BigIntStats, constants, lstatSync, renameSync } from 'node:fs'
import { type FileHandle, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import { AppError, errnoOf, isAppError } from '../base/errors.ts'
import { mtimeOf, versionOf } from '../base/mtime.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import type { Account } from '../policy/account.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import type { FileCommand, UploadState, WrittenFile } from '../protocol/file-command.ts'
import { beneath, giveMade } from './beneath.ts'
import { hashOf } from './content.ts'
import type { Found, OpenHandle } from './open-file.ts'
import { pathOf, requirePermit, requireRegular, systemError } from './refusals.ts'
import { requireWritable, takeRightsOf } from './staged.ts'
import { bytesBelow } from './tree.ts'
import { UnfinishedUploads, type Upload, createPartial, openPartial, partialName, partialSize } from './unfinished-uploads.ts'

/** Limits and attributes of new files, from the ACL. */
export interface UploadLimits {
  readonly create_dirs: boolean
  readonly max_file_bytes: number
  /** All files below the root, or null without a limit. */
  readonly max_total_bytes: number | null
  /** Permission bits of a new file. */
  readonly mode: number
  /** Owner of new files, or null for the daemon's user. */
  readonly account: Account | null
}

export interface UploadPermit {
  readonly files: FilePermit
  readonly limits: UploadLimits
  /** Agent and machine of the requester. Each has its own unfinished uploads. */
  readonly owner: string
}

export interface UploadStreams {
  readonly stdin: AsyncIterable<Uint8Array>
  readonly share: TimeSlice
}

/** Errors after which an upload cannot be continued, or must not occupy the disk. */
const ENDS_UPLOAD: readonly (string | undefined)[] = ['EBADMSG', 'EFBIG', 'ENOSPC', 'EDQUOT', 'EEXIST', 'ESTALE']

const endsUpload = (error: unknown): boolean =>
  ENDS_UPLOAD.includes(errnoOf(error)) || (isAppError(error) && ENDS_UPLOAD.includes(String(error.data['errno'])))

type WriteCommand = Extract<FileCommand, { op: 'write' }>

/** True if the first byte is 0 and each other byte equals the one before it. Zeros are not written, so that a sparse file stays sparse. */
const isZero = (data: Uint8Array): boolean => data[0] === 0 && Buffer.compare(data.subarray(1), data.subarray(0, -1)) === 0

/** The place of an upload. */
interface Destination extends Disposable {
  readonly directory: OpenHandle
  readonly name: string
  /** Name of the partial file. */
  readonly partial: string
  /** The file that it replaces, or null. */
  readonly old: Found | null
}

const destinationOf = async ({ files, limits, owner }: UploadPermit, upload: string, makeParents: boolean): Promise<Destination> => {
  const place = await beneath(files, { makeParents })
  const { directory, name, found } = place
  try {
    if (directory === null) throw systemError('EISDIR')
    if (found !== null) requireRegular(found.info, pathOf(files))
    await giveMade(place.made, limits)
    const partial = partialName({ owner, upload, path: pathOf(files) })
    return { directory, name, partial, old: found, [Symbol.dispose]: () => place[Symbol.dispose]() }
  } catch (error) {
    place[Symbol.dispose]()
    throw error
  }
}

/**
 * Writes files in parts. An unfinished one is a private partial file in the directory of its destination, so that the finished file takes
 * its name in one step. A partial file survives a restart of the daemon and expires.
 */
export class Uploads {
  readonly #unfinished: UnfinishedUploads

  constructor(deps: { readonly clock: Clock }) {
    this.#unfinished = new UnfinishedUploads(deps)
  }

  /** Bytes of an unfinished upload that are on this machine. */
  async state(permit: UploadPermit, upload: string): Promise<UploadState> {
    requirePermit(permit.files, 'write')
    try {
      using place = await destinationOf(permit, upload, false)
      return { received: await partialSize(place.directory.at(place.partial)) }
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return { received: 0 }
      throw error
    }
  }

  /**
   * Adds stdin at the offset. With `finish`, checks the whole and gives the file its name. Throws `EDQUOT` with too many unfinished uploads,
   * EFBIG, EDQUOT and ENOSPC above a limit, EEXIST or ESTALE if the old file is not the expected one, `file_error` if the content has
   * another SHA-256, and errors of the system. Then the old file is as it was.
   */
  async write(permit: UploadPermit, command: WriteCommand, streams: UploadStreams): Promise<UploadState | WrittenFile> {
    requirePermit(permit.files, 'write')
    using place = await destinationOf(permit, command.upload, command.parents && permit.limits.create_dirs)
    const { directory, partial } = place
    await this.#unfinished.sweepDirectory(directory)
    const at = { path: join(await directory.real(), partial), at: directory.at(partial), owner: permit.owner }
    let upload: Upload
    try {
      upload = await this.#unfinished.enter(at, command.offset, streams.share.signal)
    } catch (error) {
      const done = errnoOf(error) === 'ESPIPE' ? await finishedBefore(place, command, streams.share) : null
      if (done !== null) return done
      throw error
    }
    try {
      return upload.done === null ? await this.#add(upload, place, { permit, command, streams }) : repeated(upload.done, command)
    } finally {
      this.#unfinished.leave(upload)
    }
  }

  stop(): void {
    this.#unfinished.stop()
  }

  async #add(
    upload: Upload,
    { directory, name, partial, old }: Destination,
    { permit, command, streams }: { permit: UploadPermit; command: WriteCommand; streams: UploadStreams },
  ): Promise<UploadState | WrittenFile> {
    const path = directory.at(partial)
    let hasPartial = false
    try {
      // Before all checks, so that a refused upload leaves no partial file.
      await using file = (await openPartial(path)) ?? (await createPartial(path))
      hasPartial = true
      requireExpected(old?.info ?? null, command)
      // The system would let anybody replace the file who may write its directory.
      if (old !== null) await requireWritable(old)
      const content = new Content(file, { permit, command, old: old?.info ?? null, present: Number((await file.stat()).size) })
      try {
        await content.take(streams)
      } finally {
        upload.size = Math.max(upload.size, content.size)
      }
      await content.checkTotal(directory.at(name), streams.share)
      if (command.finish === null) return { received: content.size }
      const written = await content.finish(streams.share)
      // Synchronous with the rename, so that other commands of this process cannot come between.
      if (command.finish.expect !== null) requireExpected(statusAt(directory.at(name)), command)
      renameSync(path, directory.at(name))
      upload.done = written
      return written
    } catch (error) {
      if (endsUpload(error)) upload.size = 0
      // An upload without bytes has no partial file.
      if (hasPartial && upload.size === 0) await unlink(path).catch(() => {})
      throw error
    }
  }
}

const statusAt = (path: string): BigIntStats | null => lstatSync(path, { bigint: true, throwIfNoEntry: false }) ?? null

/** Throws EEXIST or ESTALE if the file is not as the command expects. */
const requireExpected = (old: BigIntStats | null, { finish }: WriteCommand): void => {
  const expect = finish?.expect ?? null
  if (expect === 'absent' && old !== null) throw systemError('EEXIST')
  if (expect !== null && expect !== 'absent' && (old === null || versionOf(old) !== expect)) throw systemError('ESTALE')
}

/** A command that was sent again while its first attempt ended. */
const repeated = (done: WrittenFile, { finish }: WriteCommand): WrittenFile => {
  if (finish?.sha256 === done.sha256) return done
  throw systemError('ESPIPE')
}

/** The result if an earlier attempt gave the file its name, and the requester did not learn of it. */
const finishedBefore = async (
  { directory, name }: Destination,
  { finish }: WriteCommand,
  share: TimeSlice,
): Promise<WrittenFile | null> => {
  if (finish === null) return null
  const found = await directory.look(name).catch(() => null)
  if (found === null) return null
  using handle = found.handle
  if (!found.info.isFile()) return null
  await using file = await handle.open(constants.O_RDONLY)
  const size = Number(found.info.size)
  if ((await hashOf(file, size, share)) !== finish.sha256) return null
  return { size, sha256: finish.sha256, ...mtimeOf(found.info), created: finish.expect === 'absent' }
}

interface ContentInit {
  readonly permit: UploadPermit
  readonly command: WriteCommand
  /** The file that it replaces, or null. */
  readonly old: BigIntStats | null
  /** Bytes in the partial file before. */
  readonly present: number
}

/** The content of one upload: written from an offset, then checked and completed. */
class Content {
  readonly #file: FileHandle
  readonly #init: ContentInit
  /** Hash of the written bytes, used if they are the whole content. */
  readonly #hash = createHash('sha256')
  size: number

  constructor(file: FileHandle, init: ContentInit) {
    this.#file = file
    this.#init = init
    this.size = init.command.offset
  }

  /** Writes stdin from the offset. A repeated command overwrites its own bytes and keeps those after them. */
  async take({ stdin, share }: UploadStreams): Promise<void> {
    const { permit, command } = this.#init
    try {
      for await (const data of stdin) {
        share.signal.throwIfAborted()
        if (this.size + data.length > permit.limits.max_file_bytes) throw systemError('EFBIG')
        await this.#write(data)
      }
    } finally {
      // The end may be zeros that were not written.
      const { size } = await this.#file.stat()
      if (size < this.size) await this.#file.truncate(this.size)
    }
    // The run was ended while it waited for stdin.
    share.signal.throwIfAborted()
    if (command.finish !== null) await this.#file.truncate(this.size)
  }

  /** Throws EDQUOT if all files are too large. The file at `path` is replaced and counts no more. The partial file counts already. */
  async checkTotal(path: string, share: TimeSlice): Promise<void> {
    const { limits, files } = this.#init.permit
    if (limits.max_total_bytes === null) return
    const total = await bytesBelow(files.root, share)
    if (total - Number(statusAt(path)?.size ?? 0n) > limits.max_total_bytes) throw systemError('EDQUOT')
  }

  /** Compares the SHA-256, sets time, syncs, and sets owner and rights. */
  async finish(share: TimeSlice): Promise<WrittenFile> {
    const { permit, command, old, present } = this.#init
    const { sha256, mode, mtime_ms } = command.finish!
    // The hash of stdin is not that of the file if the file had other bytes before.
    const isAllNew = command.offset === 0 && present === 0
    const found = isAllNew ? this.#hash.digest('hex') : await hashOf(this.#file, this.size, share)
    if (found !== sha256)
      throw new AppError('file_error', `${pathOf(permit.files)}: the content differs from what the requester announced`, {
        data: { errno: 'EBADMSG' },
      })
    if (mtime_ms !== null) await this.#file.utimes(new Date(), new Date(mtime_ms))
    await this.#file.datasync()
    // Last, because after a crash a partial file that is not private is not continued.
    const { account, mode: allowed } = permit.limits
    if (old !== null) await takeRightsOf(this.#file, old)
    else {
      if (account !== null) await this.#file.chown(account.uid, account.gid)
      await this.#file.chmod(allowed & (mode ?? 0o777))
    }
    return { size: this.size, sha256, ...mtimeOf(await this.#file.stat({ bigint: true })), created: old === null }
  }

  async #write(data: Uint8Array): Promise<void> {
    this.#hash.update(data)
    // Zeros are skipped only where the partial file has no bytes yet.
    const isHole = this.size >= this.#init.present && isZero(data)
    for (let at = isHole ? data.length : 0; at < data.length;) {
      const { bytesWritten } = await this.#file.write(data, at, data.length - at, this.size + at)
      at += bytesWritten
    }
    this.size += data.length
  }
}
