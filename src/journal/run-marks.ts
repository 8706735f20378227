import { open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { type AnyRunKey, type JournalEvent, type LocalEvent, type LostEvent, keyOf } from './events.ts'
import { parseLine } from './parse-line.ts'
import { tailJournal } from './tail.ts'

/** Where a start after a crash looks for ends that were written: three of the largest batches, and no mark outlives one. */
const MAX_RECOVERY_LINES = 10_000

/** Another denial may be of a request that only used a running one's id. */
export const endsRun = (event: JournalEvent): event is JournalEvent & AnyRunKey =>
  event.event === 'exit' ||
  event.event === 'lost' ||
  (event.event === 'denial' && event.reason === 'spawn_failed') ||
  (event.event === 'refused' && event.request_id !== undefined)

/** Which of these runs have their end among the journal's last MAX_RECOVERY_LINES lines, as `keyOf` names them. */
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
 * The runs of a journal that have begun and not ended, kept apart from it, so that a start after a crash need not read it:
 * one empty file for each run, whose name says all, so that a mark is whole as soon as it exists.
 */
export abstract class RunMarks {
  protected readonly log: Logger
  protected readonly directory: string
  /** Names of the marks that this process has made. */
  protected readonly ours = new Set<string>()
  /** Runs of writers that died, whose `lost` line is not written yet. */
  #lost: readonly AnyRunKey[] = []
  #reporting: Promise<void> | null = null
  /** Removals under way, for which only `settled` waits: a mark that stays costs the next start. */
  readonly #leaving = new Set<Promise<void>>()

  constructor(components: { log: Logger }, init: { directory: string }) {
    this.log = components.log
    this.directory = init.directory
  }

  /** Null: a run that has no mark here. */
  protected abstract nameOf(key: AnyRunKey): string | null

  /** Makes the directory ready; answers the runs of writers that died. */
  protected abstract find(): Promise<readonly AnyRunKey[]>

  /** Does this line begin a run that is marked? It is marked before anything is started. */
  abstract marks(event: JournalEvent): event is JournalEvent & AnyRunKey

  /** Finds the runs of writers that died, for `reportLost`. */
  async open(): Promise<void> {
    this.#lost = await this.find()
  }

  /** Names that say nothing here stay for who made them: a later version may mark its runs in another way. */
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
   * Runs that cannot be reported now keep their marks and are tried again when the journal works. One whose
   * end is written only kept its mark: who wrote it died between the two.
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

  /** Throws where a run without a mark must not be. */
  async add(key: AnyRunKey): Promise<void> {
    const name = this.nameOf(key)
    if (name === null) return
    const file = await open(join(this.directory, name), 'wx', 0o600)
    this.ours.add(name)
    await file.close()
  }

  /** It is the end of a run that is marked by us. */
  isEndOfOurs(event: JournalEvent): event is JournalEvent & AnyRunKey {
    return endsRun(event) && this.ours.has(this.nameOf(event) ?? '')
  }

  removeSoon(key: AnyRunKey): void {
    const gone = this.remove(key).finally(() => this.#leaving.delete(gone))
    this.#leaving.add(gone)
  }

  /** Never throws: that a mark cannot be removed is logged. */
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

  /** All removals are done. */
  async settled(): Promise<void> {
    await Promise.all(this.#leaving)
  }
}
