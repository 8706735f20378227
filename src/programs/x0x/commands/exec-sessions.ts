import { shellWords } from '../../../base/shell-word.ts'
import type { RunSession } from '../../../exec/run-spec.ts'
import type { CliContext } from '../context.ts'
import { printAnswer, printLine, printTable } from '../print.ts'

/** `x0x exec sessions`: what this daemon asked for and what has not ended. */
export const runSessions = async (context: CliContext): Promise<number> => {
  const answer = await context.api.json<{ sessions: readonly RunSession[] }>({ method: 'GET', path: '/exec/sessions' })
  return printAnswer(context, answer, async () => {
    const rows = answer.sessions.map((run) => [run.request_id, run.agent_id.slice(0, 12), run.state, run.started_at, shellWords(run.argv)])
    if (rows.length === 0) return printLine(context, 'no command is running')
    return printTable(context, ['REQUEST', 'AGENT', 'STATE', 'SINCE', 'COMMAND'], rows)
  })
}

/** `x0x exec cancel ID`. Whether the command ended is told to whoever waits for it. */
export const runCancel = async (context: CliContext, requestId: string): Promise<number> => {
  const answer = await context.api.json<object>({ method: 'POST', path: '/exec/cancel', body: { request_id: requestId } })
  return printAnswer(context, answer, async () => undefined)
}
