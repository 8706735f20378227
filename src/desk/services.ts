import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { ApprovalStore } from './approval-store.ts'
import type { DeskJournal } from './journal.ts'

/** What the parts of an approval service share. Each part takes a `Pick` of it. */
export interface DeskServices {
  readonly clock: Clock
  readonly journal: DeskJournal
  readonly log: Logger
  /** The file of grants, allowlists and saved modes. */
  readonly store: ApprovalStore
}
