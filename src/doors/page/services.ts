import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { LifecycleEvent } from '../../protocol/events/lifecycle.ts'
import type {
  PageAbout,
  PageContactChange,
  PageDecision,
  PageExplainQuery,
  PageExplanation,
  PageModes,
  PageEvent,
  PagePolicy,
} from '../../protocol/page.ts'
import type { PageEnrolKeys, PageEnrolWish, PageEnrolled } from '../../protocol/page-enrol.ts'
import type {
  PageContacts,
  PageContactsQuery,
  PageDetachedOutput,
  PageFanout,
  PageJournal,
  PageJournalQuery,
  PageOverview,
  PagePeers,
  PagePeersQuery,
  PagePing,
  PageRunDetail,
  PageRuns,
  PageRunsQuery,
} from '../../protocol/page-lists.ts'

/** Receives what the approval service sends to a subscribed approver. */
export type DeskListener = (event: PageEvent) => void

/** A subscription. While it is open, the approval service counts this approver as reachable. */
export interface DeskWatch {
  /** Resolves with the reason when the approval service disconnects. */
  readonly ended: Promise<string>
  /** Throws `conflict` if another approver decided first, and other refusals of the approval service. */
  decide(decision: PageDecision): Promise<object>
  /** Subscribes to the output of exactly these runs. Returns those that are running. */
  follow(runs: readonly string[]): Promise<readonly LifecycleEvent[]>
  close(): void
}

/** Connects to the approval service of this user. */
export interface PageDesk {
  /** Throws `daemon_unreachable` if no approval service runs. */
  watch(listener: DeskListener): Promise<DeskWatch>
}

/** Data that the page shows in addition to approval requests. Each throws an `AppError` that says what to do. */
export interface PageSources {
  about(signal: AbortSignal): Promise<PageAbout>
  overview(): Promise<PageOverview>
  /** Runs that the daemon requested, and runs on this machine. */
  runs(query: PageRunsQuery): Promise<PageRuns>
  /** Throws `unknown_run`. */
  run(key: string, signal: AbortSignal): Promise<PageRunDetail>
  /** Asks the host of a detached run for the end of its output. */
  detachedOutput(key: string, signal: AbortSignal): Promise<PageDetachedOutput>
  /** Asks for the end of a run that this agent requested, as the operator. Throws `unknown_run`, `conflict`, `operator_proof_required`. */
  stopRun(key: string, signal: AbortSignal): Promise<object>
  fanouts(): Promise<{ readonly rows: readonly PageFanout[]; readonly problems: readonly string[] }>
  peers(query: PagePeersQuery): Promise<PagePeers>
  /** Measures an agent now. */
  ping(agentId: string, signal: AbortSignal): Promise<PagePing>
  contacts(query: PageContactsQuery): Promise<PageContacts>
  /** Changes a contact as the operator. */
  changeContact(change: PageContactChange): Promise<object>
  journal(query: PageJournalQuery, signal: AbortSignal): Promise<PageJournal>
  enrolKeys(): Promise<PageEnrolKeys>
  /** Creates an enrolment key as the operator. */
  createEnrolKey(wish: PageEnrolWish): Promise<PageEnrolled>
  revokeEnrolKey(id: string): Promise<object>
  policy(signal: AbortSignal): Promise<PagePolicy>
  /** Execution modes of clients of this machine's own interfaces. */
  modes(signal: AbortSignal): Promise<PageModes>
  revoke(grantId: string): Promise<object>
  /** Restores the configured modes of a session. */
  takeBackModes(session: string): Promise<object>
  explain(query: PageExplainQuery, signal: AbortSignal): Promise<PageExplanation>
}

export interface PageServices {
  readonly clock: Clock
  /** Subscribes to the approval service and sends decisions to it. */
  readonly desk: PageDesk
  readonly files: PageFiles
  readonly log: Pick<Logger, 'warn'>
  readonly sources: PageSources
}

const NAMES = ['page.html', 'sign-in.html', 'page.js', 'sign-in.js', 'page.css', 'icon.svg'] as const

export type PageFileName = (typeof NAMES)[number]
export type PageFiles = Readonly<Record<PageFileName, Buffer>>

export interface PageFile {
  readonly name: PageFileName
  readonly type: string
  /** Whether the file belongs to the sign-in page, which needs no session. */
  readonly open: boolean
}

const HTML = 'text/html; charset=utf-8'
const SCRIPT = 'text/javascript; charset=utf-8'

/** Files by URL path. */
export const PAGE_FILES: Readonly<Record<string, PageFile>> = {
  '/': { name: 'page.html', type: HTML, open: false },
  '/page.js': { name: 'page.js', type: SCRIPT, open: false },
  '/sign-in': { name: 'sign-in.html', type: HTML, open: true },
  '/sign-in.js': { name: 'sign-in.js', type: SCRIPT, open: true },
  '/page.css': { name: 'page.css', type: 'text/css; charset=utf-8', open: true },
  '/icon.svg': { name: 'icon.svg', type: 'image/svg+xml', open: true },
}

/** Reads all files at the start, so that a rebuild does not change a served page. Throws `bad_config` if one is missing. */
export const loadPageFiles = async (directory: string): Promise<PageFiles> => {
  const entries = NAMES.map(async (name) => {
    try {
      return [name, await readFile(join(directory, name))] as const
    } catch (error) {
      throw new AppError('bad_config', `cannot read ${join(directory, name)}: build x0x again (npm run build)`, { cause: error })
    }
  })
  return Object.fromEntries(await Promise.all(entries)) as Record<PageFileName, Buffer>
}
