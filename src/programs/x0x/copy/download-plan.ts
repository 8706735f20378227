import { mkdir, stat } from 'node:fs/promises'
import { join, posix } from 'node:path'
import { AppError, isAppError, isMissing } from '../../../base/errors.ts'
import type { Output } from '../../../cli/output.ts'
import type { FileApi } from '../../../clients/file-api.ts'
import type { FileEntryJson, FileStatusJson } from '../../../protocol/api/files.ts'
import { usageError } from '../failure.ts'
import { type CopyOptions, type CopyPlan, PlanBuilder, atPath } from './copy-job.ts'
import { DownloadFile, DownloadToStdout } from './download-file.ts'
import type { CopyOrder, LocalPlace } from './places.ts'

type DownloadOrder = Extract<CopyOrder, { direction: 'download' }>

interface DownloadPlanInit extends CopyOptions {
  readonly agentId: string
  readonly hashes: boolean
}

const isDirectory = async (path: string): Promise<boolean | null> => {
  try {
    return (await stat(path)).isDirectory()
  } catch (error) {
    if (isMissing(error)) return null
    throw error
  }
}

/** Whether the sources go into the destination. A directory with a slash at its end is made. */
const goesInto = async ({ path, slash }: LocalPlace, sources: number): Promise<boolean> => {
  const found = await isDirectory(path)
  if (found === true) return true
  if (found === false && slash) throw new AppError('file_error', `${path}: is not a directory`)
  if (slash) {
    await mkdir(path, { recursive: true })
    return true
  }
  if (sources > 1) throw usageError(`${path}: several sources need a directory as destination`, `Try: ${path}/`)
  return false
}

/** Finds the files of a download, and makes their directories. */
export class DownloadPlan {
  readonly #components: { readonly files: FileApi; readonly stdout: Output }
  readonly #order: DownloadOrder
  readonly #init: DownloadPlanInit
  readonly #plan = new PlanBuilder()

  constructor(components: { readonly files: FileApi; readonly stdout: Output }, order: DownloadOrder, init: DownloadPlanInit) {
    this.#components = components
    this.#order = order
    this.#init = init
  }

  /** Throws `bad_request`, connection errors, and the error of the destination. */
  async make(signal: AbortSignal): Promise<CopyPlan> {
    const { host, sources, destination } = this.#order
    if (destination.kind === 'stream') {
      this.#plan.jobs.push(new DownloadToStdout(this.#components, { host, path: sources[0]!.path }))
      return this.#plan
    }
    const into = await atPath(destination.path, async () => goesInto(destination, sources.length))
    for (const { path } of sources) {
      const to = into ? join(destination.path, posix.basename(path)) : destination.path
      await this.#addSource(path, to, signal).catch((error: unknown) => {
        signal.throwIfAborted()
        if (!isAppError(error, 'file_error') && !isAppError(error, 'file_not_found')) throw error
        this.#plan.fail(`${host}:${path}`, to, error)
      })
    }
    return this.#plan
  }

  async #addSource(path: string, to: string, signal: AbortSignal): Promise<void> {
    const { files } = this.#components
    if (!this.#init.recursive) return this.#addFile(path, to, null)
    const status: FileStatusJson = await files.stat(path, signal)
    if (status.type !== 'directory') return this.#addFile(path, to, status.size)
    const { entries, left_out } = await files.list(path, true, signal)
    await atPath(to, async () => mkdir(to, { recursive: true }))
    for (const entry of entries) await this.#addEntry(path, to, entry)
    if (left_out > 0)
      this.#plan.fail(`${this.#order.host}:${path}`, to, new AppError('file_error', `${path}: the agent left ${left_out} entries out`))
  }

  async #addEntry(path: string, to: string, entry: FileEntryJson): Promise<void> {
    const [from, place] = [posix.join(path, entry.path), join(to, entry.path)]
    const source = `${this.#order.host}:${from}`
    if (entry.type === 'file') return this.#addFile(from, place, entry.size)
    if (entry.type === 'symlink') return this.#plan.skip(source, 'a symbolic link')
    if (entry.type === 'other') return this.#plan.skip(source, 'not a regular file')
    // Its user must be able to write into it.
    const mode = this.#init.preserve ? (entry.mode & 0o777) | 0o700 : 0o777
    await atPath(place, async () => mkdir(place, { recursive: true, mode })).catch((error: unknown) =>
      this.#plan.fail(source, place, error),
    )
  }

  #addFile(path: string, destination: string, size: number | null): void {
    const { agentId, preserve, hashes } = this.#init
    const init = { host: this.#order.host, agentId, path, destination, size, preserve, hashes }
    this.#plan.jobs.push(new DownloadFile(this.#components, init))
  }
}
