import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { PRESENCE_TOPIC, presence } from '../protocol/card.ts'
import type { AgentId } from '../protocol/ids.ts'
import { MAX_PRESENCE_ADDRESSES, MAX_PRESENCE_BYTES, MAX_PRESENCE_SECS } from '../protocol/limits.ts'
import { announceable } from './addresses.ts'
import type { MeshNode } from './node.ts'
import type { OwnCard } from './own-card.ts'
import { JITTER, MIN_SPACING_MS, OwnWords } from './own-words.ts'
import { MAX_HEARD_STRANGERS, PRESENCES_PER_SECOND, type Heard, type Presences } from './presences.ts'
import type { Reach } from './reach.ts'

/** Between two presences of ours while the mesh is small … */
const MIN_PAUSE_MS = 45_000
/** … and when it is large: three of these are what a presence may hold. */
const MAX_PAUSE_MS = (MAX_PRESENCE_SECS * 1000) / 3
/** What all of a mesh of this size may say without more than `PRESENCES_PER_SECOND` of it in all: the pause of each. */
const fairPauseMs = (others: number): number => ((others + 1) / PRESENCES_PER_SECOND) * 1000

/** How long one of so many waits between two presences. A table that is full says only that there are more. */
export const pauseMs = (others: number): number =>
  others >= MAX_HEARD_STRANGERS ? MAX_PAUSE_MS : Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, fairPauseMs(others)))

export interface BeaconComponents {
  readonly node: Pick<MeshNode, 'addresses' | 'joinTopic' | 'publish'> & { readonly reach: Pick<Reach, 'onAddresses'> }
  readonly presences: Presences
  readonly ownCard: Pick<OwnCard, 'current'>
  /** Called with each presence that was news. */
  readonly onHeard: (heard: Heard) => void
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Says that this machine is there: every 45 s in a small mesh, more seldom the larger it is, and sooner when a neighbour or a
 * newcomer appears. What all say together stays below `PRESENCES_PER_SECOND`, so that to hear it costs the same in any mesh.
 * Whose addresses have changed says so at once: until then it is looked for where it is not any more.
 */
export class Beacon implements Startable {
  readonly #parts: BeaconComponents
  readonly #agentId: AgentId
  readonly #words: OwnWords
  /** Where we said that we are; null before the first word. */
  #told: string | null = null

  constructor(components: BeaconComponents, init: { agentId: AgentId }) {
    this.#parts = components
    this.#agentId = init.agentId
    const { node, presences } = components
    this.#words = new OwnWords(components, {
      make: async () => this.#presence(),
      publish: async (word) => node.publish(PRESENCE_TOPIC, word),
      pauseMs: () => pauseMs(presences.size) * (1 + JITTER * (2 * Math.random() - 1)),
    })
  }

  /** Before the node's start: joins the topic and waits for neighbours. */
  start(): void {
    const { node, presences, onHeard } = this.#parts
    this.#words.start()
    node.joinTopic(
      PRESENCE_TOPIC,
      (data, publisher, neighbour) => {
        const { verdict, heard, newcomer } = presences.receive(data, publisher, neighbour)
        if (heard !== null) onHeard(heard)
        if (newcomer) this.#soon()
        return verdict
      },
      () => this.#soon(),
    )
    node.reach.onAddresses = () => {
      if (this.#told !== null && this.#told !== this.#addresses().join()) this.#words.soon(MIN_SPACING_MS)
    }
    this.#words.in(MIN_SPACING_MS)
  }

  stop(): void {
    this.#words.stop()
  }

  /** A new neighbour or a newcomer is answered no sooner than all are to be apart. */
  #soon(): void {
    this.#words.soon(Math.max(MIN_SPACING_MS, fairPauseMs(this.#parts.presences.size)))
  }

  #addresses(): string[] {
    return announceable(this.#parts.node.addresses())
  }

  async #presence(): Promise<Uint8Array> {
    const { clock, ownCard, presences } = this.#parts
    const { issuedAt } = await ownCard.current()
    const said = {
      version: 1 as const,
      agent_id: this.#agentId,
      card_issued_at_ms: issuedAt,
      said_at_ms: clock.now(),
      holds_secs: Math.min(MAX_PRESENCE_SECS, Math.ceil((3 * pauseMs(presences.size) * (1 + JITTER)) / 1000)),
    }
    const addresses = this.#addresses()
    this.#told = addresses.join()
    return fitting(said, addresses)
  }
}

type Said = Omit<Parameters<typeof presence.encode>[0], 'addresses'>

/** With as many addresses as there is room for. */
const fitting = (said: Said, whole: readonly string[]): Uint8Array => {
  const addresses = whole.map((address) => address.replace(/\/p2p\/[^/]*$/, '')).slice(0, MAX_PRESENCE_ADDRESSES)
  for (;;) {
    const encoded = presence.encode({ ...said, addresses })
    if (encoded.length <= MAX_PRESENCE_BYTES) return encoded
    addresses.pop()
  }
}
