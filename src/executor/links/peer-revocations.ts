import { errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { ExecCounters } from '../../diagnostics/exec-counters.ts'
import { agentIdOf } from '../../identity/agent-id.ts'
import type { Acl } from '../../policy/mesh/acl.ts'
import { revocation, revocationBody } from '../../protocol/dm.ts'
import { shortId, type AgentId } from '../../protocol/ids.ts'
import { MAX_REVOCATIONS_PER_LINK } from '../../protocol/limits.ts'
import type { Contacts } from '../../trust/contacts.ts'
import type { Revocations } from '../../trust/revocations.ts'
import type { PeerLink } from './links.ts'

export interface PeerRevocationsComponents {
  readonly acl: Acl
  readonly contacts: Contacts
  readonly counters: ExecCounters
  readonly log: Logger
  readonly revocations: Revocations
}

export interface PeerRevocationsInit {
  readonly agentId: AgentId
  /** Called in the very turn in which a peer's word takes effect. */
  onRevoked(): void
}

const isFriend = (link: PeerLink): boolean => link.decision === 'accept' || link.decision === 'accept_with_flag'

const subjectOf = (bytes: Uint8Array): AgentId => agentIdOf(revocationBody.decode(revocation.decode(bytes).body).agent_public_key)

/** Revocations on their way between peers. Each is signed by the agent it is about, so it does not matter who brings it. */
export class PeerRevocations {
  readonly #components: PeerRevocationsComponents
  readonly #init: PeerRevocationsInit

  constructor(components: PeerRevocationsComponents, init: PeerRevocationsInit) {
    this.#components = components
    this.#init = init
  }

  /** How many were news of an agent that we know. Strangers are not heard: each costs a verification. */
  async take(link: PeerLink, items: readonly Uint8Array[]): Promise<number> {
    if (!isFriend(link)) return 0
    const { revocations } = this.#components
    const before = revocations.revision
    const adding = items.map((bytes) => revocations.add(bytes, (agentId) => this.#concernsUs(agentId)))
    if (revocations.revision !== before) this.#init.onRevoked()
    const outcomes = await Promise.allSettled(adding)
    for (const outcome of outcomes) if (outcome.status === 'rejected') this.#complain(link, outcome.reason)
    return outcomes.filter((outcome) => outcome.status === 'fulfilled' && outcome.value === 'added').length
  }

  /** What to tell a peer: our own first, the newest before older ones; a stranger learns only what we say of ourselves. */
  forPeer(link: PeerLink): Uint8Array[] {
    const { revocations } = this.#components
    const all = revocations.list().map((bytes) => ({ bytes, ours: subjectOf(bytes) === this.#init.agentId }))
    const ours = all.filter((item) => item.ours)
    const others = isFriend(link) ? all.filter((item) => !item.ours).toReversed() : []
    return [...ours, ...others].slice(0, MAX_REVOCATIONS_PER_LINK).map(({ bytes }) => bytes)
  }

  #concernsUs(agentId: AgentId): boolean {
    const { acl, contacts } = this.#components
    return contacts.byAgent(agentId) !== null || acl.allow.some((entry) => entry.agent_id === agentId)
  }

  #complain(link: PeerLink, error: unknown): void {
    const { counters, log } = this.#components
    if (isAppError(error, 'malformed')) counters.count('malformed_frames')
    log.warn({ agent: shortId(link.agentId), error: errorText(error) }, 'a revocation could not be taken')
  }
}
