import { within } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { Condition } from '../../base/wait-queue.ts'
import { PROGRESS_MS } from '../../protocol/limits/tools.ts'
import { answerOf } from '../tools/tool-result.ts'
import type { ToolRun, View } from '../tools/tool-run.ts'
import type { DeferredAnswer, ToolCall, ToolContext } from './tool.ts'

export interface ToolWait {
  readonly context: Pick<ToolContext, 'clock' | 'answerWithinMs' | 'runs' | 'isGone'>
  readonly call: ToolCall
  /** Undefined: as long as the server lets a call wait. */
  readonly withinMs: number | undefined
  /** Who cancels the call ends the run, unless another call waits for it that would. Who is gone leaves it. */
  readonly cancels: boolean
}

/**
 * What `ask` answers; null where it has not by the time of an answer: then, and when the call is cancelled, its signal is aborted.
 * Throws what it throws.
 */
export const inTime = async <T>(
  ask: (signal: AbortSignal) => Promise<T>,
  { clock, answerWithinMs }: Pick<ToolContext, 'clock' | 'answerWithinMs'>,
  { signal }: Pick<ToolCall, 'signal'>,
): Promise<T | null> => {
  const late = new AbortController()
  const work = ask(AbortSignal.any([signal, late.signal]))
  const answer = await within(clock, answerWithinMs, work)
  if (answer !== null) return answer
  work.catch(() => undefined)
  late.abort(new AppError('timeout'))
  return null
}

/** What a call waits for. */
export interface Awaitable {
  readonly ended: Promise<void>
  readonly over: boolean
  /** Calls that would end it, were they cancelled. */
  owners: number
  cancel(): void
}

/** Waits until the run has ended, until the call is to be answered, or until it is cancelled; meanwhile tells its progress. */
export const waitFor = async (run: ToolRun, options: ToolWait): Promise<void> =>
  waitForAny(run, options, () => progressOf(run, options.context.runs.waitingBefore(run)))

/** The same of anything that ends; `progress`: how far it is. */
export const waitForAny = async (run: Awaitable, { context, call, withinMs, cancels }: ToolWait, progress: () => string): Promise<void> => {
  const { clock, answerWithinMs, isGone } = context
  const begin = clock.monotonic()
  const due = begin + Math.min(withinMs ?? answerWithinMs, answerWithinMs)
  const ended = new Condition()
  void run.ended.then(() => ended.notifyAll())
  if (cancels) run.owners += 1
  for (let now = begin; !run.over && !call.signal.aborted && now < due; now = clock.monotonic()) {
    call.progress(now - begin, progress())
    await ended.waitAtMost({ clock, timeoutMs: Math.min(due - now, PROGRESS_MS), signal: call.signal })
  }
  if (cancels) run.owners -= 1
  if (cancels && call.signal.aborted && run.owners === 0 && !isGone()) run.cancel()
}

/** As `waitFor`; answers what there is by then, also where the run is forgotten before the answer is made. */
export const answerOnceDue = async (run: ToolRun, view: View, options: ToolWait): Promise<DeferredAnswer> => {
  await waitFor(run, options)
  const text = { ...run.text }
  return () => answerOf(run.result(view, text))
}

const progressOf = (run: ToolRun, before: number | null): string => {
  if (before !== null) return `waits for a place; ${before} ${before === 1 ? 'command is' : 'commands are'} before it`
  if (run.state === 'waiting_for_approval') return 'waits for an approval: a human is asked whether it may begin'
  const { stdout, stderr } = run.text
  return `runs; ${stdout.kept.total + stderr.kept.total} bytes of output`
}
