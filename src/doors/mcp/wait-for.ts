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
  /** Undefined means the longest time that the server allows. */
  readonly withinMs: number | undefined
  /** Whether cancelling the call ends the run, unless another such call waits for it. A client that disconnects does not end it. */
  readonly cancels: boolean
}

/**
 * Resolves with the result of `ask`, or null at the time limit. The limit and cancellation abort the signal of `ask`. Throws its errors.
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

/** Something that a call can wait for. */
export interface Awaitable {
  readonly ended: Promise<void>
  readonly over: boolean
  /** Number of waiting calls whose cancellation ends it. */
  owners: number
  cancel(): void
}

/** Waits until the run ends, the time limit or a cancellation, and reports progress meanwhile. */
export const waitFor = async (run: ToolRun, options: ToolWait): Promise<void> =>
  waitForAny(run, options, () => progressOf(run, options.context.runs.waitingBefore(run)))

/** As `waitFor`, for anything that ends. */
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

/** As `waitFor`. The returned function gives the state at that time, even if the run is forgotten before. */
export const answerOnceDue = async (run: ToolRun, view: View, options: ToolWait): Promise<DeferredAnswer> => {
  await waitFor(run, options)
  const text = { ...run.text }
  return () => answerOf(run.result(view, text))
}

const progressOf = (run: ToolRun, before: number | null): string => {
  if (before !== null) return `queued; ${before} ${before === 1 ? 'command is' : 'commands are'} before it`
  if (run.state === 'waiting_for_approval') return 'waiting for the decision of an approver'
  const { stdout, stderr } = run.text
  return `running; ${stdout.kept.total + stderr.kept.total} bytes of output`
}
