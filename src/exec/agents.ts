import { AppError } from '../base/errors.ts'
import { didYouMean } from '../base/format.ts'
import type { Snapshot } from '../executor-api/snapshot.ts'
import type { SelectedHost } from '../protocol/api-answers.ts'
import { ContactIndex } from '../protocol/hosts/contact-index.ts'
import { groupsByName, selectHosts, wildcardHint } from '../protocol/hosts/select-hosts.ts'
import { type AgentId, isHexId } from '../protocol/ids.ts'
import { MIN_ID_PREFIX } from '../protocol/limits/wire.ts'

export interface AgentDirectoryComponents {
  readonly ownAgentId: () => AgentId
  /** The latest. */
  readonly snapshot: () => Pick<Snapshot, 'contacts' | 'groups'>
  /** Agents that the mesh has seen, contacts or not. */
  readonly discovered: () => Iterable<AgentId>
}

export interface AgentCandidate {
  readonly agent_id: AgentId
  /** The contact's name; null for an agent that is none. */
  readonly name: string | null
}

const HEX_PREFIX = /^[0-9a-f]{1,64}$/

/** Turns what a human types into an AgentId. */
export class AgentDirectory {
  readonly #components: AgentDirectoryComponents
  #index = new ContactIndex([])

  constructor(components: AgentDirectoryComponents) {
    this.#components = components
  }

  /**
   * 64 hex characters stand for themselves; a contact's name comes before a prefix of at least six
   * characters of any known id, and contacts before strangers. Throws `unknown_agent`, or `ambiguous_agent` with `data.candidates`.
   */
  resolve(text: string): AgentId {
    if (isHexId(text)) return text
    const named = this.#known().named(text)
    if (named !== undefined) return named.agent_id
    const found = this.#byPrefix(text)
    const [first, ...others] = found
    if (first === undefined) {
      const short = text.length < MIN_ID_PREFIX && HEX_PREFIX.test(text)
      const why = short ? `a prefix of an id needs at least ${MIN_ID_PREFIX} characters` : "no known agent's id begins so"
      const meant = didYouMean(
        text,
        this.#known().contacts.map(({ name }) => name),
      )
      throw new AppError('unknown_agent', `no contact is named ${JSON.stringify(text)} and ${why}${meant}`, {
        data: { ...wildcardHint([text]) },
      })
    }
    if (others.length === 0) return first.agent_id
    const list = found.map(({ agent_id, name }) => (name === null ? agent_id : `${name} (${agent_id})`)).join(', ')
    throw new AppError('ambiguous_agent', `${JSON.stringify(text)} could be ${list}`, { data: { candidates: found } })
  }

  /** Whom the words of a fan-out mean. Throws as `selectHosts`. */
  select(words: readonly string[]): SelectedHost[] {
    const groups = groupsByName(this.#components.snapshot().groups)
    return selectHosts(words, { index: this.#known(), groups, byPrefix: (text) => this.resolve(text) })
  }

  /** Those of the latest snapshot. */
  #known(): ContactIndex {
    const { contacts } = this.#components.snapshot()
    if (this.#index.contacts !== contacts) this.#index = new ContactIndex(contacts)
    return this.#index
  }

  #byPrefix(prefix: string): AgentCandidate[] {
    if (prefix.length < MIN_ID_PREFIX || !HEX_PREFIX.test(prefix)) return []
    const known = new Map<AgentId, string | null>([[this.#components.ownAgentId(), null]])
    for (const contact of this.#known().contacts) known.set(contact.agent_id, contact.name)
    const fitting = [...known].filter(([id]) => id.startsWith(prefix)).map(([agent_id, name]) => ({ agent_id, name }))
    if (fitting.length > 0) return fitting
    // Anybody can make an id that begins as a contact's does: it must neither replace nor block the contact.
    const strangers = new Set([...this.#components.discovered()].filter((id) => id.startsWith(prefix)))
    return [...strangers].map((agent_id) => ({ agent_id, name: null }))
  }
}
