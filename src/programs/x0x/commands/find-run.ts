import { AppError, isAppError } from '../../../base/errors.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { DetachedRunView } from '../../../protocol/api/detached-run.ts'
import { isRequestId } from '../../../protocol/ids.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'

/** As many as a person looks through. */
const MAX_CANDIDATES = 8
/** Ids begin with the time: fewer digits fit whole days. */
const BEGINNING = /^[0-9a-f-]{4,36}$/

export const listRuns = async (context: CliContext, query = ''): Promise<readonly DetachedRunView[]> =>
  (await context.api.json<{ readonly runs: readonly DetachedRunView[] }>({ method: 'GET', path: `/runs${query}` })).runs

/** By its id or the beginning of one. Throws `unknown_run`, or `conflict` where more than one begins so. */
export const findRun = async (context: CliContext, id: string): Promise<DetachedRunView> => {
  if (isRequestId(id)) return context.api.json<DetachedRunView>({ method: 'GET', path: `/runs/${id}` })
  if (!BEGINNING.test(id)) throw usageError(`${JSON.stringify(id)} is no id of a run, nor 4 or more characters that one begins with`)
  const [run, ...others] = (await listRuns(context)).filter(({ request_id }) => request_id.startsWith(id))
  if (run !== undefined && others.length === 0) return run
  throw notOne(
    id,
    [run, ...others].flatMap((one) => one?.request_id ?? []),
    { what: `this daemon has asked for no detached run whose id begins with ${id}`, next: 'x0x runs' },
  )
}

/** What several words mean. */
export interface FoundRuns {
  readonly runs: readonly DetachedRunView[]
  /** Ids, as they were said, of which nothing is remembered here. */
  readonly unknown: readonly { readonly id: string; readonly error: AppError }[]
}

/** As `findRun`, of each, where one that is not known keeps no other from it, and throws when it is the only one; or all of a session, of which there must be one. */
export const findRuns = async (context: CliContext, line: CommandLine): Promise<FoundRuns> => {
  const [ids, session] = [line.words, line.value('session')]
  if (ids.length > 0 === (session !== null)) throw usageError('name either ids of runs, or those of a session: --session NAME')
  if (session !== null) {
    const all = await listRuns(context, `?${new URLSearchParams({ session }).toString()}`)
    if (all.length > 0) return { runs: all, unknown: [] }
    throw new AppError('unknown_run', `this daemon has asked for no detached run with session ${session}`, {
      data: { next: 'which there are: x0x runs' },
    })
  }
  const found = new Map<string, DetachedRunView>()
  const unknown: { id: string; error: AppError }[] = []
  const words = new Set(ids)
  for (const id of words) {
    try {
      const run = await findRun(context, id)
      found.set(run.request_id, run)
    } catch (error) {
      if (words.size === 1 || !isAppError(error, 'unknown_run')) throw error
      unknown.push({ id, error })
    }
  }
  return { runs: [...found.values()], unknown }
}

/** The whole of an ID that is written in part, among those that there are. Throws `unknown_run`, or `conflict` with the candidates. */
export const wholeId = (id: string, among: readonly string[]): string => {
  if (!BEGINNING.test(id)) throw usageError(`${JSON.stringify(id)} is no id of a run, nor 4 or more characters that one begins with`)
  const found = [...new Set(among)].filter((one) => one.startsWith(id))
  if (found.length !== 1)
    throw notOne(id, found, { what: `no running command has an id that begins with ${id}`, next: 'x0x exec sessions' })
  return found[0]!
}

interface NoneText {
  readonly what: string
  /** Shows which there are. */
  readonly next: string
}

const notOne = (id: string, found: readonly string[], { what, next }: NoneText): AppError =>
  found.length === 0
    ? new AppError('unknown_run', what, { data: { next: `Try: ${next}` } })
    : new AppError('conflict', `${found.length} runs begin with ${id}`, {
        data: { next: `name one: ${found.slice(0, MAX_CANDIDATES).join(', ')}` },
      })
