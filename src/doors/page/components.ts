import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AppError } from '../../base/errors.ts'
import type { LifecycleEvent } from '../../protocol/events/lifecycle.ts'
import type {
  PageAbout,
  PageDecision,
  PageExplainQuery,
  PageExplanation,
  PageJournal,
  PageJournalQuery,
  PageModes,
  PageEvent,
  PagePeer,
  PagePolicy,
  PageRuns,
} from '../../protocol/page.ts'

/** Hears what the approval service tells an approver who has subscribed. */
export type DeskListener = (news: PageEvent) => void

/** A subscription: as long as it lives, somebody is there to be asked. */
export interface DeskWatch {
  /** Resolves when the desk is gone, with why. */
  readonly ended: Promise<string>
  /** Throws `conflict` where another was first, and what else the desk refuses. */
  decide(decision: PageDecision): Promise<object>
  /** Hears what these runs write, and of no others; answers those that go on. */
  follow(runs: readonly string[]): Promise<readonly LifecycleEvent[]>
  close(): void
}

/** The way to the desk of this user. */
export interface PageDesk {
  /** Throws `daemon_unreachable` where none runs. */
  watch(listener: DeskListener): Promise<DeskWatch>
}

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

const NAMES = ['page.html', 'sign-in.html', 'page.js', 'sign-in.js', 'page.css', 'icon.svg'] as const

export type PageFileName = (typeof NAMES)[number]
export type PageFiles = Readonly<Record<PageFileName, Buffer>>

export interface PageFile {
  readonly name: PageFileName
  readonly type: string
  /** Of the sign-in page, which anybody may see. */
  readonly open: boolean
}

const HTML = 'text/html; charset=utf-8'
const SCRIPT = 'text/javascript; charset=utf-8'

/** By the path that a browser asks for. */
export const PAGE_FILES: Readonly<Record<string, PageFile>> = {
  '/': { name: 'page.html', type: HTML, open: false },
  '/page.js': { name: 'page.js', type: SCRIPT, open: false },
  '/sign-in': { name: 'sign-in.html', type: HTML, open: true },
  '/sign-in.js': { name: 'sign-in.js', type: SCRIPT, open: true },
  '/page.css': { name: 'page.css', type: 'text/css; charset=utf-8', open: true },
  '/icon.svg': { name: 'icon.svg', type: 'image/svg+xml', open: true },
}

/** Reads them all: what is served is what was built when we started. Throws `bad_config` where one is missing. */
export const loadPageFiles = async (directory: string): Promise<PageFiles> => {
  const entries = NAMES.map(async (name) => {
    try {
      return [name, await readFile(join(directory, name))] as const
    } catch (error) {
      throw new AppError('bad_config', `${join(directory, name)} cannot be read: build x0x anew (npm run build)`, { cause: error })
    }
  })
  return Object.fromEntries(await Promise.all(entries)) as Record<PageFileName, Buffer>
}
