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
import type { DeskServices } from './services.ts'
import type { DeskSessionDeps } from './sessions.ts'

type LocalDeskLinkDeps = Pick<DeskServices, 'store'> & Pick<DeskSessionDeps, 'desk' | 'runs'>

/** Connects an engine to the approval service in the same process. */
export class LocalDeskLink implements DeskLink {
  readonly #deps: LocalDeskLinkDeps
  readonly #name: string
  #key: Uint8Array | null = null
  #runs: EngineRuns | null = null

  constructor(deps: LocalDeskLinkDeps, init: { readonly name: string }) {
    this.#deps = deps
    this.#name = init.name
  }

  async ask(question: ApprovalRequest, signal: AbortSignal, onPending: (waiting: WaitNotice) => void): Promise<SealedAnswer> {
    const { desk, store } = this.#deps
    const answer = await desk.ask(question, this.#name, signal, onPending)
    this.#key = tokenBytes(await store.read())
    return answer
  }

  event(event: LifecycleEvent): void {
    this.#runs?.onEvent(event)
    this.#deps.desk.event(event)
  }

  serve(runs: LiveRunSource): void {
    this.#runs = this.#deps.runs.engine((followed) => runs.follow(followed))
    for (const event of runs.running) this.#runs.onEvent(event)
  }

  async override(session: string, agent: string | null): Promise<ModeOverride | null> {
    return this.#deps.desk.modes.of(session, agent).catch((error: unknown) => {
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
  /** How long an approver may take. */
  readonly askTimeoutMs: number
  /** Signs the heads of the approval log. Null means they are unsigned. */
  readonly signer: AgentSigner | null
}

export interface DeskCounts {
  /** Pending requests, and connected approval clients. */
  readonly waiting: number
  readonly windows: number
  /** Decisions since the start. */
  readonly outcomes: Readonly<Record<ApprovalOutcome, number>>
}

/** An approval service with its parts, to be started in order and stopped in reverse. */
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
      { name: 'approval log', startable: lines },
      { name: 'approval store', startable: store },
      { name: 'approval socket', startable: server },
      // Stopped first, so that pending requests are denied while their connections are still open.
      { name: 'desk', startable: desk },
    ],
    link: (name) => new LocalDeskLink({ desk, runs, store }, { name }),
    counts: () => ({ waiting: desk.waiting.questions.length, windows: desk.waiting.windows, outcomes: journal.outcomes }),
  }
}
