import { constants } from 'node:fs'
import { lstat, open, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { errorText, isMissing } from '../../base/errors.ts'
import { assertOursAlone, ensurePrivateDir } from '../../base/file-permissions.ts'
import { writeFileAtomic } from '../../base/files.ts'
import type { Logger } from '../../base/log.ts'
import { MAX_SEALED_FRAME, MAX_WARNINGS_PER_RUN } from '../../protocol/limits/wire.ts'
import { type ValueOf, bytes, id32, list, literal, nullable, oneOf, record, requestId, uint } from '../../protocol/wire/schema.ts'

/** Directory below the daemon's data directory. */
export const DETACHED_DIR = 'detached'

const sha256 = bytes(32)

/** Record of one detached run, stored beside its output. */
export const detachedRecord = record('detached-run', {
  version: literal(1),
  request_id: requestId,
  agent_id: id32,
  machine_id: id32,
  /** SHA-256 of the Request without nonce and time: an equal hash means the same run. */
  content_sha256: sha256,
  request_sha256: sha256,
  keep_bytes: uint(),
  /** A record that says `running` at a start belongs to a dead executor: the run is lost. */
  state: oneOf(['waiting', 'running', 'ended', 'lost', 'expired']),
  /** Epoch milliseconds of the end, or of the start that found the run lost, or null while it runs. */
  ended_at_ms: nullable(uint()),
  /** Bytes in the output file, bytes of each stream in it, and bytes that are missing. */
  file_bytes: uint(),
  stdout_kept: uint(),
  stderr_kept: uint(),
  dropped: uint(),
  /** Encoded Started and Warning frames. */
  notes: list(bytes(1, 1024), MAX_WARNINGS_PER_RUN),
  /** The encoded Exit frame. */
  exit: nullable(bytes(1, MAX_SEALED_FRAME)),
})
export type DetachedRecord = ValueOf<typeof detachedRecord>

const NAME = /^([0-9a-f]{64})\.(run|out)$/
const TEMPORARY = /^\.[0-9a-f]{64}\.run\.[0-9a-f]{12}\.tmp$/
/** Far above the longest record. */
const MAX_RECORD = 256 * 1024

/** Files of detached runs: a record and an output file each, named after a hash of owner and request ID. */
export class RecordFiles {
  readonly #directory: string
  readonly #log: Logger

  constructor(deps: { readonly log: Logger }, init: { readonly directory: string }) {
    this.#directory = init.directory
    this.#log = deps.log
  }

  outputOf(name: string): string {
    return join(this.#directory, `${name}.out`)
  }

  /** Creates the directory. Throws `loose_permissions` and errors of the file system. */
  async prepare(): Promise<void> {
    await ensurePrivateDir(this.#directory)
  }

  async save(name: string, value: DetachedRecord): Promise<void> {
    await writeFileAtomic(this.#recordOf(name), detachedRecord.encode(value))
  }

  async hasOutput(name: string): Promise<boolean> {
    try {
      await lstat(this.outputOf(name))
      return true
    } catch (error) {
      if (isMissing(error)) return false
      throw error
    }
  }

  async removeOutput(name: string): Promise<void> {
    await rm(this.outputOf(name), { force: true })
  }

  async remove(name: string): Promise<void> {
    await Promise.all([rm(this.#recordOf(name), { force: true }), this.removeOutput(name)])
  }

  /**
   * Reads all records at a start, by name. Removes unreadable records with their output, and leftovers of unknown or expired runs; keeps
   * other files. Throws `loose_permissions` if others can use the directory.
   */
  async load(): Promise<Map<string, DetachedRecord>> {
    const known = new Map<string, DetachedRecord>()
    if (!(await this.#isThere())) return known
    const names = await readdir(this.#directory)
    for (const file of names.filter((one) => one.endsWith('.run'))) {
      const name = NAME.exec(file)?.[1]
      if (name === undefined) continue
      try {
        known.set(name, await this.#read(name))
      } catch (error) {
        this.#log.warn({ file, error: errorText(error) }, 'the record of a detached run is not valid, and is removed')
        await this.#clear(file)
      }
    }
    const hasOutput = (file: string): boolean => (known.get(file.slice(0, -'.out'.length))?.state ?? 'expired') !== 'expired'
    for (const file of names) {
      const isLeftover = TEMPORARY.test(file) || (file.endsWith('.out') && NAME.test(file) && !hasOutput(file))
      if (isLeftover) await this.#clear(file)
    }
    return known
  }

  /** A file that cannot be removed does not prevent the start. */
  async #clear(file: string): Promise<void> {
    await rm(join(this.#directory, file), { force: true }).catch((error: unknown) => {
      this.#log.warn({ file, error: errorText(error) }, 'files of a detached run cannot be removed, and stay')
    })
  }

  async #isThere(): Promise<boolean> {
    try {
      assertOursAlone(this.#directory, await stat(this.#directory), 0o700)
      return true
    } catch (error) {
      if (isMissing(error)) return false
      throw error
    }
  }

  #recordOf(name: string): string {
    return join(this.#directory, `${name}.run`)
  }

  async #read(name: string): Promise<DetachedRecord> {
    const path = this.#recordOf(name)
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    try {
      const info = await file.stat()
      assertOursAlone(path, info, 0o600)
      if (!info.isFile() || info.size > MAX_RECORD) throw new Error('is not a record')
      return detachedRecord.decode(await file.readFile())
    } finally {
      await file.close()
    }
  }
}
