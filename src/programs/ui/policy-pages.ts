import { errorText } from '../../base/errors.ts'
import { type AclInForce, notInForceLines } from '../../doctor/loaded-acl.ts'
import type { Acl, AllowEntry } from '../../policy/mesh/acl.ts'
import { explain, explanationText } from '../../policy/mesh/explain.ts'
import { type LoadAclInit, loadAcl } from '../../policy/mesh/load-acl.ts'
import type { PageExplainQuery, PageExplanation, PagePolicy, PageRule } from '../../protocol/page.ts'

interface Named {
  readonly name: string
  readonly agent_id: string
}

/** Whom a run needs beyond the file. */
const askedText = ({ asking }: AllowEntry, isPattern: boolean): string => {
  const human = asking.ask === 'always' || isPattern ? '; a human of this host is asked' : ''
  return `${human}${asking.approvals_needed === 0 ? '' : `; ${asking.approvals_needed} of ${asking.approvers.length} other agents must allow it`}`
}

const noteOf = (entry: AllowEntry, isStdinOpen: boolean, isPattern: boolean): string => {
  const { description, limits } = entry
  const stdin = isStdinOpen && limits.max_stdin_bytes > 0 ? `${limits.max_stdin_bytes} B` : 'closed'
  return `${description}; ${limits.max_duration_secs} s, stdin ${stdin}${askedText(entry, isPattern)}`
}

const rulesOf = (entry: AllowEntry): PageRule[] => [
  ...entry.commands.map(({ argv, stdin }) => ({ argv, note: noteOf(entry, stdin, false) })),
  ...entry.asking.patterns.map(({ argv, stdin }) => ({ argv, note: noteOf(entry, stdin, true) })),
]

/** What each pair of agent and machine may run here, in the order of the file. */
export const policyHere = async (init: LoadAclInit, contacts: readonly Named[]): Promise<PagePolicy> => {
  try {
    const { acl, status } = await loadAcl(init)
    const pairs = Map.groupBy(acl.allow, ({ agent_id, machine_id }) => `${agent_id} ${machine_id}`)
    return {
      source: init.path,
      pairs: [...pairs.values()].map((entries) => {
        const { agent_id, machine_id } = entries[0]!
        return {
          agent_id,
          machine_id,
          name: contacts.find((contact) => contact.agent_id === agent_id)?.name ?? null,
          commands: entries.flatMap(rulesOf),
        }
      }),
      problem: status === 'enabled' ? null : `nothing runs here for other agents: ${status}`,
    }
  } catch (error) {
    return { source: init.path, pairs: [], problem: errorText(error) }
  }
}

const explanationOf = (acl: Acl, { agent_id, machine_id, argv }: PageExplainQuery): PageExplanation => {
  const explanation = explain({ acl, agent_id, machine_id, argv })
  const outcome = explanation.allowed ? 'allowed' : explanation.asks === null ? 'denied' : 'asked'
  return { outcome, text: explanationText(explanation, argv) }
}

/** What the daemon enforces where its ACL file has changed since it was read. */
export const explainInForce = (inForce: AclInForce, query: PageExplainQuery): PageExplanation => {
  const said = notInForceLines(inForce)
  const unknown = { outcome: 'denied' as const, text: 'this user cannot read what x0xd loaded' }
  const { outcome, text } = inForce.loaded === null ? unknown : explanationOf(inForce.loaded, query)
  return { outcome, text: [...said, '', 'In force now:', text].join('\n') }
}

/** What the function that decides would say of a command. */
export const explainHere = async (init: LoadAclInit, query: PageExplainQuery): Promise<PageExplanation> =>
  explanationOf((await loadAcl(init)).acl, query)
