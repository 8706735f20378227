import { v7 as uuidv7 } from 'uuid'
import { errorText, isAppError, nextOf } from '../../../base/errors.ts'
import { shellWords } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { exitOfSignal } from '../../../cli/exit.ts'
import { type CommandLine, durationOf, sizeOf } from '../../../cli/parse.ts'
import { MANY_HOSTS } from '../../../cli/plain-exec.ts'
import type { DetachedRunView } from '../../../protocol/api/detached-run.ts'
import type { RunResultJson } from '../../../protocol/api/run-events.ts'
import { DEFAULT_FANOUT_PARALLEL } from '../../../protocol/limits/fleet.ts'
import type { CliContext } from '../context.ts'
import { carriedCommand, printProblem, reportFailure, statusAsExec, usageError } from '../failure.ts'
import { selectedHosts } from '../fleet/fleet-request.ts'
import { fleetStatus } from '../fleet/fleet-run.ts'
import { type EndedHost, unsuccessfulLines } from '../fleet/fleet-summary.ts'
import { EXIT_NOT_RUN, type RunFacts, denialLines } from '../outcome.ts'
import { printJson, printLine, printNotice } from '../print.ts'
import { ID_BEGINNING, proverOf, traceHeader } from '../request-headers.ts'

/** The daemon's answer to a request for a detached run. */
export type DetachedAnswer = RunResultJson | (DetachedRunView & { readonly ok: true })

export const isDenied = (answer: DetachedAnswer): answer is RunResultJson => 'stdout_b64' in answer

/** Sends a proof if it can be made at once. Few daemons require it. */
export const askDetached = async (context: CliContext, agent: string, request: object, signal: AbortSignal): Promise<DetachedAnswer> => {
  const body = JSON.stringify(request)
  const prover = proverOf(context)
  const able = typeof prover === 'function'
  const send = async (headers: Readonly<Record<string, string>>): Promise<DetachedAnswer> =>
    context.api.json<DetachedAnswer>({
      method: 'POST',
      path: '/exec/run',
      body,
      headers: { ...headers, ...traceHeader(context.env) },
      signal,
    })
  if (able && !ID_BEGINNING.test(agent)) return send(prover(body))
  try {
    return await send({})
  } catch (error) {
    if (!isAppError(error, 'operator_proof_required')) throw error
    if (!able) throw prover
    return send(prover(body))
  }
}

/** Whether the request may have been sent. */
export const mayRun = (error: unknown): boolean =>
  isAppError(error) && (error.data['may_run'] === true || (error.code === 'daemon_unreachable' && error.data['asked'] !== false))

/** How starting on one host ended. */
const ENDS = ['started', 'denied', 'unreachable', 'not_started', 'unknown'] as const

interface DetachLine {
  readonly host: string
  readonly agent_id: string
  readonly request_id: string
  readonly end: (typeof ENDS)[number]
  /** State of the run, or null if it may not have started. */
  readonly state: string | null
  readonly denial_reason: EndedHost['denial_reason']
  readonly error: string | null
  readonly message: string | null
  readonly next?: string
}

type Host = Pick<DetachLine, 'host' | 'agent_id'>

/** The parts of the request that are the same for all hosts. */
interface ManyRequest {
  readonly argv: readonly string[]
  /** The label that finds all of the runs later. */
  readonly session: string
}

const NOTHING = { state: null, denial_reason: null, error: null, message: null }

const askOne = async (context: CliContext, { host, agent_id }: Host, request: object, signal: AbortSignal): Promise<DetachLine> => {
  const asked = { host, agent_id, request_id: uuidv7() }
  if (signal.aborted) return { ...asked, ...NOTHING, end: 'not_started' }
  try {
    const answer = await askDetached(context, agent_id, { agent: agent_id, request_id: asked.request_id, ...request }, signal)
    return isDenied(answer)
      ? { ...asked, ...NOTHING, end: 'denied', denial_reason: answer.denial_reason }
      : { ...asked, ...NOTHING, end: 'started', state: answer.state }
  } catch (error) {
    const code = isAppError(error) ? error.code : 'internal'
    // An internal error leaves the state of the request unknown.
    const end = signal.aborted || mayRun(error) || code === 'internal' ? 'unknown' : 'unreachable'
    return { ...asked, ...NOTHING, end, error: code, message: errorText(error), ...nextOf(error) }
  }
}

