import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Flood } from '../protocol/desk/messages.ts'
import type { ApprovalRequest } from '../protocol/desk/approval-request.ts'
import { FLOOD_SUMMARY_MS, MAX_FLOODS, MAX_FLOOD_NAME } from '../protocol/limits/approvals.ts'
import type { DeskJournal } from './journal.ts'
import { countedAs } from './approval-request-queue.ts'
import type { Watchers } from './watchers.ts'

export interface FloodNotifierComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly journal: Pick<DeskJournal, 'settled'>
  readonly watchers: Pick<Watchers, 'emit'>
}

/** Counts the questions that were too many, and tells of them: humans at once, and the journal in one line for each asker. */
export class FloodNotifier {
  readonly #components: FloodNotifierComponents
  readonly #floods = new Map<string, Flood>()
  #timer: Timer | null = null

  constructor(components: FloodNotifierComponents) {
    this.#components = components
  }

  /** Those that the journal does not have yet. */
  get all(): readonly Flood[] {
    return [...this.#floods.values()]
  }

  count(question: ApprovalRequest): void {
    const { clock, watchers } = this.#components
    const known = countedAs(question).slice(0, MAX_FLOOD_NAME)
    // An asker with ever new or long names takes no memory either, and no room of what waits in the list that humans get.
    const asker = this.#floods.has(known) || this.#floods.size < MAX_FLOODS ? known : 'others'
    const flood = { asker, count: (this.#floods.get(asker)?.count ?? 0) + 1, last_at_ms: clock.now() }
    this.#floods.set(asker, flood)
    watchers.emit({ type: 'flood', ...flood })
    this.#timer ??= clock.setTimeout(() => void this.write(), FLOOD_SUMMARY_MS, { unref: true })
  }

  async write(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    const { journal, log } = this.#components
    const floods = this.all
    this.#floods.clear()
    for (const { asker, count } of floods)
      await journal
        .settled({ question_id: null, permit_sha256: null, outcome: 'too_many', by: asker, reason: 'denied unseen', count })
        .catch((error: unknown) => log.warn({ asker, count, err: errorText(error) }, 'questions that were too many are not in the journal'))
  }
}
