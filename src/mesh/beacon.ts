import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { TokenBucket } from '../base/rate-limit.ts'
import type { Startable } from '../base/startable.ts'
import type { AgentId } from '../protocol/ids.ts'
import { MAX_PRESENCE_ADDRESSES, MAX_PRESENCE_BYTES, MAX_PRESENCE_SECS, PRESENCES_PER_MINUTE } from '../protocol/limits/wire.ts'
import { PRESENCE_TOPIC, presence } from '../protocol/wire/card.ts'
import { announceable } from './addresses.ts'
import type { MeshNode } from './node.ts'
import type { SelfCard } from './self-card.ts'
import { type PresenceRecord, MAX_HEARD_UNLISTED, PRESENCES_PER_SECOND, type Presences } from './presences.ts'
import type { Reachability } from './reachability.ts'

/** Presences of this machine: a burst and a rate, together no more than others accept of one machine in any minute. */
export const OWN_PRESENCES_BURST = 4
export const OWN_PRESENCES_PER_MINUTE = PRESENCES_PER_MINUTE - OWN_PRESENCES_BURST
/** They are at least this far apart. */
const MIN_SPACING_MS = 1_000
/** Part of each pause that is random, so that machines that start together, or that heard the same newcomer, do not send in step. */
const JITTER = 0.2
/** Between two presences of ours while the mesh is small … */
const MIN_PAUSE_MS = 45_000
/** … and when it is large: three of these are what a presence may hold. */
const MAX_PAUSE_MS = (MAX_PRESENCE_SECS * 1000) / 3
/** What all of a mesh of this size may say without more than `PRESENCES_PER_SECOND` of it in all: the pause of each. */
const fairPauseMs = (others: number): number => ((others + 1) / PRESENCES_PER_SECOND) * 1000

/** How long one of so many waits between two presences. A table that is full says only that there are more. */
export const pauseMs = (others: number): number =>
  others >= MAX_HEARD_UNLISTED ? MAX_PAUSE_MS : Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, fairPauseMs(others)))

export interface BeaconComponents {
  readonly node: Pick<MeshNode, 'addresses' | 'joinTopic' | 'publish'> & { readonly reach: Pick<Reachability, 'onAddresses'> }
  readonly presences: Presences
  readonly ownCard: Pick<SelfCard, 'current'>
  /** Called with each presence that was news. */
  readonly onHeard: (heard: PresenceRecord) => void
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
  readonly #allowed: TokenBucket
  /** Where we said that we are; null before the first presence. */
  #told: string | null = null
  #timer: Timer | null = null
  #dueAt = 0
  #lastAt = Number.NEGATIVE_INFINITY
  #stopped = false

  constructor(components: BeaconComponents, init: { agentId: AgentId }) {
    this.#parts = components
    this.#agentId = init.agentId
    this.#allowed = new TokenBucket(components, { burst: OWN_PRESENCES_BURST, perSecond: OWN_PRESENCES_PER_MINUTE / 60 })
  }

  /** Before the node's start: joins the topic and waits for neighbours. */
  start(): void {
    const { node, presences, onHeard } = this.#parts
    this.#stopped = false
    node.joinTopic(
      PRESENCE_TOPIC,
      (data, publisher, neighbour) => {
        const { verdict, heard, newcomer } = presences.receive(data, publisher, neighbour)
        if (heard !== null) onHeard(heard)
        if (newcomer) this.#answer()
        return verdict
      },
      () => this.#answer(),
    )
    node.reach.onAddresses = () => {
      if (this.#told !== null && this.#told !== this.#addresses().join()) this.#soon(MIN_SPACING_MS)
    }
    this.#in(MIN_SPACING_MS)
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
    this.#timer = null
  }

  /** A new neighbour or a newcomer is answered no sooner than all are to be apart. */
  #answer(): void {
    this.#soon(Math.max(MIN_SPACING_MS, fairPauseMs(this.#parts.presences.size)))
  }

  /** Sends the next presence so long after the last one. */
  #soon(spacingMs: number): void {
    const earliest = Math.max(0, this.#lastAt + spacingMs - this.#parts.clock.monotonic())
    this.#in(earliest + Math.random() * MIN_SPACING_MS * JITTER)
  }

  /** Of two times the earlier counts. */
  #in(ms: number): void {
    const { clock } = this.#parts
    const at = clock.monotonic() + ms
    if (this.#stopped || (this.#timer !== null && this.#dueAt <= at)) return
    this.#timer?.cancel()
    this.#dueAt = at
    this.#timer = clock.setTimeout(() => void this.#say(), Math.ceil(ms), { unref: true })
  }

  async #say(): Promise<void> {
    const { clock, node, presences, log } = this.#parts
    this.#timer = null
    if (!this.#allowed.take()) return this.#in(MIN_SPACING_MS)
    this.#lastAt = clock.monotonic()
    try {
      const said = await this.#presence()
      if (!this.#stopped) await node.publish(PRESENCE_TOPIC, said)
    } catch (error) {
      log.debug({ err: errorText(error) }, 'the presence was not published')
    }
    this.#in(pauseMs(presences.size) * (1 + JITTER * (2 * Math.random() - 1)))
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
