import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { operate } from '../../../local-api/operator.ts'
import { painter, printJson, printLine } from '../print.ts'
import { shownLine } from '../terminal-text.ts'

interface AgentAnswer {
  readonly agent_id: string
  readonly machine_id: string
  readonly [key: string]: unknown
}

const fact = (value: unknown): string => (Array.isArray(value) ? value.join(' ') : String(value))

/** `x0x id`: who this daemon is, as others must write it into contacts, pins and ACLs. */
export const runId = async (context: CliContext): Promise<number> => {
  const { ok: _, ...agent } = await context.api.json<AgentAnswer & { ok?: boolean }>({ method: 'GET', path: '/agent' })
  if (context.json) {
    await printJson(context, agent)
    return 0
  }
  const paint = painter(context.stdout, context.env)
  const facts = Object.entries(agent).filter(
    ([, value]) =>
      (value !== null && (!Array.isArray(value) || value.length > 0) && typeof value !== 'object') ||
      (Array.isArray(value) && value.length > 0),
  )
  const width = Math.max(...facts.map(([key]) => key.length))
  for (const [key, value] of facts) await printLine(context, `${paint('dim', key.padEnd(width))}  ${shownLine(fact(value))}`)
  return 0
}

/** `x0x card`: the link that another operator imports. */
export const runCard = async (context: CliContext): Promise<number> => {
  const answer = await context.api.json<{ link: string }>({ method: 'GET', path: '/agent/card' })
  if (context.json) await printJson(context, answer)
  else await printLine(context, shownLine(answer.link))
  return 0
}

export interface RevokeOptions {
  /** One machine of this agent, or null for the agent everywhere. */
  readonly machine: string | null
  readonly yes: boolean
}

/** `x0x id revoke`: a statement for ever, so it must be said twice. */
export const runRevoke = async (context: CliContext, options: RevokeOptions): Promise<number> => {
  const what = options.machine === null ? 'this agent on every machine' : `this agent on machine ${options.machine}`
  if (!options.yes) throw usageError(`revoking ${what} cannot be undone`, 'when that is what you want, add --yes')
  const answer = await operate<object>(context, '/agent/revoke', { machine_id: options.machine })
  if (context.json) await printJson(context, answer)
  else await printLine(context, `revoked: ${shownLine(what)}`)
  return 0
}
