import { randomBytes } from 'node:crypto'
import type { Dirent } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { basename, join, posix } from 'node:path'
import type { Readable } from 'node:stream'
import { AppError, isAppError } from '../../../base/errors.ts'
import type { FileApi } from '../../../clients/file-api.ts'
import type { FileStatusJson } from '../../../protocol/api/files.ts'
import type { DenialReason } from '../../../protocol/reasons.ts'
import { usageError } from '../failure.ts'
import { type CopyOptions, type CopyPlan, PlanBuilder, atPath } from './copy-job.ts'
import { fileDenialOf } from './file-failure.ts'
import type { LocalPlace, RemotePlace, StreamPlace, UploadOrder } from './places.ts'
import { UploadFile, UploadStdin } from './upload-file.ts'

interface UploadPlanInit extends CopyOptions {
  readonly agentId: string
}

/** A directory of this machine, and the one that it becomes on the agent. */
interface DirectoryPair {
  readonly from: string
  readonly to: string
  readonly mode: number
  /** It has no directory in it. */
  isLeaf: boolean
}

/** Denials for which a files table with other rights may still allow the copy. */
const NOT_GRANTED: readonly (DenialReason | null)[] = ['argv_not_allowed', 'agent_machine_not_in_acl']

/** Path of a source on the agent. */
const placeBelow = ({ path }: RemotePlace, source: LocalPlace | StreamPlace, into: boolean): string => {
  if (!into || source.kind === 'stream') return path
  const name = basename(source.path)
  return posix.join(path, /^\.{0,2}$/.test(name) ? '' : name).replace(/(.)\/$/, '$1')
}

const isRefusedByApprover = (error: unknown): boolean => fileDenialOf(error)?.startsWith('approval_') === true

/** Finds the files of an upload, and makes their directories on the agent. */
export class UploadPlan {
  readonly #components: { readonly files: FileApi; stdin(): Readable }
  readonly #order: Omit<UploadOrder, 'direction' | 'isFanout'>
  readonly #init: UploadPlanInit
  readonly #plan = new PlanBuilder()

  constructor(
    components: { readonly files: FileApi; stdin(): Readable },
    order: Omit<UploadOrder, 'direction' | 'isFanout'>,
    init: UploadPlanInit,
  ) {
    this.#components = components
    this.#order = order
    this.#init = init
  }

  /** Throws `bad_request`, denials, connection errors, and the error of the destination. */
  async make(signal: AbortSignal): Promise<CopyPlan> {
    const { host, sources, destination } = this.#order
    const into = await this.#goesInto(destination, signal)
    for (const source of sources) {
      if (source.kind === 'stream') {
        if (into) throw usageError(`${host}:${destination.path}: is a directory, and standard input becomes one file: name it`)
        const components = { files: this.#components.files, stdin: this.#components.stdin() }
        this.#plan.jobs.push(new UploadStdin(components, { host, path: destination.path }))
        continue
      }
      const to = placeBelow(destination, source, into)
      try {
        await atPath(source.path, async () => this.#addSource(source.path, to, signal))
      } catch (error) {
        signal.throwIfAborted()
        if (!isAppError(error, 'file_error') && !isAppError(error, 'file_not_found')) throw error
        this.#plan.fail(source.path, `${host}:${to}`, error)
      }
    }
    return this.#plan
  }

  /** Whether the sources go into the destination. A directory with a slash at its end is made. */
  async #goesInto(destination: RemotePlace, signal: AbortSignal): Promise<boolean> {
    const { host, sources } = this.#order
    const { path, slash } = destination
    const found = await this.#look(destination, signal)
    if (found === 'unreadable') {
      const into = slash || sources.length > 1
      await this.#assertWritable(placeBelow(destination, sources[0]!, into), signal)
      return into
    }
    if (found?.type === 'directory') return true
    if (slash && found !== null) throw new AppError('file_error', `${path}: is not a directory`)
    if (slash) {
      await this.#components.files.mkdir(path, null, signal)
      return true
    }
    if (sources.length > 1) throw usageError(`${host}:${path}: several sources need a directory as destination`, `Try: ${host}:${path}/`)
    return false
  }

  /** Status of the destination, null if it does not exist, or `unreadable` if the ACL may allow to write it and not to read it. */
  async #look({ path, slash }: RemotePlace, signal: AbortSignal): Promise<FileStatusJson | 'unreadable' | null> {
    try {
      return await this.#components.files.stat(path, signal)
    } catch (error) {
      if (isAppError(error, 'file_not_found')) return null
      // A directory would go into an existing one, or become it, so its place must be known.
      const isKnownPlace = slash || this.#order.sources.length > 1 || !this.#init.recursive
      if (isKnownPlace && NOT_GRANTED.includes(fileDenialOf(error))) return 'unreadable'
      throw error
    }
  }