const countsOf = (asked: readonly DetachLine[]): Readonly<Record<DetachLine['end'], number>> =>
  Object.fromEntries(ENDS.map((end) => [end, asked.filter((one) => one.end === end).length])) as Record<DetachLine['end'], number>

/** The start on one host as an end of a fan-out. */
const endedOf = ({ host, request_id, end, denial_reason, error, message, next }: DetachLine): EndedHost => ({
  host,
  request_id,
  end: end === 'started' ? 'ran' : end,
  code: 0,
  signal: null,
  incomplete: false,
  truncated: false,
  warnings: [],
  denial_reason,
  error,
  ...(message !== null && { message }),
  ...(next !== undefined && { next }),
})

const printHosts = async (
  context: CliContext,
  asked: readonly DetachLine[],
  { argv, session }: ManyRequest,
  interrupted: boolean,
): Promise<number> => {
  const { started, ...others } = countsOf(asked)
  const status = fleetStatus({ ...others, cancelled: 0, failed: 0 })
  if (context.json) {
    await printJson(context, { ok: status === 0, session, asked: asked.length, started, ...others, hosts: asked })
    return status
  }
  if (context.quiet && status === 0) return status
  const own = others.denied === 0 ? null : await context.api.json<RunFacts['own']>({ method: 'GET', path: '/agent' }).catch(() => null)
  const rest = Object.entries(others).flatMap(([end, count]) => (count === 0 ? [] : [`, ${count} ${end.replaceAll('_', ' ')}`]))
  const lines = [
    `${started} of ${asked.length} started${rest.join('')}`,
    ...unsuccessfulLines(asked.map(endedOf), { argv, timed: false, interrupted, own }),
    ...(started + others.unknown === 0
      ? []
      : [`See: x0x runs --refresh --session ${session}`, `To wait: x0x runs wait --session ${session}`]),
  ]
  await printProblem(context, lines)
  return status
}

/** A unique label, from the random end of an ID. */
const nameOfThese = (): string => `detached-${uuidv7().slice(-12)}`

/**
 * Runs `x0x exec HOST... --detach -- COMMAND [ARGS...]` for many hosts. Prints each run's ID and host, and one label for all of them. Each
 * host is asked separately, because each answers at once. Returns the exit status of a fan-out of starts.
 */
export const detachMany = async (
  context: CliContext,
  who: readonly string[],
  request: Omit<ManyRequest, 'session'> & { readonly session?: string },
): Promise<number> =>
  statusAsExec(context, async () => detachEach(context, await selectedHosts(context, who), { session: nameOfThese(), ...request }))

const detachEach = async (context: CliContext, hosts: readonly Host[], request: ManyRequest): Promise<number> => {
  const leaving = new AbortController()
  let left: NodeJS.Signals | null = null
  const stopListening = context.onSignal((signal) => {
    left ??= signal
    leaving.abort()
  })
  const asked: DetachLine[] = []
  const waiting = hosts.entries()
  const askOn = async (): Promise<void> => {
    for (const [at, host] of waiting) {
      const one = await askOne(context, host, request, leaving.signal)
      asked[at] = one
      if (one.end === 'started' && !context.json) await printLine(context, shellWords([one.request_id, one.host]))
    }
  }
  try {
    await Promise.all(Array.from({ length: DEFAULT_FANOUT_PARALLEL }, askOn))
    const status = await printHosts(context, asked, request, left !== null)
    return left === null ? status : exitOfSignal(left)
  } finally {
    stopListening()
  }
}

