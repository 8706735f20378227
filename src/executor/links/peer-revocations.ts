import { errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { ExecCounters } from '../../diagnostics/exec-counters.ts'
import type { Acl } from '../../policy/mesh/acl.ts'
import { shortId, type AgentId } from '../../protocol/ids.ts'
import { MAX_REVOCATIONS_PER_LINK } from '../../protocol/limits.ts'
import type { Contacts } from '../../trust/contacts.ts'
import type { Revocations, Statement } from '../../trust/revocations.ts'
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

/** Of `MAX_REVOCATIONS_PER_LINK`, kept for what we revoke of ourselves while the link lives. */
const ROOM_FOR_OURS = 16

const isFriend = (link: PeerLink): boolean => link.decision === 'accept' || link.decision === 'accept_with_flag'

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

  /**
   * What a peer has not been sent over this link, and counts as sent from now on: our own first, the newest before older
   * ones; a stranger learns only what we say of ourselves. A peer takes `MAX_REVOCATIONS_PER_LINK` over one link and no
   * more, so other agents' leave `ROOM_FOR_OURS`.
   */
  takeUnsent(link: PeerLink): Uint8Array[] {
    const { sentRevocations: sent } = link
    if (sent === null) return []
    const isOurs = ({ agentId }: Statement): boolean => agentId === this.#init.agentId
    const room = MAX_REVOCATIONS_PER_LINK - sent.size
    const unsent = this.#components.revocations
      .list()
      .toReversed()
      .filter((statement) => !sent.has(statement))
    const ours = unsent.filter(isOurs).slice(0, room)
    const roomForOthers = isFriend(link) ? Math.max(0, room - ROOM_FOR_OURS - ours.length) : 0
    const taken = [...ours, ...unsent.filter((statement) => !isOurs(statement)).slice(0, roomForOthers)]
    for (const statement of taken) sent.add(statement)
    return taken.map(({ bytes }) => bytes)
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
