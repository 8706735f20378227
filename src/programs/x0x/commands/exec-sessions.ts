import { AppError, isAppError } from '../../../base/errors.ts'
import { shellWords } from '../../../base/shell-word.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { RunSession } from '../../../exec/run-spec.ts'
import type { IncomingRun } from '../../../executor/port/shown.ts'
import { operate } from '../../../local-api/operator.ts'
import type { CliContext } from '../context.ts'
import { printAnswer, printDone, printLine, printTable } from '../print.ts'

/** `x0x exec sessions`: what this daemon asked for and what has not ended. */
export const runSessions = async (context: CliContext): Promise<number> => {
  const answer = await context.api.json<{ sessions: readonly RunSession[] }>({ method: 'GET', path: '/exec/sessions' })
  return printAnswer(context, answer, async () => {
    const rows = answer.sessions.map((run) => [run.request_id, run.agent_id.slice(0, 12), run.state, run.started_at, shellWords(run.argv)])
    if (rows.length === 0) return printLine(context, 'no command is running')
    return printTable(context, ['REQUEST', 'AGENT', 'STATE', 'SINCE', 'COMMAND'], rows)
  })
}

/** `x0x exec sessions --incoming`: what other agents asked for and what has not ended here. */
export const runIncoming = async (context: CliContext): Promise<number> => {
  const answer = await operate<{ sessions: readonly IncomingRun[] }>(context, '/exec/incoming', {})
  return printAnswer(context, answer, async () => {
    if (answer.sessions.length === 0) return printLine(context, 'nothing runs here for another agent')
    await printTable(context, ['REQUEST', 'FOR', 'STATE', 'SINCE', 'COMMAND'], answer.sessions.map(rowOf))
    return printLine(context, 'end one: x0x exec cancel REQUEST')
  })
}

const whoseRun = ({ name, agent_id }: IncomingRun): string => name ?? agent_id.slice(0, 12)
const commandOf = ({ argv, argv_cut }: IncomingRun): string => `${shellWords(argv)}${argv_cut === undefined ? '' : ' …'}`
const rowOf = (run: IncomingRun): string[] => [run.request_id, whoseRun(run), run.state, run.started_at, commandOf(run)]

/** `x0x exec cancel ID`, of a run of ours or else of one that runs here. Whether it ended is told to whoever waits for it. */
export const runCancel = async (context: CliContext, requestId: string): Promise<number> => {
  try {
    const answer = await context.api.json<object>({ method: 'POST', path: '/exec/cancel', body: { request_id: requestId } })
    return await printAnswer(context, answer, async () => undefined)
  } catch (error) {
    if (!isAppError(error, 'unknown_run')) throw error
    return runCancelIncoming(context, requestId, null).catch((failure: unknown) => {
      throw isAppError(failure, 'operator_proof_required') ? unknownRun(failure) : failure
    })
  }
}

/** Of a user who is no operator. */
const unknownRun = (cause: AppError): AppError =>
  new AppError('unknown_run', 'this daemon has asked for no run under that id that goes on', {
    cause,
    data: { next: `whether one runs here for another agent, only an operator may see: ${cause.message}` },
  })

/** `x0x exec cancel --incoming ID`. */
export const runCancelIncoming = async (context: CliContext, requestId: string, agent: string | null): Promise<number> => {
  const body = { request_id: requestId, ...(agent !== null && { agent_id: agent }) }
  const answer = await operate<{ session: IncomingRun }>(context, '/exec/incoming/cancel', body)
  return printDone(context, answer, async () =>
    printLine(context, shownLine(`asked to end: ${commandOf(answer.session)}, for ${whoseRun(answer.session)}`)),
  )
}
