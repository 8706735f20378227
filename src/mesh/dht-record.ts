import { AsyncLocalStorage } from 'node:async_hooks'
import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { type VerifiedCard, verifyCard } from '../identity/card.ts'
import { type AgentId, isHexId } from '../protocol/ids.ts'
import { MAX_CARD_BYTES } from '../protocol/limits/wire.ts'
import { ANNOUNCE_DOMAIN, signedCard } from '../protocol/wire/card.ts'

/** The namespace of our records in the hash table, as its engine has it: the first word of a key. */
export const RECORD_NAMESPACE = 'x0x'
/** Agents that nobody names of whose records the newest is remembered, some 150 bytes each; of more, the source that brought most loses its oldest. */
const MAX_REMEMBERED_RECORDS = 4_096

export const recordKeyOf = (agentId: AgentId): Uint8Array => new TextEncoder().encode(`/${RECORD_NAMESPACE}/${agentId}`)

/** The agent whose record may be kept under this key; null if the key names none. */
export const agentOfKey = (key: Uint8Array): AgentId | null => {
  const [empty, namespace, agentId = '', ...more] = Buffer.from(key).toString('latin1').split('/')
  return empty === '' && namespace === RECORD_NAMESPACE && isHexId(agentId) && more.length === 0 ? agentId : null
}

const wrong = (what: string): AppError => new AppError('malformed', `a record of the hash table ${what}`)

/** Which records of the hash table are believed: a card for other daemons, of that very agent, in its time, and none older than one that we have seen. */
export class RecordValidator {
  readonly #clock: Pick<Clock, 'now'>
  readonly #bringer = new AsyncLocalStorage<string>()
  /** How many were not believed. */
  refused = 0
  /** When the newest record of each agent was issued. */
  readonly #newest: BoundedMap<AgentId, number>
  /** Whether a contact or the ACL names this agent, or it is ours: no records of others push out what is known of its record. */
  readonly isNamed: (agentId: AgentId) => boolean

  constructor(
    components: { clock: Pick<Clock, 'now'>; isNamed: (agentId: AgentId) => boolean },
    { max } = { max: MAX_REMEMBERED_RECORDS },
  ) {
    this.#clock = components.clock
    this.isNamed = components.isNamed
    this.#newest = new BoundedMap({ max, isApart: this.isNamed })
  }

  /** Source of the peer whose message is being answered; empty for records that we look for. */
  get source(): string {
    return this.#bringer.getStore() ?? ''
  }

  /** Answers a message of a peer: records in it are of this source. */
  from<T>(source: string, answer: () => T): T {
    return this.#bringer.run(source, answer)
  }

  /** Throws `malformed` or `bad_card` for one that is not believed. */
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
