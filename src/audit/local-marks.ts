import { open, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'

import { errorText } from '../base/errors.ts'
import { ensurePrivateDir } from '../base/files.ts'
import type { Logger } from '../base/log.ts'
import { lifeOf, ownIdentity, type ProcessIdentity } from '../base/process-identity.ts'
import { isRequestId } from '../protocol/ids.ts'
import { LOCAL_DOORS } from '../protocol/reasons.ts'
import { isMeshEvent, type AnyRunKey, type JournalEvent, type LocalRunKey } from './events.ts'
import type { RunMarks } from './run-marks.ts'

/** The name says all, so that a mark is whole as soon as it exists: the run, and the process that has it. */
const NAME = /^([0-9a-f-]{36})\.(s_[\w-]{1,64})\.([a-z]+)\.([\w-]+)\.(\d+)-(\d+)-(\d+)$/

const nameOf = ({ request_id, session_id, door, client_name }: LocalRunKey, { pid, started, namespace }: ProcessIdentity): string =>
  `${request_id}.${session_id}.${door}.${Buffer.from(client_name).toString('base64url')}.${pid}-${started}-${namespace}`

interface LocalMark {
  readonly name: string
  readonly key: LocalRunKey
  readonly owner: ProcessIdentity
}

const parseName = (name: string): LocalMark | null => {
  const [, request_id = '', session_id = '', door, client = '', pid = '', started = '', namespace = ''] = NAME.exec(name) ?? []
  const known = LOCAL_DOORS.find((one) => one === door)
  if (!isRequestId(request_id) || known === undefined) return null
  const key = { door: known, session_id, client_name: Buffer.from(client, 'base64url').toString(), request_id }
  return { name, key, owner: { pid: Number(pid), started, namespace } }
}

/** Where runs of this host's own doors are marked, beside their journal. */
export const localMarksOf = (journal: string): string => `${journal}.running`

const listMarks = async (directory: string): Promise<LocalMark[]> => (await readdir(directory)).flatMap((name) => parseName(name) ?? [])

/** Those that run now, as far as one can know. */
export const listLocalRuns = async (directory: string): Promise<LocalRunKey[]> =>
  (await listMarks(directory).catch(() => [])).filter(({ owner }) => lifeOf(owner) === 'alive').map(({ key }) => key)

/**
 * One empty file for each run of this host's own doors. Several processes have one journal, so a mark names its
 * process as well, and who finds one whose process is gone makes it its own before it says so.
 */
export class LocalMarks implements RunMarks {
  readonly #directory: string
  readonly #log: Logger
  readonly #us = ownIdentity()
  /** Those that are made, or being made. */
  readonly #ours = new Map<string, Promise<void>>()
  #usable = false

  constructor(components: { log: Logger }, init: { directory: string }) {
    this.#log = components.log
    this.#directory = init.directory
  }

  /** Answers the runs of processes that died. Where no marks can be made there are none, and that is said. */
  async open(): Promise<readonly LocalRunKey[]> {
    try {
      await ensurePrivateDir(this.#directory)
      const left = (await listMarks(this.#directory)).filter(({ owner }) => lifeOf(owner) === 'gone')
      this.#usable = true
      const taken = await Promise.all(left.map(async (mark) => ((await this.#take(mark)) ? [mark.key] : [])))
      return taken.flat()
    } catch (error) {
      const fields = { directory: this.#directory, error: errorText(error) }
      this.#log.warn(fields, 'runs cannot be marked: those that end with this process will have no end in the journal')
      return []
    }
  }

  /** What never ran is no run: it is marked when it has started. */
  marks(event: JournalEvent): event is JournalEvent & LocalRunKey {
    return this.#usable && !isMeshEvent(event) && event.event === 'started'
  }

  async add(key: AnyRunKey): Promise<void> {
    const name = this.#nameOf(key)
    if (name === null) return
    const made = open(join(this.#directory, name), 'wx', 0o600).then(async (file) => file.close())
    this.#ours.set(name, made)
    await made
  }

  has(key: AnyRunKey): boolean {
    const name = this.#nameOf(key)
    return name !== null && this.#ours.has(name)
  }

  async remove(key: AnyRunKey): Promise<void> {
    const name = this.#nameOf(key)
    if (name === null) return
    // A run may be over before its mark is made.
    await this.#ours.get(name)?.catch(() => undefined)
    this.#ours.delete(name)
    await rm(join(this.#directory, name), { force: true })
  }

  #nameOf(key: AnyRunKey): string | null {
    return 'session_id' in key ? nameOf(key, this.#us) : null
  }

  /** False: another was faster. */
  async #take({ name, key }: LocalMark): Promise<boolean> {
    const ours = nameOf(key, this.#us)
    try {
      await rename(join(this.#directory, name), join(this.#directory, ours))
      this.#ours.set(ours, Promise.resolve())
      return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
      throw error
    }
  }
}
