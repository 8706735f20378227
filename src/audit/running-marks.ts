import { open, readdir, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'

import { syncDirectory } from '../base/atomic-file.ts'
import { ensurePrivateDir } from '../base/file-rights.ts'
import { isMeshEvent, type AnyRunKey, type JournalEvent, type RunKey } from './events.ts'
import type { RunMarks } from './run-marks.ts'

/** The name says all, so that a mark is whole as soon as it exists. */
const NAME = /^([0-9a-f-]{36})\.([0-9a-f]{64})\.([0-9a-f]{64})$/

const nameOf = (key: AnyRunKey): string => {
  const name = 'agent_id' in key ? `${key.request_id}.${key.agent_id}.${key.machine_id}` : ''
  if (!NAME.test(name)) throw new RangeError('a run must be named by a request id and two ids')
  return name
}

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
 * One empty file for each run of another agent that goes on, so that a start after a crash finds what was running
 * without reading the journal. A crash of ours does not lose it. For a power cut the journal's own sync covers it, which
 * follows on the same file system; on another the directory is synced for each.
 */
export class RunningMarks implements RunMarks {
  readonly #directory: string
  readonly #ours = new Set<string>()

  readonly #journal: string
  #syncs = false

  /** `journal`: the file whose runs these are. */
  constructor(init: { directory: string; journal: string }) {
    this.#directory = init.directory
    this.#journal = init.journal
  }

  /** Answers the runs of a daemon that died. */
  async open(): Promise<RunKey[]> {
    await ensurePrivateDir(this.#directory)
    const journal = await stat(dirname(this.#journal)).catch(() => null)
    this.#syncs = journal?.dev !== (await stat(this.#directory)).dev
    return await listRunningMarks(this.#directory)
  }

  /** Before anything is started. */
  marks(event: JournalEvent): event is JournalEvent & RunKey {
    return isMeshEvent(event) && event.event === 'request'
  }

  async add(key: AnyRunKey): Promise<void> {
    const name = nameOf(key)
    const file = await open(join(this.#directory, name), 'wx', 0o600)
    this.#ours.add(name)
    await file.close()
    if (this.#syncs) await syncDirectory(this.#directory)
  }

  has(key: AnyRunKey): boolean {
    return 'agent_id' in key && this.#ours.has(nameOf(key))
  }

  async remove(key: AnyRunKey): Promise<void> {
    const name = nameOf(key)
    this.#ours.delete(name)
    await rm(join(this.#directory, name), { force: true })
  }
}
