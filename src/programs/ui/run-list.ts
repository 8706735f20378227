import { errorText } from '../../base/errors.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import { shortId } from '../../protocol/ids.ts'
import { type Fields, isText } from '../../protocol/json-table.ts'
import type { PageRun, PageRuns } from '../../protocol/page.ts'
import type { JournalBook, LastOf } from './journal-book.ts'

const MAX_RECENT = 50
/** Journal lines of an engine that are searched each time. */
const MAX_ENGINE_LINES = 500

interface Session {
  readonly request_id: string
  readonly agent_id: string
  readonly argv: readonly string[]
  readonly started_at: string
  readonly state: string
}

/** Number of newest runs whose output is followed; a person watches few. */
const MAX_LIVE = 8

const outputOf = async (api: LocalApi, id: string, signal: AbortSignal): Promise<string | null> =>
  api
    .json<{ readonly tail: string | null }>({ method: 'GET', path: `/exec/output?request_id=${encodeURIComponent(id)}`, signal })
    // The run has ended meanwhile.
    .then(
      ({ tail }) => tail,
      () => null,
    )

const textOf = (value: unknown): string => (isText(value) ? value : '')

const argvOf = (value: unknown): readonly string[] => (Array.isArray(value) ? value.filter(isText) : [])

const endOf = (line: Fields): string | null => {
  if (line['event'] === 'exit') return line['signal'] === null ? `exit ${String(line['code'])}` : `signal ${String(line['signal'])}`
  if (line['event'] === 'denial') return `denied: ${textOf(line['reason'])}`
  return line['event'] === 'lost' ? 'lost' : null
}

/** The key of a line's run. Runs of two agents may have the same ID. */
const keyOf = (line: Fields): string => `${textOf(line['agent_id'] ?? line['session_id'])} ${textOf(line['request_id'])}`

const whereOf = (line: Fields): string =>
  isText(line['client_name'])
    ? `for ${JSON.stringify(line['client_name'])} through ${textOf(line['door'])}`
    : `this machine, for agent ${shortId(textOf(line['agent_id']))}`

/** Runs in journal lines, oldest first. */
const runsIn = (lines: readonly Fields[]): readonly PageRun[] => {
  const runs = new Map<string, PageRun>()
  for (const line of lines) {
    const { event } = line
    const known = runs.get(keyOf(line))
    const end = endOf(line)
    if (event === 'request' || (event === 'denial' && known === undefined))
      runs.set(keyOf(line), {
        key: keyOf(line),
        request_id: textOf(line['request_id']),
        where: whereOf(line),
        argv: argvOf(line['argv']),
        started_at: textOf(line['ts']),
        state: end ?? 'requested',
        output: null,
      })
    else if (known !== undefined && (end !== null || event === 'started')) runs.set(keyOf(line), { ...known, state: end ?? 'running' })
  }
  return [...runs.values()]
}

const isOver = ({ state }: PageRun): boolean => state !== 'running' && state !== 'requested'

/** Live and ended runs: those on this host from the journals, others from the daemon. */
export const runsOf = async (api: LocalApi, book: JournalBook, signal: AbortSignal): Promise<Omit<PageRuns, 'going'>> => {
  const problems: string[] = []
  const noted =
    <T>(fallback: T) =>
    (error: unknown): T => {
      // A missing daemon is reported once.
      if (problems.length === 0) problems.push(errorText(error))
      return fallback
    }
  const { sessions } = await api
    .json<{ sessions: readonly Session[] }>({ method: 'GET', path: '/exec/sessions', signal })
    .catch(noted({ sessions: [] as readonly Session[] }))
  const nothing: LastOf = { lines: [], older: false, unread: 0 }
  const books = await Promise.all([
    book.last('runs here', signal).catch(noted(nothing)),
    ...(await book.engines()).map(async (path) => book.last(path, signal, MAX_ENGINE_LINES).catch(noted(nothing))),
  ])
  const all = books.flatMap(({ lines }) => runsIn(lines.map(({ line }) => line))).toSorted((a, b) => (a.started_at < b.started_at ? -1 : 1))
  const over = all.filter(isOver)
  const asked = await Promise.all(
    sessions.toReversed().map(async ({ request_id, agent_id, argv, started_at, state }, at) => ({
      key: `asked ${request_id}`,
      request_id,
      where: `on agent ${shortId(agent_id)}`,
      argv,
      started_at,
      state,
      output: at < MAX_LIVE ? await outputOf(api, request_id, signal) : null,
    })),
  )
  return {
    running: [...asked, ...all.filter((run) => !isOver(run)).reverse()],
    recent: over.slice(-MAX_RECENT).reverse(),
    more: over.length > MAX_RECENT || books.some(({ older }) => older),
    problems,
  }
}
