import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { AnyRunKey, JournalEvent, LocalEvent, LostEvent } from './events.ts'
import { endedAmong, endsRun, keyOf } from './run-ends.ts'
import type { RunMarks } from './run-marks.ts'

/** The marks of a journal's runs. A journal may have none; that a mark cannot be removed is logged. */
export class MarkKeeper {
  readonly #log: Logger
  readonly #marks: RunMarks | null
  /** Runs of writers that died, whose `lost` line is not written yet. */
  #lost: AnyRunKey[] = []
  #reporting: Promise<void> | null = null
  /** Removals under way, for which only `settled` waits: a mark that stays costs the next start. */
  readonly #leaving = new Set<Promise<void>>()

  constructor(components: { log: Logger }, init: { marks: RunMarks | null }) {
    this.#log = components.log
    this.#marks = init.marks
  }

  /** Finds the runs of writers that died, for `reportLost`. */
  async open(): Promise<void> {
    this.#lost = [...((await this.#marks?.open()) ?? [])]
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
        this.#lost.push(key)
      }
    }
  }

  marks(event: JournalEvent): event is JournalEvent & AnyRunKey {
    return this.#marks?.marks(event) === true
  }

  /** Throws where a run without a mark must not be. */
  async add(key: AnyRunKey): Promise<void> {
    await this.#marks?.add(key)
  }

  /** It is the end of a run that is marked by us. */
  isEndOfOurs(event: JournalEvent): event is JournalEvent & AnyRunKey {
    return endsRun(event) && this.#marks?.has(event) === true
  }

  removeSoon(key: AnyRunKey): void {
    const gone = this.remove(key).finally(() => this.#leaving.delete(gone))
    this.#leaving.add(gone)
  }

  async remove(key: AnyRunKey): Promise<void> {
    try {
      await this.#marks?.remove(key)
    } catch (error) {
      this.#log.warn({ error: errorText(error) }, 'the mark of an ended run could not be removed')
    }
  }

  /** All removals are done. */
  async settled(): Promise<void> {
    await Promise.all(this.#leaving)
  }
}
