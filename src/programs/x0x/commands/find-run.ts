import { AppError, isAppError } from '../../../base/errors.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { DetachedRunView } from '../../../protocol/api/detached-run.ts'
import { isRequestId } from '../../../protocol/ids.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'

/** Candidates that a message lists. */
const MAX_CANDIDATES = 8
/** IDs begin with the time, so fewer digits would match whole days. */
const BEGINNING = /^[0-9a-f-]{4,36}$/

export const listRuns = async (context: CliContext, query = ''): Promise<readonly DetachedRunView[]> =>
  (await context.api.json<{ readonly runs: readonly DetachedRunView[] }>({ method: 'GET', path: `/runs${query}` })).runs

/** Finds a run by its ID or a beginning of it. Throws `unknown_run`, or `conflict` if several match. */
export const findRun = async (context: CliContext, id: string): Promise<DetachedRunView> => {
  if (isRequestId(id)) return context.api.json<DetachedRunView>({ method: 'GET', path: `/runs/${id}` })
  if (!BEGINNING.test(id)) throw usageError(`${JSON.stringify(id)} is neither a run ID nor at least its first 4 characters`)
  const [run, ...others] = (await listRuns(context)).filter(({ request_id }) => request_id.startsWith(id))
  if (run !== undefined && others.length === 0) return run
  throw notOne(
    id,
    [run, ...others].flatMap((one) => one?.request_id ?? []),
    { what: `no detached run matches ${JSON.stringify(id)}`, next: 'x0x runs' },
  )
}

/** The runs that several words mean. */
export interface FoundRuns {
  readonly runs: readonly DetachedRunView[]
  /** IDs, as typed, that match no run. */
  readonly unknown: readonly { readonly id: string; readonly error: AppError }[]
}

/**
 * Finds each run like `findRun`, or all runs of a label, of which there must be one. An unknown ID does not affect the others, but throws
 * if it is the only one.
 */
export const findRuns = async (context: CliContext, line: CommandLine): Promise<FoundRuns> => {
  const [ids, session] = [line.words, line.value('session')]
  if (ids.length > 0 === (session !== null)) throw usageError('give run IDs, or --session NAME')
  if (session !== null) {
    const all = await listRuns(context, `?${new URLSearchParams({ session }).toString()}`)
    if (all.length > 0) return { runs: all, unknown: [] }
    throw new AppError('unknown_run', `no detached run has the label ${session}`, {
      data: { next: 'See: x0x runs' },
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

/** Completes a partial ID from a list. Throws `unknown_run`, or `conflict` with the candidates. */
export const wholeId = (id: string, among: readonly string[]): string => {
  if (!BEGINNING.test(id)) throw usageError(`${JSON.stringify(id)} is neither a run ID nor at least its first 4 characters`)
  const found = [...new Set(among)].filter((one) => one.startsWith(id))
  if (found.length !== 1) throw notOne(id, found, { what: `no active run matches ${JSON.stringify(id)}`, next: 'x0x exec sessions' })
  return found[0]!
}

interface NoneText {
  readonly what: string
  /** The command that lists the runs. */
  readonly next: string
}

const notOne = (id: string, found: readonly string[], { what, next }: NoneText): AppError =>
  found.length === 0
    ? new AppError('unknown_run', what, { data: { next: `Try: ${next}` } })
    : new AppError('conflict', `${found.length} runs match ${JSON.stringify(id)}`, {
        data: { next: `It could be: ${found.slice(0, MAX_CANDIDATES).join(', ')}` },
      })