interface DetachOptions {
  readonly agent: string
  readonly argv: readonly string[]
  /** The parts of the request that are the same for all agents. */
  readonly request: object
}

const lifetimeOf = (text: string): number => {
  const ms = durationOf(text)
  if (ms !== null) return ms
  throw usageError(`--lifetime must be a duration (90s, 15m, 8h, 2d), not ${JSON.stringify(text)}`)
}

const keepOf = (text: string): number => {
  const bytes = sizeOf(text)
  if (bytes !== null && bytes > 0) return bytes
  throw usageError(`--keep must be a size above 0 (65536, 64K, 8M), not ${JSON.stringify(text)}`)
}

const mayHaveStarted = async (context: CliContext, requestId: string): Promise<boolean> =>
  printProblem(context, [`Try: x0x runs --refresh   (whether ${requestId} started)`])

/** Runs `x0x exec AGENT --detach -- ARGV...`. Prints the ID on standard output and the next command on standard error. */
const detachOne = async (context: CliContext, options: DetachOptions): Promise<number> => {
  // Chosen before the request, so that a user who stops waiting can find the run.
  const request_id = uuidv7()
  const leaving = new AbortController()
  let left: NodeJS.Signals | null = null
  const stopListening = context.onSignal((signal) => {
    left ??= signal
    leaving.abort()
  })
  try {
    const request = { agent: options.agent, request_id, ...options.request }
    return await printDetached(context, options, await askDetached(context, options.agent, request, leaving.signal))
  } catch (error) {
    if (isAppError(error, 'bad_request')) throw error
    if (left === null) await reportFailure(context, error)
    if (left !== null || mayRun(error)) await mayHaveStarted(context, request_id)
    return left === null ? EXIT_NOT_RUN : exitOfSignal(left)
  } finally {
    stopListening()
  }
}

/** A difference above this is a cut. Smaller ones come from the delay of the answer. */
const CUT_MS = 1_000

/** Limits that the target's ACL has lowered. */
const cutsOf = ({ kept, lifetime_ms, keep_bytes }: DetachedRunView): string[] => {
  if (kept === null) return []
  const { lifetime_left_ms: left } = kept
  const lives = lifetime_ms !== null && left !== null && left < lifetime_ms - CUT_MS
  const keeps = keep_bytes !== null && kept.keep_bytes < keep_bytes
  return [
    ...(lives ? [`the target limits its lifetime to ${Math.round(left / 1_000)} s (max_detach_secs)`] : []),
    ...(keeps ? [`the target keeps only ${kept.keep_bytes} bytes of its output (max_detach_output_bytes)`] : []),
  ]
}

const printDetached = async (context: CliContext, { agent, argv }: DetachOptions, answer: DetachedAnswer): Promise<number> => {
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
  const what = answer.state === 'waiting' ? `waiting for approval on ${where}` : `running detached on ${where}`
  await printNotice(context, `${what}. Next: x0x attach ${answer.request_id}`)
  for (const cut of cutsOf(answer)) await printNotice(context, `warning: ${cut}`)
  return 0
}

export const runDetached = async (context: CliContext, line: CommandLine): Promise<number> => {
  const { words } = line
  const [agent] = words
  if (agent === undefined) throw usageError('no host given', 'Usage: x0x exec HOST... --detach -- COMMAND [ARGS...]')
  const [lifetime, keep, session] = [line.value('lifetime'), line.value('keep'), line.value('session')]
  const detach = { ...(lifetime !== null && { lifetime_ms: lifetimeOf(lifetime) }), ...(keep !== null && { keep_bytes: keepOf(keep) }) }
  const argv = carriedCommand(line, words.length)
  const request = { argv, clamp: true, detach, ...(session !== null && { session }) }
  if (words.length === 1 && !MANY_HOSTS.test(agent)) return detachOne(context, { agent, argv, request })
  return detachMany(context, words, request)
}
