import { AppError, attempt, errorText } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import { lastLines } from '../../journal/tail.ts'
import { type Fields, isTable } from '../../protocol/json-table.ts'
import { MAX_PAGE_JOURNAL_BYTES, MAX_PAGE_LINES, MAX_PAGE_SEARCHED } from '../../protocol/limits/page.ts'
import type { PageJournal, PageJournalQuery } from '../../protocol/page.ts'
import type { EngineConfigs } from './engine-configs.ts'

const NAMES = ['approvals', 'runs here', 'asked of others'] as const

const parsed = (text: string): Fields | null => {
  const value: unknown = attempt(() => JSON.parse(text))
  return isTable(value) ? value : null
}

/** The end of a journal, newest line last. */
export interface LastOf {
  readonly lines: readonly { readonly line: Fields; readonly raw: string }[]
  /** Whether there are older lines that were not read. */
  readonly older: boolean
  /** Number of lines that are too long or invalid; only the file has them. */
  readonly unread: number
}

/** The journals of this host that this user may read. */
export class JournalBook {
  readonly #api: LocalApi
  readonly #configs: EngineConfigs
  /** The audit log as last reported by the daemon; its ACL sets the path. */
  #ofRuns: string | null = null
  /** Reads one journal at a time, for any number of pages. */
  readonly #reading = new Semaphore({ limit: 1 })

  constructor(api: LocalApi, configs: EngineConfigs) {
    this.#api = api
    this.#configs = configs
  }

  /** Journals of runs of local programs, by path. */
  async engines(): Promise<readonly string[]> {
    return this.#configs.journals()
  }

  /** Matching lines, newest first. */
  async lines({ journal, event, text }: PageJournalQuery, signal: AbortSignal): Promise<PageJournal> {
    const journals = [...NAMES, ...(await this.engines())]
    const name = journals.find((one) => one === journal)
    if (name === undefined) throw new AppError('bad_request', `journal: one of ${journals.join(', ')}`)
    try {
      const { lines: all, older, unread } = await this.last(name, signal)
      const fitting = all.filter(({ line, raw }) => (event === null || line['event'] === event) && (text === null || raw.includes(text)))
      return {
        journals,
        lines: fitting
          .slice(-MAX_PAGE_LINES)
          .map(({ line }) => line)
          .reverse(),
        more: older || fitting.length > MAX_PAGE_LINES,
        unread,
        problem: null,
      }
    } catch (error) {
      return { journals, lines: [], more: false, unread: 0, problem: errorText(error) }
    }
  }

  /** Empty if nothing was ever written. */
  async last(name: string, signal: AbortSignal, lines = MAX_PAGE_SEARCHED): Promise<LastOf> {
    const path = await this.#pathOf(name, signal)
    return this.#reading.use(signal, async () => {
      const read = await lastLines(path, { lines, maxBytes: MAX_PAGE_JOURNAL_BYTES })
      const found = read.lines.map((bytes) => ({ line: parsed(bytes.toString()), raw: bytes.toString() }))
      const known = found.flatMap(({ line, raw }) => (line === null ? [] : [{ line, raw }]))
      return { lines: known, older: read.older, unread: read.tooLong + found.length - known.length }
    })
  }

  async #pathOf(name: string, signal: AbortSignal): Promise<string> {
    const { paths } = this.#api
    if (name === 'approvals') return paths.approvalsJournal
    if (name === 'asked of others') return paths.outgoing
    if (name !== 'runs here') return name
    const said = await this.#api
      .json<{ journal?: { path?: string | null } | null }>({ method: 'GET', path: '/diagnostics/exec', signal })
      .catch(() => null)
    this.#ofRuns = said?.journal?.path ?? this.#ofRuns
    if (this.#ofRuns === null) throw new AppError('not_found', 'no daemon is running that has an audit log')
    return this.#ofRuns
  }
}
