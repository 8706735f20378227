import type {
  PageAbout,
  PageExplainQuery,
  PageExplanation,
  PageJournal,
  PageJournalQuery,
  PageModes,
  PagePeer,
  PagePolicy,
  PageRuns,
} from '../../protocol/page.ts'

/** What the page shows beside questions. Each throws an `AppError` that says what to do. */
export interface PageSources {
  about(signal: AbortSignal): Promise<PageAbout>
  /** Runs that the daemon has asked other hosts for, and those of this host. */
  runs(signal: AbortSignal): Promise<Omit<PageRuns, 'going'>>
  peers(signal: AbortSignal): Promise<{ readonly peers: readonly PagePeer[] }>
  journal(query: PageJournalQuery, signal: AbortSignal): Promise<PageJournal>
  policy(signal: AbortSignal): Promise<PagePolicy>
  /** Of agents of this host's own doors. */
  modes(signal: AbortSignal): Promise<PageModes>
  revoke(grantId: string): Promise<object>
  /** As configured again. */
  takeBackModes(session: string): Promise<object>
  explain(query: PageExplainQuery, signal: AbortSignal): Promise<PageExplanation>
}
