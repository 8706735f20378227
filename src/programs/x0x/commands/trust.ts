import { shownLine } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { CAUSE_TEXT, evaluateTrust, trustRemedy } from '../../../clients/trust.ts'
import type { TrustDecision } from '../../../protocol/reasons.ts'
import type { CliContext } from '../context.ts'
import { painter, printJson, printLine } from '../print.ts'

const STATUS: Readonly<Record<TrustDecision, number>> = {
  accept: 0,
  accept_with_flag: 3,
  unknown: 4,
  reject_blocked: 5,
  reject_machine_mismatch: 5,
  reject_revoked: 5,
}

const MEANING: Readonly<Record<TrustDecision, string>> = {
  accept: 'its requests are judged by the ACL, its messages are taken',
  accept_with_flag: 'its messages are taken, its commands are denied (trust_rejected)',
  unknown: 'its commands are denied (trust_rejected), and its messages are not taken',
  reject_blocked: 'links to it are closed',
  reject_machine_mismatch: 'links to it from that machine are closed',
  reject_revoked: 'links to it are closed, for ever',
}

/** `x0x trust evaluate AGENT MACHINE`. */
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
    if (remedy !== null) await printLine(context, shownLine(`${decision === 'accept' ? 'safer' : 'mend '}    ${remedy}`))
  }
  return STATUS[decision]
}
