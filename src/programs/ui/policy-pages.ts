import { errorText } from '../../base/errors.ts'
import type { AllowEntry } from '../../policy/mesh/acl.ts'
import { explain, explanationText } from '../../policy/mesh/explain.ts'
import { loadAcl, type LoadAclInit } from '../../policy/mesh/load-acl.ts'
import type { PageExplainQuery, PageExplanation, PagePolicy } from '../../protocol/page.ts'

interface Named {
  readonly name: string
  readonly agent_id: string
}

const noteOf = ({ description, limits }: AllowEntry, stdin: boolean): string =>
  `${description}; ${limits.max_duration_secs} s, stdin ${stdin && limits.max_stdin_bytes > 0 ? `${limits.max_stdin_bytes} B` : 'closed'}`

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
          commands: entries.flatMap((entry) => entry.commands.map(({ argv, stdin }) => ({ argv, note: noteOf(entry, stdin) }))),
        }
      }),
      problem: status === 'enabled' ? null : `nothing runs here for other agents: ${status}`,
    }
  } catch (error) {
    return { source: init.path, pairs: [], problem: errorText(error) }
  }
}

/** What the function that decides would say of a command. */
export const explainHere = async (init: LoadAclInit, { agent_id, machine_id, argv }: PageExplainQuery): Promise<PageExplanation> => {
  const { acl } = await loadAcl(init)
  const explanation = explain({ acl, agent_id, machine_id, argv })
  return { allowed: explanation.allowed, text: explanationText(explanation, argv) }
}
