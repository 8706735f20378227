import { systemClock } from '../../../base/clock.ts'
import { AppError, errorText, isAppError, nextOf } from '../../../base/errors.ts'
import { shellWords, signalName } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { exitOfSignal } from '../../../cli/exit.ts'
import { write } from '../../../cli/output.ts'
import { type CommandLine, millisecondsOf } from '../../../cli/parse.ts'
import { type DetachedRunView, hasEnd, isOver } from '../../../protocol/api/detached-run.ts'
import { MAX_ASKED_AT_ONCE, MAX_WAITED_RUNS } from '../../../protocol/limits/detached.ts'
import type { CliContext } from '../context.ts'
import { exitStatusOf, failureLines, printProblem, statusAsExec, usageError } from '../failure.ts'
import { EXIT_NOT_RUN, type ExitEvent, denialLines, detachedCutLines, outcomeLines, statusOf } from '../outcome.ts'
import { printAnswer, printDone, printJson, printLine, printTable } from '../print.ts'
import { factsOf, lostLines } from './attach.ts'
import { type FoundRuns, findRuns } from './find-run.ts'

export interface WaitedRun extends DetachedRunView {
  readonly over: boolean
  readonly outcome: Omit<ExitEvent, 'type'> | null
}

const whereOf = ({ agent, agent_id }: DetachedRunView): string => agent ?? agent_id.slice(0, 12)
const commandOf = ({ argv, argv_cut }: DetachedRunView): string => `${shellWords(argv)}${argv_cut === undefined ? '' : ' …'}`

/** `ended 0`, `ended SIGTERM`, `running (peer_unreachable)`. */
export const stateText = ({ state, code, signal, denial_reason, problem }: DetachedRunView): string => {
  const end = denial_reason ?? (signal === null ? code : (signalName(signal) ?? `signal ${signal}`))
  return [state, ...(end === null ? [] : [String(end)]), ...(problem === null ? [] : [`(${problem.error})`])].join(' ')
}

const rowOf = (run: DetachedRunView): string[] => [run.request_id, whereOf(run), stateText(run), run.asked_at, commandOf(run)]
const HEADER = ['RUN', 'ON', 'STATE', 'ASKED', 'COMMAND']

export const runRuns = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [refresh, session] = [line.has('refresh'), line.value('session')]
  const query = new URLSearchParams({ ...(refresh && { refresh: 'true' }), ...(session !== null && { session }) }).toString()
  const answer = await context.api.json<{ runs: readonly DetachedRunView[] }>({
    method: 'GET',
    path: `/runs${query === '' ? '' : `?${query}`}`,
  })
  return printAnswer(context, answer, async () => {
    if (answer.runs.length === 0) return printLine(context, `no detached runs${session === null ? '' : ` with label ${session}`}`)
    return printTable(context, HEADER, answer.runs.map(rowOf))
  })
}

/** The status of one run, like that of `x0x exec`. The Exit takes precedence over earlier reports. */
export const statusOfWaited = (run: WaitedRun): number => {
  if (run.outcome !== null) return statusOf({ type: 'exit', ...run.outcome })
  if (run.denial_reason !== null || !hasEnd(run)) return EXIT_NOT_RUN
  return run.signal === null ? (run.code ?? EXIT_NOT_RUN) : 128 + run.signal
}

const SOME_FAILED = 1
const SOME_DENIED = 3
const SOME_UNKNOWN = 4

const statusOfRun = (run: WaitedRun): number => {
  if (run.denial_reason !== null) return SOME_DENIED
  if (!run.over || !hasEnd(run) || run.outcome?.incomplete === true) return SOME_UNKNOWN
  return statusOfWaited(run) === 0 && run.outcome?.truncated !== true ? 0 : SOME_FAILED
}

/** The status of several runs, like that of a fan-out. */
export const statusOfAll = (runs: readonly WaitedRun[]): number => Math.max(...runs.map(statusOfRun))

const UNASKED = 'it may still run on its target; to see connected agents: x0x peers'

/** Empty if the exit status says everything. */
const linesOf = (run: WaitedRun): string[] => {
  if (run.outcome !== null) return outcomeLines({ type: 'exit', ...run.outcome }, factsOf(run))
  if (run.problem?.error === 'unknown_run') return [`${run.state}: it was deleted while x0x waited`]
  if (run.problem !== null)
    return failureLines(new AppError('peer_unreachable', run.problem.message, { data: { next: run.problem.next ?? UNASKED } }))
  if (run.state === 'unknown') return ['unknown: its target does not know it: it never started, or was deleted']
  if (!run.over) return ['timeout: it has not ended; it continues']
  if (run.state === 'lost') return lostLines(run)
  if (run.denial_reason !== null) return denialLines(run.denial_reason, factsOf(run))
  return hasEnd(run) ? [] : ['expired: its target has deleted the result']
}

const timeoutOf = (text: string): number => {
  const ms = millisecondsOf(text)
  if (ms !== null) return ms
  throw usageError(`--timeout must be a positive number of seconds, not ${JSON.stringify(text)}`)
}

/** Waits for as many runs at once as the daemon allows, then for the next. */
const waitForAll = async (
  { api }: CliContext,
  ids: readonly string[],
  timeoutMs: number | null,
  signal: AbortSignal,
): Promise<readonly WaitedRun[]> => {
  const began = systemClock.monotonic()
  const runs: WaitedRun[] = []
  for (let at = 0; at < ids.length; at += MAX_WAITED_RUNS) {
    const request_ids = ids.slice(at, at + MAX_WAITED_RUNS)
    // After the timeout, the remaining runs are shown in their last known state.
    const left = timeoutMs === null ? {} : { timeout_ms: Math.max(1, Math.round(timeoutMs - (systemClock.monotonic() - began))) }
    const call = { method: 'POST', path: '/runs/wait', body: { request_ids, ...left }, signal } as const
    runs.push(...(await api.json<{ runs: readonly WaitedRun[] }>(call)).runs)
  }
  return runs
}

