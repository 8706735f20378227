import { errorText } from '../../base/errors.ts'
import { type AclBesideDaemon, notInForceLines } from '../../doctor/loaded-acl.ts'
import type { Acl, AllowEntry } from '../../policy/mesh/acl.ts'
import { explain, explanationText } from '../../policy/mesh/explain.ts'
import { type FileGrant, ruleOf } from '../../policy/mesh/file-grants.ts'
import { type LoadAclInit, loadAcl } from '../../policy/mesh/load-acl.ts'
import { pairKey } from '../../protocol/ids.ts'
import type { PageExplainQuery, PageExplanation, PagePolicy, PageRule } from '../../protocol/page.ts'

interface Named {
  readonly name: string
  readonly agent_id: string
}

/** Approvals that a run needs besides the file. */
const askedText = ({ asking }: AllowEntry, isAsked: boolean): string => {
  const human = asking.ask === 'always' || isAsked ? '; it needs approval on this machine' : ''
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
  ...entry.files.flatMap((grant) =>
    (['read', 'write'] as const)
      .filter((right) => grant[right])
      .map((right) => ({ argv: ruleOf(grant, right), note: fileNoteOf(entry, grant, right) })),
  ),
]

const fileNoteOf = (entry: AllowEntry, grant: FileGrant, right: 'read' | 'write'): string => {
  const { description, limits } = entry
  return `${description}; ${limits.max_duration_secs} s${right === 'write' ? `, ${grant.max_file_bytes} B per file` : ''}${askedText(entry, grant.ask)}`
}

/** What each pair of agent and machine may run on this host, in the order of the file. */
const pairsOf = (acl: Acl, contacts: readonly Named[]): PagePolicy['pairs'] => {
  const pairs = Map.groupBy(acl.allow, pairKey)
  return [...pairs.values()].map((entries) => {
    const { agent_id, machine_id } = entries[0]!
    return {
      agent_id,
      machine_id,
      name: contacts.find((contact) => contact.agent_id === agent_id)?.name ?? null,
      commands: entries.flatMap(rulesOf),
    }
  })
}

/** The permissions of a file that is in force, or that no daemon has read. */
export const policyHere = async (init: LoadAclInit, contacts: readonly Named[]): Promise<PagePolicy> => {
  try {
    const { acl, status } = await loadAcl(init)
    const problem = status === 'enabled' ? null : `this machine runs nothing for other agents: ${status}`
    return { source: init.path, pairs: pairsOf(acl, contacts), problem }
  } catch (error) {
    return { source: init.path, pairs: [], problem: errorText(error) }
  }
}

const UNREADABLE = 'this user cannot read the ACL that x0xd loaded'

/** The permissions that the daemon enforces if the file has changed since it was loaded. */
export const policyInForce = (inForce: AclBesideDaemon, contacts: readonly Named[]): PagePolicy => {
  const { file, loaded } = inForce
  const off = loaded?.enabled === false ? ['this machine runs nothing for other agents'] : []
  const problem = [...notInForceLines(inForce), ...(loaded === null ? [UNREADABLE] : off)].join('; ')
  return { source: file, pairs: loaded === null ? [] : pairsOf(loaded, contacts), problem }
}

const explanationOf = (acl: Acl, { agent_id, machine_id, argv }: PageExplainQuery): PageExplanation => {
  const explanation = explain({ acl, agent_id, machine_id, argv })
  const outcome = explanation.allowed ? 'allowed' : explanation.asks === null ? 'denied' : 'asked'
  return { outcome, text: explanationText(explanation, argv) }
}

/** Explains the ACL in force if the file has changed since it was loaded. */
export const explainInForce = (inForce: AclBesideDaemon, query: PageExplainQuery): PageExplanation => {
  const said = notInForceLines(inForce)
  const unknown = { outcome: 'denied' as const, text: UNREADABLE }
  const { outcome, text } = inForce.loaded === null ? unknown : explanationOf(inForce.loaded, query)
  return { outcome, text: [...said, '', 'In force now:', text].join('\n') }
}

/** The decision about a command, from the function that also decides runs. */
export const explainHere = async (init: LoadAclInit, query: PageExplainQuery): Promise<PageExplanation> =>
  explanationOf((await loadAcl(init)).acl, query)
