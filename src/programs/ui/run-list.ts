import type { Clock } from '../../base/clock.ts'
import { attempt, errorText, isAppError } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import { JournalCursor } from '../../journal/cursor.ts'
import { openJournal } from '../../journal/tail.ts'
import { denialText } from '../../protocol/denial-text.ts'
import type { LifecycleEvent } from '../../protocol/events/lifecycle.ts'
import { type Fields, isTable } from '../../protocol/json-table.ts'
import {
  MAX_PAGE_CELLS,
  MAX_PAGE_FANOUTS,
  MAX_PAGE_JOURNAL_BYTES,
  MAX_PAGE_ROWS,
  MAX_PAGE_RUN_HISTORY,
} from '../../protocol/limits/page.ts'
import { MAX_EVENTS_AT_ONCE, MAX_KEPT_EVENTS } from '../../protocol/limits/events.ts'
import {
  type PageFanout,
  type PageRun,
  type PageRunDetail,
  type PageRuns,
  type PageRunsQuery,
  RUN_RESULTS,
  type PageResult,
  type RunColumn,
} from '../../protocol/page-lists.ts'
import { type DaemonLists, SharedAnswer, nameOr } from './daemon-lists.ts'
import type { JournalBook } from './journal-book.ts'
import { type IndexedRun, RunIndex } from './run-index.ts'
import { type SortValues, hasWords, rangeStart, sliceOf, sortedBy } from './slices.ts'

interface RunListDeps {
  readonly api: LocalApi
  readonly book: JournalBook
  readonly clock: Clock
  readonly lists: DaemonLists
}

/** Hosts of a fan-out in the order in which an operator needs them. */
const WORST_FIRST: readonly PageResult[] = ['failed', 'denied', 'lost', 'unknown', 'waiting', 'running', 'ok']

/** Gets the values of a run by which a list is sorted. A running one has taken the time until now. */
const valuesAt = (now: number): SortValues<PageRun, RunColumn> => ({
  result: ({ result }) => WORST_FIRST.indexOf(result),
  command: ({ argv }) => argv.join(' ') || null,
  who: ({ who, on }) => `${who} ${on ?? 'this machine'}`,
  took: ({ duration_ms, result, started_at }) => duration_ms ?? (result === 'running' ? now - Date.parse(started_at) || null : null),
  began: ({ started_at }) => started_at,
})

/** Sorts runs that are newest first. Hosts of a fan-out that failed come first. */
export const sortedRuns = (runs: readonly PageRun[], { fanout_id, order }: Pick<PageRunsQuery, 'fanout_id' | 'order'>, now: number) => {
  const values = valuesAt(now)
  return sortedBy(fanout_id === null ? runs : sortedBy(sortedBy(runs, 'who', values), 'result', values), order, values)
}

/** Runs of this machine and of this agent, for all pages. */
export class RunList {
  readonly #deps: RunListDeps
  readonly #index = new RunIndex()
  readonly #cursors = new Map<string, JournalCursor>()
  /** Position in the event log of the daemon, or null before the first reading. */
  #since: string | null = null
  /** One reading at a time, because each goes on from the positions of the one before. */
  readonly #reading = new Semaphore({ limit: 1 })
  readonly #refreshed: SharedAnswer<readonly string[]>

  constructor(deps: RunListDeps) {
    this.#deps = deps
    this.#refreshed = new SharedAnswer(deps, async (signal) => this.#reading.use(signal, async () => this.#refresh(signal)))
  }

