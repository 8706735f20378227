import { AppError } from '../base/errors.ts'
import { didYouMean } from '../base/format.ts'
import type { Snapshot } from '../executor-api/snapshot.ts'
import type { SelectedHost } from '../protocol/api-answers.ts'
import { ContactIndex } from '../protocol/hosts/contact-index.ts'
import { groupsByName, selectHosts, wildcardHint } from '../protocol/hosts/select-hosts.ts'
import { type AgentId, isHexId } from '../protocol/ids.ts'
import { MIN_ID_PREFIX } from '../protocol/limits/wire.ts'

interface AgentDirectoryDeps {
  readonly ownAgentId: () => AgentId
  readonly snapshot: () => Pick<Snapshot, 'contacts' | 'groups'>
  /** Agents that the mesh has seen. */
  readonly discovered: () => Iterable<AgentId>
}

export interface AgentCandidate {
  readonly agent_id: AgentId
  /** Name of the contact, or null for an agent that is not a contact. */
  readonly name: string | null
}

const HEX_PREFIX = /^[0-9a-f]{1,64}$/

/** Resolves names and ID prefixes that a person types to agents. */
export class AgentDirectory {
  readonly #deps: AgentDirectoryDeps
  #index = new ContactIndex([])

  constructor(deps: AgentDirectoryDeps) {
    this.#deps = deps
  }

  /** Resolves 64 hex characters as an ID, then a contact's name, then a prefix of at least six characters of a known ID. Contacts come before other agents. Throws `unknown_agent`, or `ambiguous_agent` with `data.candidates`. */
  resolve(text: string): AgentId {
    if (isHexId(text)) return text
    const named = this.#known().named(text)
    if (named !== undefined) return named.agent_id
    const found = this.#byPrefix(text)
    const [first, ...others] = found
    if (first === undefined) {
      const short = text.length < MIN_ID_PREFIX && HEX_PREFIX.test(text)
      const meant = didYouMean(
        text,
        this.#known().contacts.map(({ name }) => name),
      )
      const why = short ? `. An ID prefix needs at least ${MIN_ID_PREFIX} characters` : ''
      throw new AppError(
        'unknown_agent',
        `no contact or agent matches ${JSON.stringify(text)} (unknown_agent)${meant}${meant === '' ? why : ''}`,
        {
          data: { ...wildcardHint([text]) },
        },
      )
    }
    if (others.length === 0) return first.agent_id
    const list = found.map(({ agent_id, name }) => (name === null ? agent_id : `${name} (${agent_id})`)).join(', ')
    throw new AppError('ambiguous_agent', `${JSON.stringify(text)} could be ${list}`, { data: { candidates: found } })
  }

  /** Selects the hosts of a fan-out. Throws as `selectHosts`. */
  select(words: readonly string[]): SelectedHost[] {
    const groups = groupsByName(this.#deps.snapshot().groups)
    return selectHosts(words, { index: this.#known(), groups, byPrefix: (text) => this.resolve(text) })
  }

  #known(): ContactIndex {
    const { contacts } = this.#deps.snapshot()
    if (this.#index.contacts !== contacts) this.#index = new ContactIndex(contacts)
    return this.#index
  }

  #byPrefix(prefix: string): AgentCandidate[] {
    if (prefix.length < MIN_ID_PREFIX || !HEX_PREFIX.test(prefix)) return []
    const known = new Map<AgentId, string | null>([[this.#deps.ownAgentId(), null]])
    for (const contact of this.#known().contacts) known.set(contact.agent_id, contact.name)
    const fitting = [...known].filter(([id]) => id.startsWith(prefix)).map(([agent_id, name]) => ({ agent_id, name }))
    if (fitting.length > 0) return fitting
    // Anyone can create an ID with the same prefix as a contact's. Such an ID must not replace or hide the contact.
    const strangers = new Set([...this.#deps.discovered()].filter((id) => id.startsWith(prefix)))
    return [...strangers].map((agent_id) => ({ agent_id, name: null }))
  }
}
