import type { Clock } from '../base/clock.ts'
import { MAX_CARD_ADDRESSES, RECORD_TTL_MS } from '../protocol/limits/wire.ts'
import { type SignedCard, cardBody, signedCard } from '../protocol/wire/card.ts'
import { announceable } from './addresses.ts'
import type { MeshNode } from './node.ts'

interface SelfCardDeps {
  readonly node: Pick<MeshNode, 'addresses'>
  readonly clock: Pick<Clock, 'now'>
  /** Makes the executor sign a card with these addresses, valid for `RECORD_TTL_MS`. */
  readonly sign: (addresses: string[]) => Promise<SignedCard>
}

/** The signed card, encoded for other daemons. */
export interface IssuedCard {
  readonly issuedAt: number
  readonly encoded: Uint8Array
}

/** This agent's card. It is signed on first use, and again when the addresses change or after `RECORD_TTL_MS / 2`. */
export class SelfCard {
  readonly #deps: SelfCardDeps
  #issued: { readonly addresses: string; readonly card: Promise<IssuedCard>; readonly at: number } | null = null

  constructor(deps: SelfCardDeps) {
    this.#deps = deps
  }

  async current(): Promise<IssuedCard> {
    const addresses = announceable(this.#deps.node.addresses()).slice(0, MAX_CARD_ADDRESSES)
    const now = this.#deps.clock.now()
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
    const card = await this.#deps.sign(addresses)
    return { issuedAt: cardBody.decode(card.body).issued_at_ms, encoded: signedCard.encode(card) }
  }
}