interface FailedRun {
  readonly request_id: string
  readonly error: string
  readonly message: string
  readonly next?: string
}

const tellFailed = async (context: CliContext, where: string, request_id: string, error: unknown): Promise<FailedRun> => {
  const [what = '', ...next] = failureLines(error)
  await printProblem(context, [`${where}: ${what}`, ...next])
  return { request_id, error: isAppError(error) ? error.code : 'internal', message: errorText(error), ...nextOf(error) }
}

/** Prints each unknown ID. */
const tellUnknown = async (context: CliContext, unknown: FoundRuns['unknown']): Promise<FailedRun[]> => {
  const failed: FailedRun[] = []
  for (const { id, error } of unknown) failed.push(await tellFailed(context, id, id, error))
  return failed
}

/** `x0x runs wait ID...`. Interrupting it ends no run. */
export const runWait = async (context: CliContext, line: CommandLine): Promise<number> => {
  const timeout = line.value('timeout')
  const limit = timeout === null ? null : timeoutOf(timeout)
  return statusAsExec(context, async () => waitUpTo(context, line, limit))
}

const waitUpTo = async (context: CliContext, line: CommandLine, limit: number | null): Promise<number> => {
  const found = await findRuns(context, line)
  const request_ids = found.runs.map(({ request_id }) => request_id)
  const failed = await tellUnknown(context, found.unknown)
  const leaving = new AbortController()
  let left: NodeJS.Signals | null = null
  const stopListening = context.onSignal((signal) => {
    left ??= signal
    leaving.abort()
  })
  try {
    const runs = await waitForAll(context, request_ids, limit, leaving.signal)
    const [run, ...others] = runs
    if (context.json) await printJson(context, { ok: failed.length === 0, runs, ...(failed.length > 0 && { failed }) })
    if (run === undefined) return failed.length > 0 ? SOME_UNKNOWN : EXIT_NOT_RUN
    // A label that now has one run is reported as before.
    if (others.length > 0 || failed.length > 0 || line.value('session') !== null) {
      if (!context.json) await printTable(context, HEADER, runs.map(rowOf))
      for (const one of runs) await printProblem(context, detachedCutLines(one))
      return failed.length > 0 ? SOME_UNKNOWN : statusOfAll(runs)
    }
    await printProblem(context, [...(context.json ? [] : linesOf(run)), ...detachedCutLines(run)])
    return statusOfWaited(run)
  } catch (error) {
    if (left === null) throw error
    await write(context.stderr, 'x0x: stopped waiting; the runs continue\n')
    return exitOfSignal(left)
  } finally {
    stopListening()
  }
}

/** Does something with each run, some at once. An error is printed and does not affect the others; with a single run it is thrown. */
const each = async (
  context: CliContext,
  line: CommandLine,
  work: (run: DetachedRunView) => Promise<DetachedRunView>,
  done: (run: DetachedRunView) => string,
): Promise<number> => {
  const { runs: found, unknown } = await findRuns(context, line)
  const did = new Map<string, DetachedRunView>()
  const failed = await tellUnknown(context, unknown)
  let status = Math.max(0, ...unknown.map(({ error }) => exitStatusOf(error)))
  const waiting = found.values()
  const workOn = async (): Promise<void> => {
    for (const one of waiting) {
      try {
        const run = await work(one)
        did.set(one.request_id, run)
        if (!context.json) await printDone(context, run, async () => printLine(context, shownLine(done(run))))
      } catch (error) {
        if (found.length + unknown.length === 1) throw error
        status = Math.max(status, exitStatusOf(error))
        failed.push(await tellFailed(context, whereOf(one), one.request_id, error))
      }
    }
  }
  await Promise.all(Array.from({ length: MAX_ASKED_AT_ONCE }, workOn))
  const runs = found.flatMap(({ request_id }) => did.get(request_id) ?? [])
  if (context.json) await printJson(context, { ok: status === 0, runs, ...(failed.length > 0 && { failed }) })
  return status
}

/** `x0x runs cancel ID...`. With a label, it skips runs that have ended. */
export const runCancelDetached = async (context: CliContext, line: CommandLine): Promise<number> =>
  each(
    context,
    line,
    async (run) =>
      line.value('session') !== null && isOver(run.state)
        ? run
        : context.api.json<DetachedRunView>({ method: 'POST', path: '/runs/cancel', body: { request_id: run.request_id } }),
    (run) => `${isOver(run.state) ? `already ended, ${stateText(run)}` : 'stopping'}: ${commandOf(run)}, on ${whereOf(run)}`,
  )

export const runForget = async (context: CliContext, line: CommandLine): Promise<number> =>
  each(
    context,
    line,
    async ({ request_id }) =>
      context.api
        .json<DetachedRunView>({ method: 'POST', path: '/runs/forget', body: { request_id, here: line.has('here') } })
        .catch((error: unknown) => {
          if (!isAppError(error, 'peer_unreachable')) throw error
          const { code, message, data } = error
          throw new AppError(code, message, {
            cause: error,
            data: { ...data, next: `Try: x0x runs forget --here ${request_id}   (deletes only the record on this machine)` },
          })
        }),
    (run) => `forgotten: ${commandOf(run)}, on ${whereOf(run)}`,
  )
