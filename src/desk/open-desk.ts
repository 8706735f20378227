import type { StartableEntry } from '../base/startable.ts'
import type { AgentSigner } from '../identity/signing.ts'
import type { ApprovalOutcome } from '../journal/desk-events.ts'
import { Journal, type JournalComponents } from '../journal/journal.ts'
import { ApprovalStore } from './approval-store.ts'
import { DeskJournal } from './desk-journal.ts'
import type { DeskLink } from './desk-link.ts'
import { DeskRecords } from './desk-records.ts'
import { DeskServer } from './desk-server.ts'
import { Desk } from './desk.ts'
import { FollowedRuns } from './followed-runs.ts'
import { LocalDeskLink } from './local-desk-link.ts'

export interface OpenDeskInit {
  readonly paths: { readonly approvals: string; readonly approvalsSocket: string; readonly approvalsJournal: string }
  readonly operatorKey: () => Promise<Uint8Array>
  /** How long a human has. */
  readonly askTimeoutMs: number
  /** Whose key signs the heads of the journal; null: nobody's. */
  readonly signer: AgentSigner | null
}

/** For diagnostics. */
export interface DeskCounts {
  /** Questions that wait for a human, and windows of humans that watch. */
  readonly waiting: number
  readonly windows: number
  /** Questions that were decided since it was opened. */
  readonly outcomes: Readonly<Record<ApprovalOutcome, number>>
}

/** A desk with all that it needs, to be started in order and stopped in reverse. */
export interface OpenDesk {
  readonly entries: readonly StartableEntry[]
  /** For an engine of the same process. */
  link(name: string): DeskLink
  counts(): DeskCounts
}

export const openDesk = (components: Omit<JournalComponents, 'signer'>, init: OpenDeskInit): OpenDesk => {
  const { paths, operatorKey, askTimeoutMs, signer } = init
  const lines = new Journal({ ...components, signer }, { path: paths.approvalsJournal, marks: null })
  const journal = new DeskJournal({ journal: lines })
  const store = new ApprovalStore({ ...components, journal: lines }, { path: paths.approvals, socketPath: paths.approvalsSocket })
  const desk = new Desk({ ...components, journal, store }, { askTimeoutMs })
  const runs = new FollowedRuns(components)
  const records = new DeskRecords({ store, journal, modes: desk.modes })
  const server = new DeskServer({ ...components, desk, journal, records, runs, store }, { path: paths.approvalsSocket, operatorKey })
  return {
    entries: [
      { name: 'journal of approvals', startable: lines },
      { name: 'store of approvals', startable: store },
      { name: 'socket of approvals', startable: server },
      // Stopped first: whoever waits is told so, on a connection that is still there.
      { name: 'desk', startable: desk },
    ],
    link: (name) => new LocalDeskLink({ desk, runs, store }, { name }),
    counts: () => ({ waiting: desk.waiting.questions.length, windows: desk.waiting.windows, outcomes: journal.outcomes }),
  }
}