  /** Throws the denial if the ACL does not allow to write. One command finds this out before each file is denied. */
  async #assertWritable(path: string, signal: AbortSignal): Promise<void> {
    await this.#components.files.received(path, randomBytes(16).toString('hex'), signal).catch((error: unknown) => {
      if (!isAppError(error, 'file_error') && !isAppError(error, 'file_not_found')) throw error
    })
  }

  async #addSource(from: string, to: string, signal: AbortSignal): Promise<void> {
    const info = await stat(from)
    if (info.isFile()) return this.#addFile(from, to, info.size)
    if (!info.isDirectory()) throw new AppError('file_error', `${from}: is not a regular file`)
    if (!this.#init.recursive)
      throw new AppError('file_error', `${from}: is a directory (EISDIR)`, { data: { code: 'EISDIR', path: from } })
    const directories = [{ from, to, mode: info.mode & 0o777, isLeaf: true }]
    // The list grows while it is walked.
    for (const directory of directories)
      await this.#walk(directory, directories).catch((error: unknown) => this.#failWalk(directory, error))
    await this.#makeDirectories(directories, signal)
  }

  #failWalk({ from, to }: Pick<DirectoryPair, 'from' | 'to'>, error: unknown): void {
    this.#plan.fail(from, `${this.#order.host}:${to}`, error)
  }

  async #walk(directory: DirectoryPair, directories: DirectoryPair[]): Promise<void> {
    const { from, to } = directory
    for (const entry of await atPath(from, async () => readdir(from, { withFileTypes: true }))) {
      const pair = { from: join(from, entry.name), to: posix.join(to, entry.name) }
      // For example a file that is gone, or a name that is not UTF-8.
      await this.#walkEntry(entry, pair, { directory, directories }).catch((error: unknown) => this.#failWalk(pair, error))
    }
  }

  async #walkEntry(
    entry: Dirent,
    { from, to }: Pick<DirectoryPair, 'from' | 'to'>,
    { directory, directories }: { readonly directory: DirectoryPair; readonly directories: DirectoryPair[] },
  ): Promise<void> {
    if (entry.isSymbolicLink()) return this.#plan.skip(from, 'a symbolic link')
    if (!entry.isDirectory() && !entry.isFile()) return this.#plan.skip(from, 'not a regular file')
    const { mode, size } = await atPath(from, async () => stat(from))
    if (entry.isFile()) return this.#addFile(from, to, size)
    directory.isLeaf = false
    directories.push({ from, to, mode: mode & 0o777, isLeaf: true })
  }

  /** A directory is made with those above it, so only the last ones need a command, unless each has other bits. */
  async #makeDirectories(directories: readonly DirectoryPair[], signal: AbortSignal): Promise<void> {
    const { preserve } = this.#init
    for (const directory of directories) {
      const { to, mode, isLeaf } = directory
      if (!preserve && !isLeaf) continue
      await this.#components.files.mkdir(to, preserve ? mode | 0o700 : null, signal).catch((error: unknown) => {
        signal.throwIfAborted()
        const isRefused = isRefusedByApprover(error)
        if (!isAppError(error, 'file_error') && !isRefused) throw error
        this.#failWalk(directory, error)
        // An approver who refuses a directory is not asked about each file in it.
        if (isRefused) this.#skipBelow(to)
      })
    }
  }

  #skipBelow(directory: string): void {
    const { jobs } = this.#plan
    const place = `${this.#order.host}:${directory}/`
    jobs.splice(0, jobs.length, ...jobs.filter(({ destination }) => !destination.startsWith(place)))
  }

  #addFile(source: string, path: string, size: number): void {
    const { agentId, preserve } = this.#init
    this.#plan.jobs.push(new UploadFile(this.#components, { host: this.#order.host, agentId, source, path, size, preserve }))
  }
}
