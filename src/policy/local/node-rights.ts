import { MIN_ID_PREFIX } from '../../protocol/limits/wire.ts'
import type { Capability } from '../../protocol/rexd/fields.ts'
import { authorizeSession } from './authorize.ts'
import type { Refused, SessionRights } from './intent.ts'
import type { LocalPolicy } from './policy.ts'

/** An agent of the mesh that a run is to go to. */
export interface ResolvedNode {
  readonly agent_id: string
  /** The contact's name; null: it has none. */
  readonly name: string | null
}

/** What a run on another agent takes; a session of one target is for that. */
const THERE: readonly Capability[] = ['exec', 'events', 'target']

/**
 * What a session may do on an agent that one of its runs is for: no more than there, and no more than a session that was opened for it.
 * `security.allow_targets` names it by its contact's name, by its id or, where it is a contact, by the beginning of that: a stranger can make
 * an id that begins as it likes. What an agent calls itself counts for nothing.
 */
export const rightsOnNode = (
  { agent_id, name }: ResolvedNode,
  policy: LocalPolicy,
  { capabilities, limits, target }: SessionRights,
): { readonly kind: 'rights'; readonly rights: SessionRights } | Refused => {
  const prefix = name === null ? undefined : policy.targets?.find((text) => text.length >= MIN_ID_PREFIX && agent_id.startsWith(text))
  const named = [agent_id, prefix, name].find((text) => typeof text === 'string' && policy.targets?.includes(text) === true)
  const asked = { roots: null, capabilities: null, limits: {}, target: named ?? name ?? agent_id }
  const available = THERE.filter((one) => capabilities.has(one) || (one === 'target' && target !== null))
  const verdict = authorizeSession(asked, policy, new Set(available))
  if (verdict.kind === 'refused') return verdict
  return { kind: 'rights', rights: Object.freeze({ ...verdict.rights, limits, target: agent_id }) }
}
