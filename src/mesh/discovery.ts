import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { ANNOUNCE_TOPIC, PRESENCE_TOPIC, signedCard, type SignedCard } from '../protocol/card.ts'
import { MAX_CARD_ADDRESSES } from '../protocol/limits.ts'
import { announceable } from './addresses.ts'
import type { Announcements } from './announcements.ts'
import type { MeshNode } from './node.ts'
import { MIN_SPACING_MS, OwnWords } from './own-words.ts'
import type { Reconnect } from './reconnect.ts'

/** Seldom, and often enough to be believed without a gap (`ANNOUNCE_TTL_MS`). */
const ANNOUNCE_MIN_MS = 60_000
const ANNOUNCE_MAX_MS = 120_000
/** Our own extra announcements (a new neighbour, a newcomer) are further apart by this much for each peer known, so that a large mesh is not answered by a storm. */
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
 * was announced. The spacing of these grows with the mesh. All together stay below the rate that others accept, above which they
 * would be dropped (`OwnWords`).
 */
export class Discovery implements Startable {
  readonly #parts: DiscoveryComponents
  readonly #words: OwnWords

  constructor(components: DiscoveryComponents) {
    this.#parts = components
    const { node, signAnnouncement } = components
    this.#words = new OwnWords(components, {
      what: 'an announcement',
      isNeeded: () => this.#hasReaders(),
      make: async () => signedCard.encode(await signAnnouncement(announceable(node.addresses()).slice(0, MAX_CARD_ADDRESSES))),
      publish: async (word) => node.publish(ANNOUNCE_TOPIC, word),
      pauseMs,
    })
  }

  /** Before the node's start: joins the topic and waits for neighbours. */
  start(): void {
    const { node, announcements } = this.#parts
    this.#words.start()
    node.joinTopic(
      ANNOUNCE_TOPIC,
      (data, publisher, neighbour) => {
        const { verdict, newcomer } = announcements.receive(data, publisher, neighbour)
        if (newcomer) this.#onNewcomer()
        else if (verdict === 'accept' && !this.#words.pending && this.#hasReaders()) this.#words.in(pauseMs())
        return verdict
      },
      () => this.#soon(),
    )
  }

  stop(): void {
    this.#words.stop()
  }

  /** Whether there is anybody who does not hear presences. */
  #hasReaders(): boolean {
    const { node, announcements } = this.#parts
    return announcements.hearsOld || node.hasNeighboursOnlyOn(ANNOUNCE_TOPIC, PRESENCE_TOPIC)
  }

  #onNewcomer(): void {
    this.#parts.reconnect.look()
    this.#soon()
  }

  /** Announces as soon as the spacing allows, and not before a new neighbour has joined one topic after the other. */
  #soon(): void {
    this.#words.soon(MIN_SPACING_MS + ANNOUNCE_SPACING_PER_PEER_MS * this.#parts.announcements.list().length, MIN_SPACING_MS)
  }
}

const pauseMs = (): number => ANNOUNCE_MIN_MS + Math.random() * (ANNOUNCE_MAX_MS - ANNOUNCE_MIN_MS)