  async runs(query: PageRunsQuery): Promise<PageRuns> {
    const { side, result, fanout_id, within_ms } = query
    const { runs, problems } = await this.all()
    const since = rangeStart(this.#deps.clock.now(), within_ms)
    const [hasText, hasHost] = [hasWords(query.text), hasWords(query.host)]
    const fitting = runs.filter(
      (run) =>
        (side === null || run.side === side) &&
        (result === null || run.result === result) &&
        (fanout_id === null || run.fanout_id === fanout_id) &&
        run.started_at >= since &&
        hasHost(`${run.who} ${run.on ?? ''} ${run.agent_id ?? ''}`) &&
        hasText(`${run.argv.join(' ')} ${run.reason ?? ''} ${run.request_id}`),
    )
    const sorted = sortedRuns(fitting, query, this.#deps.clock.now())
    const older = this.#index.isFull || [...this.#cursors.values()].some(({ skipped }) => skipped)
    return { ...sliceOf(sorted, query.from, fanout_id === null ? MAX_PAGE_ROWS : MAX_PAGE_CELLS), older, problems }
  }

  /** All runs that are known, the newest first, with names. */
  async all(): Promise<{ readonly runs: readonly PageRun[]; readonly problems: readonly string[] }> {
    const [problems, names] = await Promise.all([this.#refreshed.get(), this.#deps.lists.names()])
    return { runs: this.#index.list().map((run) => shownRun(run, names)), problems }
  }

  /** Refusals since this time that the audit log counts without a line. */
  suppressedSince(iso: string): number {
    return this.#index.suppressedSince(iso)
  }

  async fanouts(): Promise<{ readonly rows: readonly PageFanout[]; readonly problems: readonly string[] }> {
    const { runs, problems } = await this.all()
    const groups = Map.groupBy(
      runs.filter((run) => run.fanout_id !== null),
      (run) => run.fanout_id!,
    )
    const rows = [...groups].slice(0, MAX_PAGE_FANOUTS).map(([fanout_id, hosts]) => {
      const { argv, started_at } = hosts.at(-1)!
      const results = Object.fromEntries(RUN_RESULTS.map((result) => [result, hosts.filter((host) => host.result === result).length]))
      return { fanout_id, argv, started_at, hosts: hosts.length, results: results as PageFanout['results'] }
    })
    return { rows, problems }
  }

  /** Null if no log has the run. */
  async detail(key: string, signal: AbortSignal): Promise<PageRunDetail | null> {
    const run = await this.find(key)
    if (run === null) return null
    const names = await this.#deps.lists.names()
    const shown = shownRun(run, names)
    const isOpen = run.result === 'running' || run.result === 'waiting'
    const output = run.side === 'mine' && isOpen ? await this.#outputOf(run, signal) : this.#index.tail(key)
    const host = shown.on ?? (await this.#deps.lists.agent.get().catch(() => null))?.name ?? 'this machine'
    const denial = run.result === 'denied' && run.reason !== null ? denialText(run.reason, { host, argv: run.argv }) : null
    return {
      run: shown,
      facts: run.facts,
      output,
      output_problem: output === null && run.side === 'mine' ? noOutputText(run) : null,
      denial: denial && { cause: denial.cause, next: denial.next },
    }
  }

  /** Null if no log has the run. A page may know a new run from its event before the shared answer has it. */
  async find(key: string): Promise<IndexedRun | null> {
    await this.#refreshed.get()
    if (this.#index.get(key) === null) {
      this.#refreshed.forget()
      await this.#refreshed.get()
    }
    return this.#index.get(key)
  }

  /** Output so far of a run that this agent requested. */
  async #outputOf({ request_id, detached }: IndexedRun, signal: AbortSignal): Promise<PageRunDetail['output']> {
    if (detached) return null
    const path = `/exec/output?request_id=${encodeURIComponent(request_id)}`
    return this.#deps.api
      .json<{ readonly tail: string | null; readonly tail_truncated: boolean }>({ method: 'GET', path, signal })
      .then(({ tail, tail_truncated }) => (tail === null ? null : { text: tail, truncated: tail_truncated }))
      .catch((error: unknown) => {
        // It has ended meanwhile.
        if (isAppError(error, 'unknown_run')) return null
        throw error
      })
  }

  /** Reads what is new in the logs and at the daemon. Returns the parts that could not be read. */
  async #refresh(signal: AbortSignal): Promise<readonly string[]> {
    const { book, lists } = this.#deps
    const problems: string[] = []
    const noted = async (work: Promise<unknown>): Promise<void> => {
      // A missing daemon is reported once.
      await work.catch((error: unknown) => problems.length === 0 && problems.push(errorText(error)))
    }
    await noted(book.pathOf('audit', signal).then(async (path) => this.#readLog(path, (line) => this.#index.takeLogged(line))))
    for (const path of await book.engines()) await noted(this.#readLog(path, (line) => this.#index.takeLogged(line)))
    await noted(this.#readLog(await book.pathOf('requests', signal), (line) => this.#index.takeRequested(line)))
    await noted(this.#readEvents(signal))
    await noted(lists.detached.get().then((runs) => this.#index.takeDetached(runs)))
    await noted(lists.sessions.get().then((sessions) => this.#index.takeSessions(sessions)))
    return problems
  }

  async #readLog(path: string, take: (line: Fields) => void): Promise<void> {
    const cursor =
      this.#cursors.get(path) ??
      new JournalCursor({ path, lines: MAX_PAGE_RUN_HISTORY, maxBytes: MAX_PAGE_JOURNAL_BYTES, open: openJournal })
    this.#cursors.set(path, cursor)
    await cursor
      .read((bytes) => {
        const line: unknown = attempt(() => JSON.parse(bytes.toString()))
        if (isTable(line)) take(line)
      })
      .catch((error: unknown) => {
        // Nothing was written yet.
        if (!isAppError(error, 'not_found')) throw error
      })
  }

  async #readEvents(signal: AbortSignal): Promise<void> {
    for (let left = Math.ceil(MAX_KEPT_EVENTS / MAX_EVENTS_AT_ONCE); left > 0; left--) {
      const path = `/exec/events${this.#since === null ? '' : `?since=${this.#since}`}`
      const page = await this.#deps.api.json<{ events: readonly LifecycleEvent[]; next: string; more: boolean }>({
        method: 'GET',
        path,
        signal,
      })
      for (const event of page.events) this.#index.takeEvent(event)
      this.#since = page.next
      if (!page.more) return
    }
  }
}

const shownRun = ({ facts: _facts, ...run }: IndexedRun, names: ReadonlyMap<string, string>): PageRun => {
  const who = run.side === 'incoming' ? nameOr(names, run.who) : run.side === 'mine' ? 'this agent' : run.who
  return { ...run, who, on: run.on === null ? null : nameOr(names, run.on) }
}

const noOutputText = ({ detached, request_id, result }: IndexedRun): string =>
  detached
    ? `Its host stores the output. To read it: x0x attach ${request_id}`
    : result === 'running' || result === 'waiting'
      ? 'It has written nothing yet.'
      : 'The daemon remembers the output of the latest runs only.'
