import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { TokenBucket } from '../base/token-bucket.ts'
import { ANNOUNCE_TOPIC, PRESENCE_TOPIC, signedCard, type SignedCard } from '../protocol/card.ts'
import { ANNOUNCES_PER_MINUTE, MAX_CARD_ADDRESSES } from '../protocol/limits.ts'
import { announceable } from './addresses.ts'
import type { Announcements } from './announcements.ts'
import type { MeshNode } from './node.ts'
import type { Reconnect } from './reconnect.ts'

/** Announcements of our own: a burst and a rate, together no more than others accept of one source in any minute. */
export const ANNOUNCE_BURST = 4
export const OWN_ANNOUNCES_PER_MINUTE = ANNOUNCES_PER_MINUTE - ANNOUNCE_BURST
/** Seldom, and often enough to be believed without a gap (`ANNOUNCE_TTL_MS`). */
const ANNOUNCE_MIN_MS = 60_000
const ANNOUNCE_MAX_MS = 120_000
/** Our own extra announcements (a new neighbour, a newcomer) are at least this far apart … */
const ANNOUNCE_SPACING_MS = 1_000
/** … and this much more for each peer known, so that a large mesh is not answered by a storm. */
const ANNOUNCE_SPACING_PER_PEER_MS = 150

export interface DiscoveryComponents {
  readonly node: Pick<MeshNode, 'addresses' | 'hasNeighboursOnlyOn' | 'joinTopic' | 'publish'>
  readonly announcements: Announcements
  /** `look` is called for a newcomer, which may be a machine worth a standing connection. */
  readonly reconnect: Pick<Reconnect, 'look'>
  /** Has the executor sign an announcement of these addresses. */
  readonly signAnnouncement: (addresses: string[]) => Promise<SignedCard>
  readonly clock: Clock
  readonly log: Logger
}

/**
 * For daemons of before presences (`Beacon`): hears their announcements, passes them on, and while there are such daemons
 * announces this agent, its whole card, every 60 to 120 s, and sooner when a neighbour has joined the topic or a newcomer
 * was announced. The spacing of these grows with the mesh. All together stay below the rate that others accept
 * (`OWN_ANNOUNCES_PER_MINUTE`), above which they would be dropped.
 */
export class Discovery implements Startable {
  readonly #node: DiscoveryComponents['node']
  readonly #announcements: Announcements
  readonly #reconnect: DiscoveryComponents['reconnect']
  readonly #sign: (addresses: string[]) => Promise<SignedCard>
  readonly #clock: Clock
  readonly #log: Logger
  readonly #allowed: TokenBucket
  #timer: Timer | null = null
  #dueAt = 0
  #lastAt = Number.NEGATIVE_INFINITY
  #stopped = false

  constructor(components: DiscoveryComponents) {
    this.#node = components.node
    this.#announcements = components.announcements
    this.#reconnect = components.reconnect
    this.#sign = components.signAnnouncement
    this.#clock = components.clock
    this.#log = components.log
    this.#allowed = new TokenBucket(components, { burst: ANNOUNCE_BURST, perSecond: OWN_ANNOUNCES_PER_MINUTE / 60 })
  }

  /** Before the node's start: joins the topic and waits for neighbours. */
  start(): void {
    this.#stopped = false
    this.#node.joinTopic(
      ANNOUNCE_TOPIC,
      (data, publisher, neighbour) => {
        const { verdict, newcomer } = this.#announcements.receive(data, publisher, neighbour)
        if (newcomer) this.#onNewcomer()
        else if (verdict === 'accept' && this.#timer === null && this.#hasReaders()) this.#schedule(this.#pause())
        return verdict
      },
      () => this.#soon(),
    )
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
  }

  /** Whether there is anybody who does not hear presences. */
  #hasReaders(): boolean {
    return this.#announcements.hearsOld || this.#node.hasNeighboursOnlyOn(ANNOUNCE_TOPIC, PRESENCE_TOPIC)
  }

  #pause(): number {
    return Math.ceil(ANNOUNCE_MIN_MS + Math.random() * (ANNOUNCE_MAX_MS - ANNOUNCE_MIN_MS))
  }

  #onNewcomer(): void {
    this.#reconnect.look()
    this.#soon()
  }

  /** Announces as soon as the spacing allows. */
  #soon(): void {
    const spacing = ANNOUNCE_SPACING_MS + ANNOUNCE_SPACING_PER_PEER_MS * this.#announcements.list().length
    // A new neighbour joins one topic after the other.
    const earliest = Math.max(ANNOUNCE_SPACING_MS, this.#lastAt + spacing - this.#clock.monotonic())
    // Jitter, so that peers that heard the same newcomer do not announce at the same moment.
    this.#schedule(Math.ceil(earliest + Math.random() * ANNOUNCE_SPACING_MS * 0.2))
  }

  /** Of two times the earlier is kept. */
  #schedule(ms: number): void {
    const at = this.#clock.monotonic() + ms
    if (this.#stopped || (this.#timer !== null && this.#dueAt <= at)) return
    this.#timer?.cancel()
    this.#dueAt = at
    this.#timer = this.#clock.setTimeout(() => void this.#announce(), ms, { unref: true })
  }

  async #announce(): Promise<void> {
    this.#timer = null
    if (!this.#hasReaders()) return
    if (!this.#allowed.take()) return this.#schedule(ANNOUNCE_SPACING_MS)
    this.#lastAt = this.#clock.monotonic()
    try {
      const card = await this.#sign(announceable(this.#node.addresses()).slice(0, MAX_CARD_ADDRESSES))
      if (!this.#stopped) await this.#node.publish(ANNOUNCE_TOPIC, signedCard.encode(card))
    } catch (error) {
      this.#log.debug({ err: errorText(error) }, 'an announcement was not published')
    }
    this.#schedule(this.#pause())
  }
}
