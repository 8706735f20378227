import { open, rm } from 'node:fs/promises'
import { join } from 'node:path'

import type { AnyRunKey, JournalEvent } from './events.ts'

/**
 * What has begun and not ended, kept apart from the journal, so that a start after a crash need not read it: one empty
 * file for each run, whose name says all, so that a mark is whole as soon as it exists.
 */
export abstract class RunMarks {
  protected readonly directory: string
  protected readonly ours = new Set<string>()

  constructor(init: { directory: string }) {
    this.directory = init.directory
  }

  /** Null: a run that has no mark here. */
  protected abstract nameOf(key: AnyRunKey): string | null

  /** Answers the runs of writers that died. */
  abstract open(): Promise<readonly AnyRunKey[]>

  /** Does this line begin a run that is marked? It is marked before anything is started. */
  abstract marks(event: JournalEvent): event is JournalEvent & AnyRunKey

  /** Throws where a run without a mark must not be. */
  async add(key: AnyRunKey): Promise<void> {
    const name = this.nameOf(key)
    if (name === null) return
    const file = await open(join(this.directory, name), 'wx', 0o600)
    this.ours.add(name)
    await file.close()
  }

  /** Is it marked by us? */
  has(key: AnyRunKey): boolean {
    const name = this.nameOf(key)
    return name !== null && this.ours.has(name)
  }

  async remove(key: AnyRunKey): Promise<void> {
    const name = this.nameOf(key)
    if (name === null) return
    this.ours.delete(name)
    await rm(join(this.directory, name), { force: true })
  }
}
