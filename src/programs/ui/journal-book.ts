import { stat } from 'node:fs/promises'
import type { Clock } from '../../base/clock.ts'
import { AppError, attempt, errorText } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import { lastLines } from '../../journal/tail.ts'
import { type Fields, isTable, isText } from '../../protocol/json-table.ts'
import { MAX_PAGE_JOURNAL_BYTES, MAX_PAGE_RUN_LINES, MAX_PAGE_SEARCHED } from '../../protocol/limits/page.ts'
import type { PageJournal, PageJournalQuery, PageLogEntry } from '../../protocol/page-lists.ts'
import type { EngineConfigs } from './engine-configs.ts'
import { hasWords, rangeStart, sliceOf } from './slices.ts'

const NAMES = ['approvals', 'audit', 'requests'] as const

const parsed = (text: string): Fields | null => {
  const value: unknown = attempt(() => JSON.parse(text))
  return isTable(value) ? value : null
}

/** Characters of the lines that are kept until the journal changes. */
const MAX_KEPT = 8 * 1024 * 1024

interface LogLine {
  readonly line: Fields
  readonly raw: string
}

/** What the lines of one run or of one approval request have in common, or null for other lines. */
const groupOf = ({ event, request_id, question_id, agent_id, session_id }: Fields): string | null => {
  if (event === 'asked' || event === 'detached_asked') return `asked ${String(request_id)}`
  if (request_id !== undefined) return `run ${String(agent_id ?? session_id)} ${String(request_id)}`
  return question_id === undefined || question_id === null ? null : `question ${String(question_id)}`
}

/** Lines that say only that those before them are signed. There are as many as others. */
const isSeal = ({ event }: Fields): boolean => event === 'head'

/** Entries in the order of their latest line, newest first. */
export const entriesOf = (lines: readonly LogLine[]): readonly (readonly LogLine[])[] => {
  const entries = new Map<string, LogLine[]>()
  for (const [at, one] of lines.entries()) {
    const key = groupOf(one.line) ?? `line ${at}`
    const group = entries.get(key) ?? []
    // The first lines and the last one tell the most of a run.
    if (group.length >= MAX_PAGE_RUN_LINES) group.pop()
    group.push(one)
    entries.delete(key)
    entries.set(key, group)
  }
  return [...entries.values()].reverse()
}

const namedIn = (entries: readonly PageLogEntry[], names: ReadonlyMap<string, string>): Record<string, string> => {
  const ids = entries.flatMap(({ lines }) => lines.flatMap(({ agent_id, agent, asker, target }) => [agent_id, agent, asker, target]))
  return Object.fromEntries([...new Set(ids)].flatMap((id) => (isText(id) && names.has(id) ? [[id, names.get(id)!]] : [])))
}

/** The end of a journal, newest line last. */
export interface LastOf {
  readonly lines: readonly LogLine[]
  /** Whether there are older lines that were not read. */
  readonly older: boolean
  /** Number of lines that are too long or invalid; only the file has them. */
  readonly unread: number
}

/** Changes whenever the journal has other lines. Null if the file cannot be read. */
const stateOf = async (path: string): Promise<string | null> => {
  const info = await stat(path, { bigint: true }).catch(() => null)
  return info && [path, info.dev, info.ino, info.size, info.mtimeNs].join(' ')
}

interface JournalBookDeps {
  readonly api: LocalApi
  readonly clock: Pick<Clock, 'now'>
  readonly configs: Pick<EngineConfigs, 'journals'>
}

/** The journals of this host that this user may read. */
export class JournalBook {
  readonly #deps: JournalBookDeps
  /** The audit log as last reported by the daemon; its ACL sets the path. */
  #ofRuns: string | null = null
  /** Reads one journal at a time, for any number of pages. */
  readonly #reading = new Semaphore({ limit: 1 })
  #latest: { readonly key: string | null; readonly read: LastOf } | null = null

  constructor(deps: JournalBookDeps) {
    this.#deps = deps
  }

  /** Journals of runs of local programs, by path. */
  async engines(): Promise<readonly string[]> {
    return this.#deps.configs.journals()
  }

  /** Matching entries, newest first. `names` are those of agents, by ID. */
  async entries(query: PageJournalQuery, names: ReadonlyMap<string, string>, signal: AbortSignal): Promise<PageJournal> {
    const { journal, event, text, within_ms, from } = query
    const journals = [...NAMES, ...(await this.engines())]
    const name = journals.find((one) => one === journal)
    if (name === undefined) throw new AppError('bad_request', `journal: one of ${journals.join(', ')}`)
    const hasText = hasWords(text ?? '')
    try {
      const { lines, older, unread } = await this.last(name, signal)
      const since = rangeStart(this.#deps.clock.now(), within_ms)
      const fitting = entriesOf(event === 'head' ? lines : lines.filter(({ line }) => !isSeal(line))).filter(
        (entry) =>
          (event === null || entry.some(({ line }) => line['event'] === event)) &&
          (text === null || entry.some(({ raw }) => hasText(raw))) &&
          (within_ms === null || entry.some(({ line }) => String(line['ts']) >= since)),
      )
      // Lines are written in order of time, so no unread line is in a range that begins after the first read one.
      const more = older && (within_ms === null || String(lines[0]?.line['ts'] ?? since) >= since)
      const { rows, ...place } = sliceOf(fitting, from)
      const entries = rows.map((entry) => ({ lines: entry.map(({ line }) => line) }))
      return { journals, rows: entries, ...place, names: namedIn(entries, names), more, unread, problems: [] }
    } catch (error) {
      return { journals, rows: [], from: 0, total: 0, names: {}, more: false, unread: 0, problems: [errorText(error)] }
    }
  }

  /** Empty if nothing was ever written. A journal without new lines is not read again. */
  async last(name: string, signal: AbortSignal): Promise<LastOf> {
    const path = await this.pathOf(name, signal)
    return this.#reading.use(signal, async () => {
      const key = await stateOf(path)
      if (this.#latest?.key === key && key !== null) return this.#latest.read
      const read = await lastLines(path, { lines: MAX_PAGE_SEARCHED, maxBytes: MAX_PAGE_JOURNAL_BYTES })
      const found = read.lines.map((bytes) => ({ line: parsed(bytes.toString()), raw: bytes.toString() }))
      const known = found.flatMap(({ line, raw }) => (line === null ? [] : [{ line, raw }]))
      const last = { lines: known, older: read.older, unread: read.tooLong + found.length - known.length }
      const size = known.reduce((sum, { raw }) => sum + raw.length, 0)
      this.#latest = size > MAX_KEPT ? null : { key, read: last }
      return last
    })
  }

  /** Throws `not_found` for the audit log of a daemon that has none. */
  async pathOf(name: string, signal: AbortSignal): Promise<string> {
    const { api } = this.#deps
    if (name === 'approvals') return api.paths.approvalsJournal
    if (name === 'requests') return api.paths.outgoing
    if (name !== 'audit') return name
    const said = await api
      .json<{ journal?: { path?: string | null } | null }>({ method: 'GET', path: '/diagnostics/exec', signal })
      .catch(() => null)
    this.#ofRuns = said?.journal?.path ?? this.#ofRuns
    if (this.#ofRuns === null) throw new AppError('not_found', 'no daemon is running that has an audit log')
    return this.#ofRuns
  }
}
