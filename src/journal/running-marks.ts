import { open, readdir, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { errnoOf, errorText } from '../base/errors.ts'
import { ensurePrivateDir } from '../base/file-permissions.ts'
import { syncDirectory } from '../base/files.ts'
import type { Logger } from '../base/log.ts'
import { type ProcessIdentity, identityFrom, identityText, processState, ownIdentity } from '../base/process-info.ts'
import { isRequestId } from '../protocol/ids.ts'
import { LOCAL_INTERFACES } from '../protocol/reasons.ts'
import { type AnyRunKey, type JournalEvent, type LocalEvent, type LocalRunKey, type LostEvent, isMeshEvent, keyOf } from './events.ts'
import { parseLine } from './parse-line.ts'
import type { RunKey } from './run-key.ts'
import { tailJournal } from './tail.ts'

/** Lines searched for ends after a crash. They cover three of the largest batches, and no mark outlives those. */
const MAX_RECOVERY_LINES = 10_000

/** Another denial may be of a request that only used the ID of a running one. */
export const endsRun = (event: JournalEvent): event is JournalEvent & AnyRunKey =>
  event.event === 'exit' ||
  event.event === 'lost' ||
  (event.event === 'denial' && event.reason === 'spawn_failed') ||
  (event.event === 'refused' && event.request_id !== undefined)

/** The runs with an end among the journal's last MAX_RECOVERY_LINES lines, by `keyOf`. */
export const endedAmong = async (path: string, runs: readonly AnyRunKey[]): Promise<ReadonlySet<string>> => {
  const wanted = new Set(runs.map(keyOf))
  const ended = new Set<string>()
  if (wanted.size === 0) return ended
  for await (const text of tailJournal(path, { lines: MAX_RECOVERY_LINES, follow: false })) {
    const line = parseLine(Buffer.from(text))
    if (line !== null && endsRun(line) && wanted.has(keyOf(line))) ended.add(keyOf(line))
  }
  return ended
}

/**
 * Marks of running runs, next to the journal so that a start after a crash need not read all of it. Each run has one empty file whose name
 * contains all data, so a mark is complete when it exists.
 */
export abstract class RunMarks {
  protected readonly log: Logger
  protected readonly directory: string
  /** Names of marks that this process made. */
  protected readonly ours = new Set<string>()
  /** Runs of writers that died and have no `lost` line yet. */
  #lost: readonly AnyRunKey[] = []
  #reporting: Promise<void> | null = null
  /** Removals in progress by the mark's name. Only `settled` and a run with the same name wait for them. */
  readonly #leaving = new Map<string, Promise<void>>()

  constructor(components: { log: Logger }, init: { directory: string }) {
    this.log = components.log
    this.directory = init.directory
  }

  /** Null for a run without a mark in this directory. */
  protected abstract nameOf(key: AnyRunKey): string | null

  /** Prepares the directory, and returns the runs of writers that died. */
  protected abstract find(): Promise<readonly AnyRunKey[]>

  /** True if the line begins a marked run. The mark is made before anything starts. */
  abstract marks(event: JournalEvent): event is JournalEvent & AnyRunKey

  /** Finds the runs of writers that died, for `reportLost`. */
  async open(): Promise<void> {
    this.#lost = await this.find()
  }

  /** Unknown names are kept, because a later version may have made them. */
  protected leaveOthers(names: readonly string[], isMark: (name: string) => boolean): void {
    const others = names.filter((name) => !isMark(name))
    if (others.length > 0)
      this.log.warn(
        { directory: this.directory, count: others.length },
        'marks of runs that this version does not know are left for a later one',
      )
  }

  get hasLost(): boolean {
    return this.#lost.length > 0
  }

  /**
   * Runs that cannot be reported now keep their marks and are retried when the journal works. If the end is written already, the writer
   * died before it removed the mark.
   */
  async reportLost(path: string, write: (lost: LostEvent | LocalEvent) => Promise<void>): Promise<void> {
    this.#reporting ??= this.#report(path, write).finally(() => (this.#reporting = null))
    return this.#reporting
  }

  async #report(path: string, write: (lost: LostEvent | LocalEvent) => Promise<void>): Promise<void> {
    const keys = this.#lost
    this.#lost = []
    const ended = await endedAmong(path, keys).catch((): ReadonlySet<string> => new Set())
    for (const key of keys) {
      try {
        if (!ended.has(keyOf(key))) await write({ event: 'lost', ...key })
        await this.remove(key)
      } catch {
        this.#lost = [...this.#lost, key]
      }
    }
  }

  /** Throws if a run without a mark is not permitted. */
  async add(key: AnyRunKey): Promise<void> {
    const name = this.nameOf(key)
    if (name === null) return
    await this.#leaving.get(name)
    const file = await open(join(this.directory, name), 'wx', 0o600)
    this.ours.add(name)
    await file.close()
  }

  /** True for the end of a run that this process marked. */
  isEndOfOurs(event: JournalEvent): event is JournalEvent & AnyRunKey {
    return endsRun(event) && this.ours.has(this.nameOf(event) ?? '')
  }

  removeSoon(key: AnyRunKey): void {
    const name = this.nameOf(key) ?? ''
    const gone = this.remove(key).finally(() => this.#leaving.get(name) === gone && this.#leaving.delete(name))
    this.#leaving.set(name, gone)
  }

  /** Never throws. A failure is logged. */
  async remove(key: AnyRunKey): Promise<void> {
    try {
      const name = this.nameOf(key)
      if (name === null) return
      this.ours.delete(name)
      await rm(join(this.directory, name), { force: true })
    } catch (error) {
      this.log.warn({ request_id: key.request_id, error: errorText(error) }, 'the mark of an ended run could not be removed')
    }
  }

  async settled(): Promise<void> {
    await Promise.all(this.#leaving.values())
  }
}

const PEER_NAME = /^([0-9a-f-]{36})\.([0-9a-f]{64})\.([0-9a-f]{64})$/

/** The marked runs, or empty if the directory does not exist. */
export const listRunningMarks = async (directory: string): Promise<RunKey[]> => {
  const names = await readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  return names.toSorted().flatMap((name) => {
    const [, request_id, agent_id, machine_id] = PEER_NAME.exec(name) ?? []
    return request_id && agent_id && machine_id ? [{ request_id, agent_id, machine_id }] : []
  })
}

/**
 * Marks of other agents' runs. They survive a crash of this process. To survive a power failure too, the directory is synced for each mark,
 * unless the journal is on the same file system, whose sync covers it.
 */
export class RunningMarks extends RunMarks {
  readonly #journal: string
  #syncs = false

  /** `journal` is the file of these runs. */
  constructor(components: { log: Logger }, init: { directory: string; journal: string }) {
    super(components, init)
    this.#journal = init.journal
  }

  protected override async find(): Promise<RunKey[]> {
    await ensurePrivateDir(this.directory)
    const journal = await stat(dirname(this.#journal)).catch(() => null)
    this.#syncs = journal?.dev !== (await stat(this.directory)).dev
    this.leaveOthers(await readdir(this.directory), (name) => PEER_NAME.test(name))
    return await listRunningMarks(this.directory)
  }

  override marks(event: JournalEvent): event is JournalEvent & RunKey {
    return isMeshEvent(event) && event.event === 'request'
  }

  override async add(key: AnyRunKey): Promise<void> {
    await super.add(key)
    if (this.#syncs) await syncDirectory(this.directory)
  }

  protected override nameOf(key: AnyRunKey): string | null {
    if (!('agent_id' in key)) return null
    const name = `${key.request_id}.${key.agent_id}.${key.machine_id}`
    if (!PEER_NAME.test(name)) throw new RangeError('a run must be named by a request id and two ids')
    return name
  }
}

/** Request ID, session and process of a run. */
const LOCAL_NAME = /^([0-9a-f-]{36})\.(s_[\w-]{1,64})\.([a-z]+)\.([\w-]+)\.([0-9a-f-]+)$/

const nameOf = ({ request_id, session_id, door, client_name }: LocalRunKey, us: ProcessIdentity): string => {
  const client = Buffer.from(client_name).toString('base64url')
  return `${request_id}.${session_id}.${door}.${client}.${identityText(us, '-')}`
}

interface LocalMark {
  readonly name: string
  readonly key: LocalRunKey
  readonly owner: ProcessIdentity
}

const parseName = (name: string): LocalMark | null => {
  const [, request_id = '', session_id = '', door, client = '', process = ''] = LOCAL_NAME.exec(name) ?? []
  const owner = identityFrom(process)
  const known = LOCAL_INTERFACES.find((one) => one === door)
  if (!isRequestId(request_id) || known === undefined || owner === null) return null
  const key = { door: known, session_id, client_name: Buffer.from(client, 'base64url').toString(), request_id }
  return { name, key, owner }
}

/** Directory of the marks of local runs, next to their journal. */
export const localMarksOf = (journal: string): string => `${journal}.running`

const listMarks = async (directory: string): Promise<LocalMark[]> => (await readdir(directory)).flatMap((name) => parseName(name) ?? [])

/** Running runs, and runs whose process cannot be inspected. */
export const listLocalRuns = async (directory: string): Promise<LocalRunKey[]> =>
  (await listMarks(directory).catch(() => [])).filter(({ owner }) => processState(owner) !== 'gone').map(({ key }) => key)

/** True while the process of this run lives and the run has not ended. */
export const isMarked = async (directory: string, requestId: string): Promise<boolean> =>
  (await listMarks(directory).catch(() => [])).some(({ key, owner }) => key.request_id === requestId && processState(owner) === 'alive')

/**
 * Marks of local runs. Several processes share one journal, so a mark also names its process. A process that finds the mark of an ended one
 * takes it over before it reports the run.
 */
export class LocalMarks extends RunMarks {
  readonly #us = ownIdentity()
  #usable = false

  /** If marks cannot be made, a warning is logged and runs have no marks. */
  protected override async find(): Promise<readonly LocalRunKey[]> {
    try {
      await ensurePrivateDir(this.directory)
      this.leaveOthers(await readdir(this.directory), (name) => parseName(name) !== null)
      const left = (await listMarks(this.directory)).filter(({ owner }) => processState(owner) === 'gone')
      this.#usable = true
      const taken = await Promise.all(left.map(async (mark) => ((await this.#take(mark)) ? [mark.key] : [])))
      return taken.flat()
    } catch (error) {
      this.#warn(error, 'runs cannot be marked: if this process is killed, the audit log will lack the ends of its runs')
      return []
    }
  }

  override marks(event: JournalEvent): event is JournalEvent & LocalRunKey {
    return this.#usable && !isMeshEvent(event) && event.event === 'request'
  }

  /** Never throws. Without a mark, a crash loses the end of the run, which is better than losing the run. */
  override async add(key: AnyRunKey): Promise<void> {
    await super.add(key).catch((error: unknown) => this.#warn(error, 'a run could not be marked'))
  }

  protected override nameOf(key: AnyRunKey): string | null {
    return 'session_id' in key ? nameOf(key, this.#us) : null
  }

  /** Renames the mark to this process. False if another process was faster or the system refused. The next start retries. */
  async #take({ name, key }: LocalMark): Promise<boolean> {
    const ours = nameOf(key, this.#us)
    try {
      await rename(join(this.directory, name), join(this.directory, ours))
      this.ours.add(ours)
      return true
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') this.#warn(error, 'a run of an ended process could not be taken over')
      return false
    }
  }

  #warn(error: unknown, what: string): void {
    this.log.warn({ directory: this.directory, error: errorText(error) }, what)
  }
}
