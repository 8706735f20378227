import { readdir, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncDirectory } from '../base/atomic-file.ts'
import { ensurePrivateDir } from '../base/file-rights.ts'
import type { Logger } from '../base/log.ts'
import { type AnyRunKey, type JournalEvent, isMeshEvent } from './events.ts'
import type { RunKey } from './run-key.ts'
import { RunMarks } from './run-marks.ts'

const NAME = /^([0-9a-f-]{36})\.([0-9a-f]{64})\.([0-9a-f]{64})$/

/** The runs that are marked as running; empty when there is no such directory. */
export const listRunningMarks = async (directory: string): Promise<RunKey[]> => {
  const names = await readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  return names.toSorted().flatMap((name) => {
    const [, request_id, agent_id, machine_id] = NAME.exec(name) ?? []
    return request_id && agent_id && machine_id ? [{ request_id, agent_id, machine_id }] : []
  })
}

/**
 * The marks of other agents' runs. A crash of ours loses none. So that a power cut loses none either, the directory is
 * synced for each, except where the journal is on the same file system, whose sync follows and covers it.
 */
export class RunningMarks extends RunMarks {
  readonly #journal: string
  #syncs = false

  /** `journal`: the file whose runs these are. */
  constructor(components: { log: Logger }, init: { directory: string; journal: string }) {
    super(components, init)
    this.#journal = init.journal
  }

  protected override async find(): Promise<RunKey[]> {
    await ensurePrivateDir(this.directory)
    const journal = await stat(dirname(this.#journal)).catch(() => null)
    this.#syncs = journal?.dev !== (await stat(this.directory)).dev
    this.leaveOthers(await readdir(this.directory), (name) => NAME.test(name))
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
    if (!NAME.test(name)) throw new RangeError('a run must be named by a request id and two ids')
    return name
  }
}
