import { AppError } from '../base/errors.ts'
import type { StartableEntry } from '../base/startable.ts'
import type { AgentSigner } from '../identity/signing.ts'
import type { ApprovalOutcome } from '../journal/desk-events.ts'
import { Journal, type JournalComponents } from '../journal/journal.ts'
import type { ModeOverride } from '../protocol/desk/messages.ts'
import type { ApprovalRequest, SealedAnswer } from '../protocol/desk/approval-request.ts'
import type { LifecycleEvent } from '../protocol/events/lifecycle.ts'
import { ApprovalStore, storeProblem } from './approval-store.ts'
import type { DeskLink, LiveRunSource, WaitNotice } from './desk-link.ts'
import { ApprovalService } from './approval-service.ts'
import { DeskRecords } from './history.ts'
import { DeskJournal } from './journal.ts'
import { DeskServer } from './server.ts'
import { tokenBytes } from './store-format.ts'
import { type EngineRuns, OutputSubscriptions } from './watchers.ts'

export interface LocalDeskLinkComponents {
  readonly desk: ApprovalService
  readonly runs: OutputSubscriptions
  readonly store: ApprovalStore
}

/** The way of an engine to the desk of its own process. */
export class LocalDeskLink implements DeskLink {
  readonly #components: LocalDeskLinkComponents
  readonly #name: string
  #key: Uint8Array | null = null
  #runs: EngineRuns | null = null

  /** `name`: what the engine calls itself. */
  constructor(components: LocalDeskLinkComponents, init: { readonly name: string }) {
    this.#components = components
    this.#name = init.name
  }

  async ask(question: ApprovalRequest, signal: AbortSignal, onPending: (waiting: WaitNotice) => void): Promise<SealedAnswer> {
    const { desk, store } = this.#components
    const answer = await desk.ask(question, this.#name, signal, onPending)
    this.#key = tokenBytes(await store.read())
    return answer
  }

  event(event: LifecycleEvent): void {
    this.#runs?.heard(event)
    this.#components.desk.event(event)
  }

  serve(runs: LiveRunSource): void {
    this.#runs = this.#components.runs.engine((followed) => runs.follow(followed))
    for (const event of runs.running) this.#runs.heard(event)
  }

  async override(session: string, agent: string | null): Promise<ModeOverride | null> {
    return this.#components.desk.modes.of(session, agent).catch((error: unknown) => {
      throw new AppError('approval_unavailable', storeProblem(error), { cause: error })
    })
  }

  approvalKey(): Uint8Array {
    if (this.#key === null) throw new AppError('approval_unavailable')
    return this.#key
  }
}

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
  const desk = new ApprovalService({ ...components, journal, store }, { askTimeoutMs })
  const runs = new OutputSubscriptions(components)
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
