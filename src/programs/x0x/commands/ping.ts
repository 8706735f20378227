import { setTimeout as sleep } from 'node:timers/promises'
import { type AppError, isAppError } from '../../../base/errors.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { untilEnded } from '../../../cli/output.ts'
import { type CommandLine, millisecondsOf } from '../../../cli/parse.ts'
import { routeText } from '../../../doctor/relation.ts'
import type { Pinged } from '../../../protocol/api-answers.ts'
import type { CliContext } from '../context.ts'
import { exitStatusOf, failureLines, printProblem, usageError } from '../failure.ts'
import { printJson, printLine } from '../print.ts'

const MAX_COUNT = 10_000
const MIN_INTERVAL_MS = 100

const countOf = (text: string): number => {
  const count = /^[1-9][0-9]{0,4}$/.test(text) ? Number(text) : Infinity
  if (count <= MAX_COUNT) return count
  throw usageError(`--count must be a number from 1 to ${MAX_COUNT}, not ${JSON.stringify(text)}`)
}

const intervalOf = (text: string): number => {
  const ms = millisecondsOf(text)
  if (ms !== null && ms >= MIN_INTERVAL_MS) return ms
  throw usageError(`--interval must be at least ${MIN_INTERVAL_MS / 1000} seconds, not ${JSON.stringify(text)}`)
}

/** Failures that may be temporary. */
const PASSING = ['peer_unreachable', 'peer_rejected', 'timeout', 'rate_limited'] as const
const mayPass = (error: unknown): error is AppError => PASSING.some((code) => isAppError(error, code))

type Answer = { readonly seq: number; readonly pinged: Pinged } | { readonly seq: number; readonly error: AppError }

/** Pings repeatedly and yields each answer. */
const pings = async function* (
  context: CliContext,
  agent: string,
  { count, interval }: { readonly count: number; readonly interval: number },
  signal: AbortSignal,
): AsyncGenerator<Answer> {
  for (let seq = 1; seq <= count; seq++) {
    if (seq > 1) await sleep(interval, undefined, { signal })
    try {
      yield { seq, pinged: await context.api.json<Pinged>({ method: 'POST', path: '/agents/ping', body: { agent }, signal }) }
    } catch (error) {
      if (!mayPass(error)) throw error
      yield { seq, error }
    }
  }
}

const ms = (value: number): string => `${value < 10 ? value.toFixed(2) : value.toFixed(1)} ms`

const wayOf = ({ path, connect_ms }: Pinged, first: boolean): string => {
  if (path === null) return 'this agent'
  const way = `${path.address} ${routeText(path)}${path.inbound ? ', it connected to this machine' : ''}`
  return first && connect_ms >= 1 ? `${way}, connected in ${ms(connect_ms)}` : way
}

const clockText = (ahead: number): string =>
  Math.abs(ahead) < 1_000 ? 'its clock is equal' : `its clock is ${(Math.abs(ahead) / 1000).toFixed(1)} s ${ahead > 0 ? 'ahead' : 'slow'}`

const rttOf = (answered: readonly Pinged[]): { readonly min: number; readonly avg: number; readonly max: number } | null => {
  const times = answered.map(({ rtt_ms }) => rtt_ms)
  if (times.length === 0) return null
  const avg = times.reduce((sum, time) => sum + time, 0) / times.length
  return { min: Math.min(...times), avg: Math.round(avg * 100) / 100, max: Math.max(...times) }
}

export const runPing = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [agent = ''] = line.words
  const wanted = { count: countOf(line.value('count') ?? ''), interval: intervalOf(line.value('interval') ?? '') }
  const answered: Pinged[] = []
  let [sent, failure]: [number, AppError | null] = [0, null]
  await untilEnded(context, async (signal) => {
    for await (const answer of pings(context, agent, wanted, signal)) {
      sent = answer.seq
      if ('error' in answer) failure = answer.error
      else answered.push(answer.pinged)
      if (context.json) continue
      const { seq } = answer
      const text =
        'error' in answer
          ? `seq=${seq} ${answer.error.code}`
          : `seq=${seq} time=${ms(answer.pinged.rtt_ms)}  ${wayOf(answer.pinged, seq === 1)}`
      if (!(await printLine(context, shownLine(`${agent}: ${text}`)))) break
    }
  })
  const rtt_ms = rttOf(answered)
  const last = answered.at(-1)
  if (context.json) await printJson(context, { ok: rtt_ms !== null, agent, sent, answered: answered.length, rtt_ms, last: last ?? null })
  else if (last !== undefined && rtt_ms !== null) {
    await printLine(
      context,
      `${sent} sent, ${answered.length} answered; min/avg/max ${ms(rtt_ms.min)} / ${ms(rtt_ms.avg)} / ${ms(rtt_ms.max)}`,
    )
    const { decision, machine_id, version, own_version, clock_ahead_ms } = last
    await printLine(
      context,
      shownLine(`machine ${machine_id}, trust ${decision}; its x0x ${version}, this one ${own_version}; ${clockText(clock_ahead_ms)}`),
    )
  }
  if (rtt_ms !== null || failure === null) return rtt_ms === null ? 1 : 0
  await printProblem(context, failureLines(failure))
  return exitStatusOf(failure)
}
