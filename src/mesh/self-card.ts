import type { Clock } from '../base/clock.ts'
import { MAX_CARD_ADDRESSES, RECORD_TTL_MS } from '../protocol/limits/wire.ts'
import { type SignedCard, cardBody, signedCard } from '../protocol/wire/card.ts'
import { announceable } from './addresses.ts'
import type { MeshNode } from './node.ts'

export interface SelfCardComponents {
  readonly node: Pick<MeshNode, 'addresses'>
  readonly clock: Pick<Clock, 'now'>
  /** Has the executor sign our card with these addresses, for `RECORD_TTL_MS`. */
  readonly sign: (addresses: string[]) => Promise<SignedCard>
}

/** Our card as other daemons get it. */
export interface IssuedCard {
  readonly issuedAt: number
  readonly encoded: Uint8Array
}

/** Our card for other daemons: signed when it is first needed, and again when our addresses are others or half of its time has passed. */
export class SelfCard {
  readonly #parts: SelfCardComponents
  #issued: { readonly addresses: string; readonly card: Promise<IssuedCard>; readonly at: number } | null = null

  constructor(components: SelfCardComponents) {
    this.#parts = components
  }

  async current(): Promise<IssuedCard> {
    const addresses = announceable(this.#parts.node.addresses()).slice(0, MAX_CARD_ADDRESSES)
    const now = this.#parts.clock.now()
    const known = this.#issued
    const fresh = known !== null && known.addresses === addresses.join() && Math.abs(now - known.at) < RECORD_TTL_MS / 2
    if (fresh) return known.card
    const issued = { addresses: addresses.join(), at: now, card: this.#sign(addresses) }
    this.#issued = issued
    try {
      return await issued.card
    } catch (error) {
      if (this.#issued === issued) this.#issued = null
      throw error
    }
  }

  async #sign(addresses: string[]): Promise<IssuedCard> {
    const card = await this.#parts.sign(addresses)
    return { issuedAt: cardBody.decode(card.body).issued_at_ms, encoded: signedCard.encode(card) }
  }
}
