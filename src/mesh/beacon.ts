import type { Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { TokenBucket } from '../base/rate-limit.ts'
import type { Startable } from '../base/startable.ts'
import type { AgentId } from '../protocol/ids.ts'
import { MAX_PRESENCE_ADDRESSES, MAX_PRESENCE_BYTES, MAX_PRESENCE_SECS, PRESENCES_PER_MINUTE } from '../protocol/limits/wire.ts'
import { PRESENCE_TOPIC, presence } from '../protocol/wire/card.ts'
import { announceable } from './addresses.ts'
import { type PresenceRecord, MAX_HEARD_UNLISTED, PRESENCES_PER_SECOND } from './presences.ts'
import type { MeshServices } from './services.ts'

/** Rate limit of this machine's presences. Burst and rate together stay within what other machines accept per minute. */
export const OWN_PRESENCES_BURST = 4
export const OWN_PRESENCES_PER_MINUTE = PRESENCES_PER_MINUTE - OWN_PRESENCES_BURST
/** Minimum time between two presences. */
const MIN_SPACING_MS = 1_000
/** Random part of each pause, so that machines which start together do not send in step. */
const JITTER = 0.2
/** Pause between two presences in a small mesh. */
const MIN_PAUSE_MS = 45_000
/** Longest pause. A presence is valid for three of them. */
const MAX_PAUSE_MS = (MAX_PRESENCE_SECS * 1000) / 3
/** Pause with which all machines of a mesh together send `PRESENCES_PER_SECOND`. */
const fairPauseMs = (others: number): number => ((others + 1) / PRESENCES_PER_SECOND) * 1000

/** Pause between two presences in a mesh of this size. A full table means only that there are more machines. */
export const pauseMs = (others: number): number =>
  others >= MAX_HEARD_UNLISTED ? MAX_PAUSE_MS : Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, fairPauseMs(others)))

type BeaconDeps = Pick<MeshServices, 'clock' | 'log' | 'node' | 'selfCard' | 'presences'> & {
  /** Called with each presence that brought news. */
  readonly onHeard: (heard: PresenceRecord) => void
}

/**
 * Publishes that this machine is present. It does so every 45 s in a small mesh, and less often in a larger one. It publishes earlier when
 * a new neighbour or machine appears, and at once when its addresses change. All machines together stay below `PRESENCES_PER_SECOND`, so
 * that a machine's load does not grow with the mesh.
 */
export class Beacon implements Startable {
  readonly #deps: BeaconDeps
  readonly #agentId: AgentId
  readonly #allowed: TokenBucket
  /** Addresses in the last presence, or null before the first. */
  #announced: string | null = null
  #timer: Timer | null = null
  #dueAt = 0
  #lastAt = Number.NEGATIVE_INFINITY
  #stopped = false

  constructor(deps: BeaconDeps, init: { agentId: AgentId }) {
    this.#deps = deps
    this.#agentId = init.agentId
    this.#allowed = new TokenBucket(deps, { burst: OWN_PRESENCES_BURST, perSecond: OWN_PRESENCES_PER_MINUTE / 60 })
  }

  /** Joins the topic. Call it before the node's start. */
  start(): void {
    const { node, presences, onHeard } = this.#deps
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
      if (this.#announced !== null && this.#announced !== this.#addresses().join()) this.#soon(MIN_SPACING_MS)
    }
    this.#in(MIN_SPACING_MS)
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
    this.#timer = null
  }

  /** Answers a new neighbour or machine, within the rate of the mesh. */
  #answer(): void {
    this.#soon(Math.max(MIN_SPACING_MS, fairPauseMs(this.#deps.presences.size)))
  }

  /** Schedules the next presence at this distance from the last one. */
  #soon(spacingMs: number): void {
    const earliest = Math.max(0, this.#lastAt + spacingMs - this.#deps.clock.monotonic())
    this.#in(earliest + Math.random() * MIN_SPACING_MS * JITTER)
  }

  /** Schedules the next presence, unless an earlier one is scheduled. */
  #in(ms: number): void {
    const { clock } = this.#deps
    const at = clock.monotonic() + ms
    if (this.#stopped || (this.#timer !== null && this.#dueAt <= at)) return
    this.#timer?.cancel()
    this.#dueAt = at
    this.#timer = clock.setTimeout(() => void this.#publish(), Math.ceil(ms), { unref: true })
  }

  async #publish(): Promise<void> {
    const { clock, node, presences, log } = this.#deps
    this.#timer = null
    if (!this.#allowed.take()) return this.#in(MIN_SPACING_MS)
    this.#lastAt = clock.monotonic()
    try {
      const message = await this.#presence()
      if (!this.#stopped) await node.publish(PRESENCE_TOPIC, message)
    } catch (error) {
      log.debug({ err: errorText(error) }, 'the presence was not published')
    }
    this.#in(pauseMs(presences.size) * (1 + JITTER * (2 * Math.random() - 1)))
  }

  #addresses(): string[] {
    return announceable(this.#deps.node.addresses())
  }

  async #presence(): Promise<Uint8Array> {
    const { clock, selfCard, presences } = this.#deps
    const { issuedAt } = await selfCard.current()
    const message = {
      version: 1 as const,
      agent_id: this.#agentId,
      card_issued_at_ms: issuedAt,
      said_at_ms: clock.now(),
      holds_secs: Math.min(MAX_PRESENCE_SECS, Math.ceil((3 * pauseMs(presences.size) * (1 + JITTER)) / 1000)),
    }
    const addresses = this.#addresses()
    this.#announced = addresses.join()
    return fitting(message, addresses)
  }
}

type Said = Omit<Parameters<typeof presence.encode>[0], 'addresses'>

/** Encodes a presence with as many addresses as fit. */
const fitting = (message: Said, whole: readonly string[]): Uint8Array => {
  const addresses = whole.map((address) => address.replace(/\/p2p\/[^/]*$/, '')).slice(0, MAX_PRESENCE_ADDRESSES)
  for (;;) {
    const encoded = presence.encode({ ...message, addresses })
    if (encoded.length <= MAX_PRESENCE_BYTES) return encoded
    addresses.pop()
  }
}
