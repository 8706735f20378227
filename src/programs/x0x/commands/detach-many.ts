import { v7 as uuidv7 } from 'uuid'

import { errorText, isAppError } from '../../../base/errors.ts'
import { shellWords } from '../../../base/shell-word.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { DEFAULT_FANOUT_PARALLEL } from '../../../protocol/fanout-limits.ts'
import { exitOfSignal } from '../../../supervision/program-exit.ts'
import { write } from '../../../supervision/program-output.ts'
import type { CliContext } from '../context.ts'
import { selectedHosts } from '../fleet/select-hosts.ts'
import { reportFailure } from '../failure.ts'
import { fleetStatus } from '../fleet/fleet-status.ts'
import { EXIT_NOT_RUN } from '../outcome.ts'
import { printJson, printLine, printNotice } from '../print.ts'
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
  readonly denial_reason: string | null
  readonly error: string | null
  readonly message: string | null
}

type Host = Pick<Asked, 'host' | 'agent_id'>

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
    const end = signal.aborted || mayRun(error) ? 'unknown' : 'unreachable'
    return { ...asked, ...NOTHING, end, error: code, message: errorText(error) }
  }
}

/** Said at once of a host that did not start it. */
const problemOf = ({ host, end, denial_reason, message }: Asked): string =>
  shownLine(`${host}: ${end}${denial_reason === null ? '' : `: ${denial_reason}`}${message === null ? '' : `: ${message}`}`)

const countsOf = (asked: readonly Asked[]): Readonly<Record<Asked['end'], number>> =>
  Object.fromEntries(ENDS.map((end) => [end, asked.filter((one) => one.end === end).length])) as Record<Asked['end'], number>

const told = async (context: CliContext, asked: readonly Asked[]): Promise<number> => {
  const { started, ...others } = countsOf(asked)
  const status = fleetStatus({ ...others, cancelled: 0, failed: 0 })
  if (context.json) {
    await printJson(context, { ok: status === 0, asked: asked.length, started, ...others, hosts: asked })
    return status
  }
  const rest = Object.entries(others).flatMap(([end, count]) => (count === 0 ? [] : [`, ${count} ${end}`]))
  await printNotice(context, `${started} of ${asked.length} started${rest.join('')}; what becomes of them: x0x runs --refresh`)
  return status
}

/**
 * `x0x exec WHO... --detach -- ARGV...` of many hosts: an id and its host a line, as they start. Each is asked by itself, since
 * each answers at once. Answers the exit status of a fan-out, where starting is what each host was asked for.
 */
export const detachMany = async (context: CliContext, who: readonly string[], request: object): Promise<number> => {
  try {
    return await detachEach(context, await selectedHosts(context, who), request)
  } catch (error) {
    // Nobody could be asked.
    if (isAppError(error, 'bad_request')) throw error
    await reportFailure(context, context.json, error)
    return EXIT_NOT_RUN
  }
}

const detachEach = async (context: CliContext, hosts: readonly Host[], request: object): Promise<number> => {
  const leaving = new AbortController()
  let left: NodeJS.Signals | null = null
  const stopListening = context.onSignal((signal) => {
    left ??= signal
    leaving.abort()
  })
  const asked: Asked[] = []
  const waiting = hosts.values()
  const askOn = async (): Promise<void> => {
    for (const host of waiting) {
      const one = await askOne(context, host, request, leaving.signal)
      asked.push(one)
      if (context.json) continue
      if (one.end === 'started') await printLine(context, shellWords([one.request_id, one.host]))
      else if (one.end !== 'not_started') await write(context.stderr, `x0x: ${problemOf(one)}\n`)
    }
  }
  try {
    await Promise.all(Array.from({ length: DEFAULT_FANOUT_PARALLEL }, askOn))
    const status = await told(context, asked)
    return left === null ? status : exitOfSignal(left)
  } finally {
    stopListening()
  }
}
