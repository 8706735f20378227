import { v7 as uuidv7 } from 'uuid'
import { isAppError } from '../../../base/errors.ts'
import { pasteable } from '../../../base/hint.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { durationOf } from '../../../cli/duration.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { MANY_HOSTS } from '../../../cli/plain-exec.ts'
import { sizeOf } from '../../../cli/size.ts'
import type { ShownRun } from '../../../protocol/asked-run.ts'
import { exitOfSignal } from '../../../supervision/program-exit.ts'
import { carriedCommand } from '../carried-command.ts'
import type { CliContext } from '../context.ts'
import { printProblem, reportFailure, usageError } from '../failure.ts'
import { EXIT_NOT_RUN, type RunFacts, denialLines } from '../outcome.ts'
import { printJson, printLine, printNotice } from '../print.ts'
import { type DetachedAnswer, askDetached, isDenied, mayRun } from './detached-request.ts'

interface DetachOptions {
  readonly agent: string
  readonly argv: readonly string[]
  /** All of the request that is the same for whoever is asked. */
  readonly request: object
}

const lifetimeOf = (text: string): number => {
  const ms = durationOf(text)
  if (ms !== null) return ms
  throw usageError(`--lifetime: ${JSON.stringify(text)} is no duration such as 90s, 15m, 8h or 2d`)
}

const keepOf = (text: string): number => {
  const bytes = sizeOf(text)
  if (bytes !== null && bytes > 0) return bytes
  throw usageError(`--keep: ${JSON.stringify(text)} is no size above 0 such as 65536, 64K or 8M`)
}

const mayHaveStarted = async (context: CliContext, requestId: string): Promise<boolean> =>
  printProblem(context, [`whether it started: x0x runs --refresh   (${requestId})`])

/** `x0x exec AGENT --detach -- ARGV...`: the id on standard output, and what to type next on standard error. */
const detachOne = async (context: CliContext, options: DetachOptions): Promise<number> => {
  // Chosen here: whoever goes away before the answer finds it again.
  const request_id = uuidv7()
  const leaving = new AbortController()
  let left: NodeJS.Signals | null = null
  const stopListening = context.onSignal((signal) => {
    left ??= signal
    leaving.abort()
  })
  try {
    const request = { agent: options.agent, request_id, ...options.request }
    return await told(context, options, await askDetached(context, options.agent, request, leaving.signal))
  } catch (error) {
    if (isAppError(error, 'bad_request')) throw error
    if (left === null) await reportFailure(context, error)
    if (left !== null || mayRun(error)) await mayHaveStarted(context, request_id)
    return left === null ? EXIT_NOT_RUN : exitOfSignal(left)
  } finally {
    stopListening()
  }
}

/** More than a second less than was asked for: the answer took some time. */
const CUT_MS = 1_000

/** What the ACL over there has cut. */
const cutsOf = ({ kept, lifetime_ms, keep_bytes }: ShownRun): string[] => {
  if (kept === null) return []
  const { lifetime_left_ms: left } = kept
  const lives = lifetime_ms !== null && left !== null && left < lifetime_ms - CUT_MS
  const keeps = keep_bytes !== null && kept.keep_bytes < keep_bytes
  return [
    ...(lives ? [`its lifetime is cut to ${Math.round(left / 1_000)} s there (max_detach_secs)`] : []),
    ...(keeps ? [`only ${kept.keep_bytes} bytes of its output are kept there (max_detach_output_bytes)`] : []),
  ]
}

const told = async (context: CliContext, { agent, argv }: DetachOptions, answer: DetachedAnswer): Promise<number> => {
  if (context.json) await printJson(context, answer)
  if (isDenied(answer)) {
    const { denial_reason: reason } = answer
    const own = context.json ? null : await context.api.json<RunFacts['own']>({ method: 'GET', path: '/agent' }).catch(() => null)
    if (reason !== null) await printProblem(context, denialLines(reason, { agent, argv, own }))
    return EXIT_NOT_RUN
  }
  if (context.json) return 0
  await printLine(context, answer.request_id)
  const where = shownLine(answer.agent ?? agent)
  const what = answer.state === 'waiting' ? `waits to be allowed on ${where}` : `goes on without you on ${where}`
  await printNotice(context, pasteable(`${what}; its output: x0x attach ${answer.request_id}`, context.given))
  for (const cut of cutsOf(answer)) await printNotice(context, `warning: ${cut}`)
  return 0
}

/** `x0x exec WHO... --detach -- ARGV...`. */
export const runDetached = async (context: CliContext, line: CommandLine): Promise<number> => {
  const { words } = line
  const [agent] = words
  if (agent === undefined) throw usageError('no agent given', 'x0x exec WHO... --detach -- ARGV...')
  const [lifetime, keep, session] = [line.value('lifetime'), line.value('keep'), line.value('session')]
  const detach = { ...(lifetime !== null && { lifetime_ms: lifetimeOf(lifetime) }), ...(keep !== null && { keep_bytes: keepOf(keep) }) }
  const argv = carriedCommand(line, words.length)
  const request = { argv, clamp: true, detach, ...(session !== null && { session }) }
  if (words.length === 1 && !MANY_HOSTS.test(agent)) return detachOne(context, { agent, argv, request })
  return (await import('./detach-many.ts')).detachMany(context, words, request)
}
