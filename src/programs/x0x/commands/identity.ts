import { shownLine } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { operate } from '../../../clients/operator.ts'
import type { Fields } from '../../../protocol/json-table.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { painter, printAnswer, printDone, printLine } from '../print.ts'

const fact = (value: unknown): string => (Array.isArray(value) ? value.join(' ') : String(value))

/** `x0x id`: who this daemon is, as others must write it into contacts, pins and ACLs. */
export const runId = async (context: CliContext): Promise<number> => {
  const { ok: _, ...agent } = await context.api.json<Fields>({ method: 'GET', path: '/agent' })
  const paint = painter(context.stdout, context.env)
  const facts = Object.entries(agent).filter(([, value]) => (Array.isArray(value) ? value.length > 0 : typeof value !== 'object'))
  const width = Math.max(...facts.map(([key]) => key.length))
  return printAnswer(context, agent, async () => {
    for (const [key, value] of facts) await printLine(context, `${paint('dim', key.padEnd(width))}  ${shownLine(fact(value))}`)
  })
}

/** `x0x card`: the link that another operator imports. */
export const runCard = async (context: CliContext): Promise<number> => {
  const answer = await context.api.json<{ link: string }>({ method: 'GET', path: '/agent/card' })
  return printAnswer(context, answer, async () => printLine(context, shownLine(answer.link)))
}

/** `x0x id revoke`: a statement for ever, so it must be said twice. */
export const runRevoke = async (context: CliContext, line: CommandLine): Promise<number> => {
  const machine = line.value('machine')
  const what = machine === null ? 'this agent on every machine' : `this agent on machine ${machine}`
  if (!line.has('yes')) throw usageError(`revoking ${what} cannot be undone`, 'when that is what you want, add --yes')
  const answer = await operate<object>(context, '/agent/revoke', { machine_id: machine })
  return printDone(context, answer, async () => printLine(context, `revoked: ${shownLine(what)}`))
}
