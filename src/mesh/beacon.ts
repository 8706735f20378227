import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { TokenBucket } from '../base/token-bucket.ts'
import { PRESENCE_TOPIC, presence } from '../protocol/card.ts'
import type { AgentId } from '../protocol/ids.ts'
import { MAX_PRESENCE_ADDRESSES, MAX_PRESENCE_BYTES, MAX_PRESENCE_SECS } from '../protocol/limits.ts'
import { announceable } from './addresses.ts'
import { ANNOUNCE_BURST, OWN_ANNOUNCES_PER_MINUTE } from './discovery.ts'
import type { MeshNode } from './node.ts'
import type { OwnCard } from './own-card.ts'
import { MAX_HEARD_STRANGERS, PRESENCES_PER_SECOND, type Heard, type Presences } from './presences.ts'

/** Between two presences of ours while the mesh is small … */
const MIN_PAUSE_MS = 45_000
/** … and when it is large: three of these are what a presence may hold. */
const MAX_PAUSE_MS = (MAX_PRESENCE_SECS * 1000) / 3
/** A new neighbour or a newcomer is answered no sooner than this after the last presence, or as much later as all are to be apart. */
const MIN_SPACING_MS = 1_000
/** Around each pause, so that a fleet that starts together does not speak in step. */
const JITTER = 0.2

/** What all of a mesh of this size may say without more than `PRESENCES_PER_SECOND` of it in all: the pause of each. */
const fairPauseMs = (others: number): number => ((others + 1) / PRESENCES_PER_SECOND) * 1000

/** How long one of so many waits between two presences. A table that is full says only that there are more. */
export const pauseMs = (others: number): number =>
  others >= MAX_HEARD_STRANGERS ? MAX_PAUSE_MS : Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, fairPauseMs(others)))

export interface BeaconComponents {
  readonly node: Pick<MeshNode, 'addresses' | 'joinTopic' | 'publish'>
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
 */
export class Beacon implements Startable {
  readonly #parts: BeaconComponents
  readonly #agentId: AgentId
  readonly #allowed: TokenBucket
  #timer: Timer | null = null
  #dueAt = 0
  #lastAt = Number.NEGATIVE_INFINITY
  #stopped = false

  constructor(components: BeaconComponents, init: { agentId: AgentId }) {
    this.#parts = components
    this.#agentId = init.agentId
    this.#allowed = new TokenBucket(components, { burst: ANNOUNCE_BURST, perSecond: OWN_ANNOUNCES_PER_MINUTE / 60 })
  }

  /** Before the node's start: joins the topic and waits for neighbours. */
  start(): void {
    this.#stopped = false
    const { node, presences, onHeard } = this.#parts
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
    this.#schedule(MIN_SPACING_MS)
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
  }

  #soon(): void {
    const spacing = Math.max(MIN_SPACING_MS, fairPauseMs(this.#parts.presences.size))
    const earliest = Math.max(0, this.#lastAt + spacing - this.#parts.clock.monotonic())
    this.#schedule(Math.ceil(earliest + Math.random() * MIN_SPACING_MS * JITTER))
  }

  /** Of two times the earlier is kept. */
  #schedule(ms: number): void {
    const { clock } = this.#parts
    const at = clock.monotonic() + ms
    if (this.#stopped || (this.#timer !== null && this.#dueAt <= at)) return
    this.#timer?.cancel()
    this.#dueAt = at
    this.#timer = clock.setTimeout(() => void this.#say(), ms, { unref: true })
  }

  async #say(): Promise<void> {
    this.#timer = null
    if (!this.#allowed.take()) return this.#schedule(MIN_SPACING_MS)
    const { clock, log, node, ownCard, presences } = this.#parts
    this.#lastAt = clock.monotonic()
    const pause = pauseMs(presences.size)
    try {
      const { issuedAt } = await ownCard.current()
      const said = {
        version: 1 as const,
        agent_id: this.#agentId,
        card_issued_at_ms: issuedAt,
        said_at_ms: clock.now(),
        holds_secs: Math.min(MAX_PRESENCE_SECS, Math.ceil((3 * pause * (1 + JITTER)) / 1000)),
      }
      if (!this.#stopped) await node.publish(PRESENCE_TOPIC, fitting(said, announceable(node.addresses())))
    } catch (error) {
      log.debug({ err: errorText(error) }, 'a presence was not published')
    }
    this.#schedule(Math.ceil(pause * (1 + JITTER * (2 * Math.random() - 1))))
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
