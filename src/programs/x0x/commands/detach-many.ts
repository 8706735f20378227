import { v7 as uuidv7 } from 'uuid'
import { errorText, isAppError, nextOf } from '../../../base/errors.ts'
import { shellWords } from '../../../base/shell-word.ts'
import { DEFAULT_FANOUT_PARALLEL } from '../../../protocol/fanout-limits.ts'
import { exitOfSignal } from '../../../supervision/program-exit.ts'
import type { CliContext } from '../context.ts'
import { printProblem } from '../failure.ts'
import { fleetStatus } from '../fleet/fleet-status.ts'
import { type EndedHost, unsuccessfulLines } from '../fleet/fleet-summary.ts'
import { selectedHosts } from '../fleet/select-hosts.ts'
import type { RunFacts } from '../outcome.ts'
import { printJson, printLine } from '../print.ts'
import { statusAsExec } from '../status-as-exec.ts'
import { askDetached, isDenied, mayRun } from './detached-request.ts'

/** What became of asking one host: exactly one of them. */
const ENDS = ['started', 'denied', 'unreachable', 'not_started', 'unknown'] as const

interface Asked {
  readonly host: string
  readonly agent_id: string
  readonly request_id: string
  readonly end: (typeof ENDS)[number]
  /** Of the run; null: it is not known to have begun. */
  readonly state: string | null
  readonly denial_reason: EndedHost['denial_reason']
  readonly error: string | null
  readonly message: string | null
  readonly next?: string
}

type Host = Pick<Asked, 'host' | 'agent_id'>

/** All of the request that is the same for each host. */
interface ManyRequest {
  readonly argv: readonly string[]
  /** What all of them are found by later. */
  readonly session: string
}

const NOTHING = { state: null, denial_reason: null, error: null, message: null }

const askOne = async (context: CliContext, { host, agent_id }: Host, request: object, signal: AbortSignal): Promise<Asked> => {
  const asked = { host, agent_id, request_id: uuidv7() }
  if (signal.aborted) return { ...asked, ...NOTHING, end: 'not_started' }
  try {
    const answer = await askDetached(context, agent_id, { agent: agent_id, request_id: asked.request_id, ...request }, signal)
    return isDenied(answer)
      ? { ...asked, ...NOTHING, end: 'denied', denial_reason: answer.denial_reason }
      : { ...asked, ...NOTHING, end: 'started', state: answer.state }
  } catch (error) {
    const code = isAppError(error) ? error.code : 'internal'
    // What went wrong inside says nothing of the Request.
    const end = signal.aborted || mayRun(error) || code === 'internal' ? 'unknown' : 'unreachable'
    return { ...asked, ...NOTHING, end, error: code, message: errorText(error), ...nextOf(error) }
  }
}

const countsOf = (asked: readonly Asked[]): Readonly<Record<Asked['end'], number>> =>
  Object.fromEntries(ENDS.map((end) => [end, asked.filter((one) => one.end === end).length])) as Record<Asked['end'], number>

/** As a host of a fan-out that ends, for which starting is all that it was asked for. */
const endedOf = ({ host, request_id, end, denial_reason, error, message, next }: Asked): EndedHost => ({
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

const told = async (
  context: CliContext,
  asked: readonly Asked[],
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
      : [`how they are: x0x runs --refresh --session ${session}`, `until all are over: x0x runs wait --session ${session}`]),
  ]
  await printProblem(context, lines)
  return status
}

/** A name that nobody else gives: of the random end of an id. */
const nameOfThese = (): string => `detached-${uuidv7().slice(-12)}`

/**
 * `x0x exec WHO... --detach -- ARGV...` of many hosts: an id and its host a line, as they start, and one name of a session for all of
 * them. Each is asked by itself, since each answers at once. Answers the exit status of a fan-out, where starting is what each host
 * was asked for.
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
  const asked: Asked[] = []
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
    const status = await told(context, asked, request, left !== null)
    return left === null ? status : exitOfSignal(left)
  } finally {
    stopListening()
  }
}
