import { AppError, isAppError } from '../../../base/errors.ts'
import { counted, shellWords } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { operate } from '../../../clients/operator.ts'
import { requestId } from '../../../protocol/api-fields.ts'
import { type FanoutSession, type IncomingRun, SESSIONS } from '../../../protocol/api-answers.ts'
import { type Sent, list, record } from '../../../protocol/json-table.ts'
import { isRequestId } from '../../../protocol/ids.ts'
import type { CliContext } from '../context.ts'
import { printAnswer, printDone, printHint, printLine, printTable } from '../print.ts'
import { wholeId } from './find-run.ts'

const fanoutLine = ({ fanout_id, argv, asked, begun, ended }: FanoutSession): string =>
  `fan-out ${fanout_id}: of ${counted(asked, 'host')} ${begun} begun, ${ended} ended: ${shellWords(argv)}`

/** `x0x exec sessions` lists live runs that this daemon requested. */
export const runSessions = async (context: CliContext): Promise<number> => {
  const answer = await context.api.read({ method: 'GET', path: '/exec/sessions' }, SESSIONS)
  return printAnswer(context, answer, async () => {
    const { sessions, fanouts } = answer
    const rows = sessions.map((run) => [run.request_id, run.agent_id.slice(0, 12), run.state, run.started_at, shellWords(run.argv)])
    if (rows.length === 0 && fanouts.length === 0) return printLine(context, 'no command is running')
    if (rows.length > 0) await printTable(context, ['REQUEST', 'AGENT', 'STATE', 'SINCE', 'COMMAND'], rows)
    for (const fanout of fanouts) await printLine(context, shownLine(fanoutLine(fanout)))
    return fanouts.length === 0 || printHint(context, 'To stop one: x0x exec cancel ID')
  })
}

/** `x0x exec sessions --incoming` lists live runs of other agents on this machine. */
export const runIncoming = async (context: CliContext): Promise<number> => {
  const answer = await operate<{ sessions: readonly IncomingRun[] }>(context, '/exec/incoming', {})
  return printAnswer(context, answer, async () => {
    if (answer.sessions.length === 0) return printLine(context, 'no runs of other agents on this machine')
    await printTable(context, ['REQUEST', 'FOR', 'STATE', 'SINCE', 'COMMAND'], answer.sessions.map(rowOf))
    return printHint(context, 'To stop one: x0x exec cancel REQUEST')
  })
}

const whoseRun = ({ name, agent_id }: IncomingRun): string => name ?? agent_id.slice(0, 12)
const commandOf = ({ argv, argv_cut }: IncomingRun): string => `${shellWords(argv)}${argv_cut === undefined ? '' : ' …'}`
const rowOf = (run: IncomingRun): string[] => [run.request_id, whoseRun(run), run.state, run.started_at, commandOf(run)]

const incomingOf = async (context: CliContext): Promise<readonly IncomingRun[]> =>
  (await operate<{ sessions: readonly IncomingRun[] }>(context, '/exec/incoming', {})).sessions

/** Fields that cancelling needs. A daemon of any release sends them. */
const REQUESTED_IDS = { sessions: list(record({ request_id: requestId })), fanouts: list(record({ fanout_id: requestId })) }

const requestedIds = async ({ api }: CliContext): Promise<Sent<typeof REQUESTED_IDS>> =>
  api.read({ method: 'GET', path: '/exec/sessions' }, REQUESTED_IDS)

/** Completes the beginning of an ID from requested runs, and from incoming ones if this user may see them. */
const idOf = async (context: CliContext, beginning: string, withOurs: boolean): Promise<string> => {
  const none = { sessions: [], fanouts: [] }
  const { sessions, fanouts } = withOurs ? await requestedIds(context) : none
  const incoming = await incomingOf(context).catch((error: unknown) => {
    if (withOurs && isAppError(error, 'operator_proof_required')) return []
    throw error
  })
  const ids = [...sessions, ...incoming].map(({ request_id }) => request_id)
  return wholeId(beginning, [...ids, ...fanouts.map(({ fanout_id }) => fanout_id)])
}

const cancelOurs = async (context: CliContext, body: object): Promise<number> =>
  printAnswer(context, await context.api.json<object>({ method: 'POST', path: '/exec/cancel', body }), async () => undefined)

/** `x0x exec cancel ID`, for a requested run or fan-out, otherwise an incoming run. The waiting client receives its end. */
export const runCancel = async (context: CliContext, beginning: string): Promise<number> => {
  const id = isRequestId(beginning) ? beginning : await idOf(context, beginning, true)
  try {
    return await cancelOurs(context, { request_id: id })
  } catch (error) {
    if (!isAppError(error, 'unknown_run')) throw error
    const { fanouts } = await requestedIds(context)
    if (fanouts.some(({ fanout_id }) => fanout_id === id)) return cancelOurs(context, { fanout_id: id })
    return runCancelIncoming(context, id, null).catch((failure: unknown) => {
      throw isAppError(failure, 'operator_proof_required')
        ? unknownRun(failure)
        : isAppError(failure, 'unknown_run')
          ? nowhere(failure)
          : failure
    })
  }
}

/** For a user who may see all runs. */
const nowhere = (cause: AppError): AppError =>
  new AppError('unknown_run', 'no active run or fan-out has that ID, neither of this agent nor of another one on this machine', {
    cause,
    data: cause.data,
  })

/** For a user who may not see incoming runs. */
const unknownRun = (cause: AppError): AppError =>
  new AppError('unknown_run', 'no active run of this agent has that ID', {
    cause,
    data: { next: `only an operator can look for runs of other agents: ${cause.message}` },
  })

export const runCancelIncoming = async (context: CliContext, requestId: string, agent: string | null): Promise<number> => {
  const request_id = isRequestId(requestId) ? requestId : await idOf(context, requestId, false)
  const body = { request_id, ...(agent !== null && { agent_id: agent }) }
  const answer = await operate<{ session: IncomingRun }>(context, '/exec/incoming/cancel', body)
  return printDone(context, answer, async () =>
    printLine(context, shownLine(`stopping: ${commandOf(answer.session)}, for ${whoseRun(answer.session)}`)),
  )
}
