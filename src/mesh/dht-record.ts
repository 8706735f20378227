import { AsyncLocalStorage } from 'node:async_hooks'
import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { type VerifiedCard, verifyCard } from '../identity/card.ts'
import { type AgentId, isHexId } from '../protocol/ids.ts'
import { MAX_CARD_BYTES } from '../protocol/limits/wire.ts'
import { ANNOUNCE_DOMAIN, signedCard } from '../protocol/wire/card.ts'

/** Namespace of these records in the DHT. Keys start with it. */
export const RECORD_NAMESPACE = 'x0x'
/** Unlisted agents whose newest record is remembered, about 150 bytes each. If there are more, the source that brought most loses its oldest. */
const MAX_REMEMBERED_RECORDS = 4_096

export const recordKeyOf = (agentId: AgentId): Uint8Array => new TextEncoder().encode(`/${RECORD_NAMESPACE}/${agentId}`)

/** The agent whose record belongs to this key, or null if the key does not name one. */
export const agentOfKey = (key: Uint8Array): AgentId | null => {
  const [empty, namespace, agentId = '', ...more] = Buffer.from(key).toString('latin1').split('/')
  return empty === '' && namespace === RECORD_NAMESPACE && isHexId(agentId) && more.length === 0 ? agentId : null
}

const wrong = (what: string): AppError => new AppError('malformed', `a DHT record ${what}`)

/** Validates records of the DHT. A record must be an unexpired card of the agent that its key names, and not older than one already seen. */
export class RecordValidator {
  readonly #clock: Pick<Clock, 'now'>
  readonly #bringer = new AsyncLocalStorage<string>()
  /** Number of invalid records. */
  refused = 0
  /** Issue time of the newest record of each agent. */
  readonly #newest: BoundedMap<AgentId, number>
  /** Whether the agent is the own one, a contact or in the ACL. Its entry is never evicted by those of others. */
  readonly isNamed: (agentId: AgentId) => boolean

  constructor(
    components: { clock: Pick<Clock, 'now'>; isNamed: (agentId: AgentId) => boolean },
    { max } = { max: MAX_REMEMBERED_RECORDS },
  ) {
    this.#clock = components.clock
    this.isNamed = components.isNamed
    this.#newest = new BoundedMap({ max, isApart: this.isNamed })
  }

  /** Source of the peer whose message is being handled, or empty for own lookups. */
  get source(): string {
    return this.#bringer.getStore() ?? ''
  }

  /** Handles a message of a peer. Its records count for this source. */
  from<T>(source: string, answer: () => T): T {
    return this.#bringer.run(source, answer)
  }

  /** Throws `malformed` or `bad_card` for an invalid record. */
  verify(key: Uint8Array, value: Uint8Array): VerifiedCard {
    try {
      return this.#believed(key, value)
    } catch (error) {
      this.refused += 1
      throw error
    }
  }

  #believed(key: Uint8Array, value: Uint8Array): VerifiedCard {
    const agentId = agentOfKey(key)
    if (agentId === null) throw wrong('has a key that names no agent')
    if (value.length > MAX_CARD_BYTES) throw wrong('is too long')
    const card = verifyCard(signedCard.decode(value), ANNOUNCE_DOMAIN, this.#clock.now())
    if (card.agentId !== agentId) throw wrong('is of another agent')
    if (card.issuedAt < (this.#newest.get(agentId) ?? 0)) throw wrong('is older than one that was seen')
    this.#newest.set(agentId, card.issuedAt, this.source)
    return card
  }
}
