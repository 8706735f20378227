import type { Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Flood } from '../protocol/desk/messages.ts'
import type { ApprovalRequest } from '../protocol/desk/approval-request.ts'
import { FLOOD_SUMMARY_MS, MAX_FLOODS, MAX_FLOOD_NAME } from '../protocol/limits/approvals.ts'
import { countedAs } from './approval-request-queue.ts'
import type { Watchers } from './watchers.ts'
import type { DeskServices } from './services.ts'

type FloodNotifierDeps = Pick<DeskServices, 'clock' | 'log'> & {
  readonly journal: Pick<DeskServices['journal'], 'settled'>
  readonly watchers: Pick<Watchers, 'emit'>
}

/** Reports rate-limited approval requests: to connected approvers at once, to the approval log as one line per requester. */
export class FloodNotifier {
  readonly #deps: FloodNotifierDeps
  readonly #floods = new Map<string, Flood>()
  #timer: Timer | null = null

  constructor(deps: FloodNotifierDeps) {
    this.#deps = deps
  }

  /** Counts that are not in the log yet. */
  get all(): readonly Flood[] {
    return [...this.#floods.values()]
  }

  count(question: ApprovalRequest): void {
    const { clock, watchers } = this.#deps
    const known = countedAs(question).slice(0, MAX_FLOOD_NAME)
    // Bounds the number and length of names, so that a requester that changes its name occupies no memory.
    const asker = this.#floods.has(known) || this.#floods.size < MAX_FLOODS ? known : 'others'
    const flood = { asker, count: (this.#floods.get(asker)?.count ?? 0) + 1, last_at_ms: clock.now() }
    this.#floods.set(asker, flood)
    watchers.emit({ type: 'flood', ...flood })
    this.#timer ??= clock.setTimeout(() => void this.write(), FLOOD_SUMMARY_MS, { unref: true })
  }

  async write(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    const { journal, log } = this.#deps
    const floods = this.all
    this.#floods.clear()
    for (const { asker, count } of floods)
      await journal
        .settled({ question_id: null, permit_sha256: null, outcome: 'too_many', by: asker, reason: 'denied unseen', count })
        .catch((error: unknown) =>
          log.warn({ asker, count, err: errorText(error) }, 'approval requests above the limit are not in the approval log'),
        )
  }
}
