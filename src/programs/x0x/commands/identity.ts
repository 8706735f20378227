import type { Logger } from '../../../base/log.ts'
import { shownLine, visibleJson } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { TOKEN_NAMES } from '../../../cli/x0x.ts'
import { operate } from '../../../clients/operator.ts'
import { CAUSE_TEXT, evaluateTrust, trustRemedy } from '../../../clients/trust.ts'
import { loadPrimitives } from '../../../identity/primitives.ts'
import type { Fields } from '../../../protocol/json-table.ts'
import type { TrustDecision } from '../../../protocol/reasons.ts'
import { rotateAgentKey } from '../../../supervision/rotate-agent-key.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { painter, printAnswer, printDone, printJson, printLine } from '../print.ts'

const fact = (value: unknown): string => (Array.isArray(value) ? value.join(' ') : String(value))

/** `x0x id`: this daemon's IDs, for contacts, pins and ACLs of others. */
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

/** `x0x id revoke`: it cannot be undone, so it must be confirmed. */
export const runRevoke = async (context: CliContext, line: CommandLine): Promise<number> => {
  const machine = line.value('machine')
  const what = machine === null ? 'this agent on every machine' : `this agent on machine ${machine}`
  if (!line.has('yes')) throw usageError(`revoking ${what} cannot be undone`, 'To confirm, add --yes')
  const answer = await operate<object>(context, '/agent/revoke', { machine_id: machine })
  return printDone(context, answer, async () => printLine(context, `revoked: ${shownLine(what)}`))
}

export const runRotateToken = async (context: CliContext, { words: [which = 'api-token'] }: CommandLine): Promise<number> => {
  const token = TOKEN_NAMES.find((name) => name === which)
  if (token === undefined) throw usageError(`unknown secret ${JSON.stringify(which)}`, `Use one of ${TOKEN_NAMES.join(', ')}`)
  const answer = await operate<{ file: string }>(context, '/keys/rotate-token', { token: token.replace('-', '_') })
  return printDone(context, answer, async () => {
    await printLine(context, shownLine(`replaced: ${answer.file}; the old one is invalid`))
    if (token === 'operator-key') await printLine(context, 'open approval clients stay connected until you close them')
  })
}

const tell = (fields: object | string, text = ''): void => void process.stderr.write(`${visibleJson(JSON.stringify({ text, fields }))}\n`)
/** Reports journal problems without the daemons' logger, which takes long to load. */
const TOLD: Logger = { debug: () => undefined, info: () => undefined, warn: tell, error: tell, child: () => TOLD }

/** `x0x keys rotate`: works on the data directory itself, while no daemon uses it. */
export const runRotate = async (context: CliContext, line: CommandLine): Promise<number> => {
  if (!line.has('yes'))
    throw usageError('this agent gets a new ID. Contacts accept it, but ACLs that list the old ID must be changed', 'To confirm, add --yes')
  await loadPrimitives()
  const rotated = await rotateAgentKey({ log: TOLD }, context.api.paths)
  return printDone(context, { ok: true, ...rotated }, async () => {
    await printLine(context, `agent ${rotated.agent_id}, formerly ${rotated.formerly}`)
    await printLine(context, 'start x0xd: contacts receive the new key when they connect; their ACLs need an entry for the new ID')
  })
}

const STATUS: Readonly<Record<TrustDecision, number>> = {
  accept: 0,
  accept_with_flag: 3,
  unknown: 4,
  reject_blocked: 5,
  reject_machine_mismatch: 5,
  reject_revoked: 5,
}

const MEANING: Readonly<Record<TrustDecision, string>> = {
  accept: 'the ACL decides about its requests; its messages are accepted',
  accept_with_flag: 'its messages are accepted; its commands are denied (trust_rejected)',
  unknown: 'its commands and messages are denied (trust_rejected)',
  reject_blocked: 'links to it are closed',
  reject_machine_mismatch: 'links to it from that machine are closed',
  reject_revoked: 'links to it are closed, for ever',
}

export const runTrustEvaluate = async (context: CliContext, { words: [agent = '', machine = ''] }: CommandLine): Promise<number> => {
  const evaluation = await evaluateTrust(context.api, agent, machine)
  const { decision, cause, contact, in_acl } = evaluation
  if (context.json) await printJson(context, evaluation)
  else {
    const paint = painter(context.stdout, context.env)
    const colour = decision === 'accept' ? 'green' : STATUS[decision] === 5 ? 'red' : 'yellow'
    const who = contact === null ? evaluation.agent_id : `${contact.name} (${evaluation.agent_id})`
    await printLine(context, `${paint(colour, decision)}  ${MEANING[decision]}`)
    await printLine(context, shownLine(`agent    ${who}`))
    await printLine(context, `why      ${CAUSE_TEXT[cause]}`)
    await printLine(context, `acl      it ${in_acl ? 'has' : 'has no'} entry for this agent on that machine`)
    const remedy = trustRemedy(evaluation)
    if (remedy !== null) await printLine(context, shownLine(`${decision === 'accept' ? 'safer' : 'fix  '}    ${remedy}`))
  }
  return STATUS[decision]
}
