import type { HttpRefusedEvent, LocalEvent, RefusedEvent } from '../../audit/events.ts'
import type { Journal } from '../../audit/journal.ts'
import { RecalledRuns, type RecalledRun } from '../../audit/recalled-runs.ts'
import { AppError, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'

/** The journal, as this host's own doors write it. */
export class LocalJournal {
  readonly #journal: Journal | null
  readonly #log: Logger
  readonly #recalled: RecalledRuns | null

  /** `journal`: null where the configuration wants none. */
  constructor(components: { journal: Journal | null; log: Logger }) {
    this.#journal = components.journal
    this.#log = components.log
    this.#recalled = components.journal && new RecalledRuns({ path: components.journal.path })
  }

  /** Settles when it is recorded; throws `journal_unavailable`: then what it announces must not happen. */
  async record(event: LocalEvent): Promise<void> {
    await this.#journal?.append(event)
  }

  /** The run that was begun with this key; null: none, or there is no journal. Throws `journal_unavailable`: then nobody knows. */
  async recall(keySha256: string): Promise<RecalledRun | null> {
    try {
      return (await this.#recalled?.find(keySha256)) ?? null
    } catch (error) {
      throw new AppError('journal_unavailable', `whether the key was used cannot be read: ${errorText(error)}`, { cause: error })
    }
  }

  /** As `record`, for what has happened already: a failure is logged. */
  async note(event: LocalEvent): Promise<void> {
    return this.#logged(event, this.record(event))
  }

  /** As `note`, for a refusal: the journal only counts those above the limit of their source. */
  async refused(event: RefusedEvent | HttpRefusedEvent): Promise<void> {
    return this.#logged(event, this.#journal?.refuse(event))
  }

  async #logged(event: LocalEvent, writing: Promise<void> | undefined): Promise<void> {
    try {
      await writing
    } catch (error) {
      const run = 'request_id' in event ? { request_id: event.request_id } : {}
      this.#log.error({ event: event.event, ...run, error: errorText(error) }, 'a line of the journal could not be written')
    }
  }
}
