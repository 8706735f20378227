import { readdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { errnoOf, errorText } from '../base/errors.ts'
import { ensurePrivateDir } from '../base/file-rights.ts'
import { type ProcessIdentity, identityFrom, identityText, lifeOf, ownIdentity } from '../base/process-identity.ts'
import { isRequestId } from '../protocol/ids.ts'
import { LOCAL_DOORS } from '../protocol/reasons.ts'
import { type AnyRunKey, type JournalEvent, type LocalRunKey, isMeshEvent } from './events.ts'
import { RunMarks } from './run-marks.ts'

/** The run, and the process that has it. */
const NAME = /^([0-9a-f-]{36})\.(s_[\w-]{1,64})\.([a-z]+)\.([\w-]+)\.([0-9a-f-]+)$/

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
  const [, request_id = '', session_id = '', door, client = '', process = ''] = NAME.exec(name) ?? []
  const owner = identityFrom(process)
  const known = LOCAL_DOORS.find((one) => one === door)
  if (!isRequestId(request_id) || known === undefined || owner === null) return null
  const key = { door: known, session_id, client_name: Buffer.from(client, 'base64url').toString(), request_id }
  return { name, key, owner }
}

/** Where runs of this host's own doors are marked, beside their journal. */
export const localMarksOf = (journal: string): string => `${journal}.running`

const listMarks = async (directory: string): Promise<LocalMark[]> => (await readdir(directory)).flatMap((name) => parseName(name) ?? [])

/** The runs that go on now, and those whose process cannot be looked at from here. */
export const listLocalRuns = async (directory: string): Promise<LocalRunKey[]> =>
  (await listMarks(directory).catch(() => [])).filter(({ owner }) => lifeOf(owner) !== 'gone').map(({ key }) => key)

/** True while the process that has this run lives and the run has not ended. */
export const isMarked = async (directory: string, requestId: string): Promise<boolean> =>
  (await listMarks(directory).catch(() => [])).some(({ key, owner }) => key.request_id === requestId && lifeOf(owner) === 'alive')

/**
 * Of the runs of this host's own doors. Several processes have one journal, so a mark names its process as well, and
 * who finds one whose process is gone makes it its own before it says so.
 */
export class LocalMarks extends RunMarks {
  readonly #us = ownIdentity()
  #usable = false

  /** Where no marks can be made there are none, and a warning says so. */
  protected override async find(): Promise<readonly LocalRunKey[]> {
    try {
      await ensurePrivateDir(this.directory)
      this.leaveOthers(await readdir(this.directory), (name) => parseName(name) !== null)
      const left = (await listMarks(this.directory)).filter(({ owner }) => lifeOf(owner) === 'gone')
      this.#usable = true
      const taken = await Promise.all(left.map(async (mark) => ((await this.#take(mark)) ? [mark.key] : [])))
      return taken.flat()
    } catch (error) {
      this.#warn(error, 'runs cannot be marked: those that end with this process will have no end in the journal')
      return []
    }
  }

  override marks(event: JournalEvent): event is JournalEvent & LocalRunKey {
    return this.#usable && !isMeshEvent(event) && event.event === 'request'
  }

  /** Never throws: that a run has no mark costs its end, should we die, and not the run. */
  override async add(key: AnyRunKey): Promise<void> {
    await super.add(key).catch((error: unknown) => this.#warn(error, 'a run could not be marked'))
  }

  protected override nameOf(key: AnyRunKey): string | null {
    return 'session_id' in key ? nameOf(key, this.#us) : null
  }

  /** Renames the mark to ours. False: another process was faster, or the system refused, and the next start tries again. */
  async #take({ name, key }: LocalMark): Promise<boolean> {
    const ours = nameOf(key, this.#us)
    try {
      await rename(join(this.directory, name), join(this.directory, ours))
      this.ours.add(ours)
      return true
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') this.#warn(error, 'a run of a process that is gone could not be taken over')
      return false
    }
  }

  #warn(error: unknown, what: string): void {
    this.log.warn({ directory: this.directory, error: errorText(error) }, what)
  }
}
