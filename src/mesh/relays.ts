import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { ADDRESSES_PER_RELAY, MAX_OWN_RELAYS } from '../protocol/limits/mesh.ts'
import type { AddressBook } from './address-book.ts'
import { announceable, isPublicText, parseAddress, relayedAddress } from './addresses.ts'
import type { MeshNode } from './node.ts'

/** How often it is looked whether a place is missing … */
const LOOK_MS = 1_000
/** … at how many of our contacts at once, the others in their turn: what a thousand offer each second would be a third of a core … */
export const LOOKED_AT_ONCE = 16
/** … and how long a relay that refused is left alone, at first and at most. */
const RETRY_MIN_MS = 1_000
const RETRY_MAX_MS = 60_000

export interface RelaysComponents {
  readonly node: Pick<MeshNode, 'connections' | 'connectionsTo' | 'directAddresses' | 'machineId' | 'reach'>
  readonly book: Pick<AddressBook, 'addressesOf'>
  readonly clock: Pick<Clock, 'monotonic'>
  readonly log: Logger
}

export interface RelaysInit {
  /** Addresses of relays, each ending in `/p2p/…`; empty: contacts that relay. */
  readonly configured: readonly string[]
  /** We say ourselves where we are reached, or carry for others: contacts that relay are not needed. */
  readonly reachable: boolean
}

/** A relay of ours, or one that is to be. */
interface RelayCandidate {
  failures: number
  /** Monotonic milliseconds. */
  nextAt: number
  lastError: string | null
  asking: boolean
}

/** A relay of ours as `/diagnostics/mesh` shows it. */
export interface RelayJson {
  machine_id: MachineId
  connected: boolean
  /** Until when our place there is kept; null: we have none. */
  reserved_until: string | null
  last_error: string | null
}

/**
 * Keeps places at relays, so that those reach us who cannot connect: at the relays of the configuration, or else at those
 * of our contacts that relay, while we know no address of ours at which the world could. What a relay says of its own
 * addresses is not told on: others hear where we know it to be.
 */
export class Relays implements Startable {
  readonly #parts: RelaysComponents
  readonly #reachable: boolean
  readonly #configured: readonly MachineId[]
  readonly #places = new Map<MachineId, RelayCandidate>()
  #timer: NodeJS.Timeout | undefined
  #looking = false
  /** Whose turn it is among those that have no place. */
  #turn = 0

  constructor(components: RelaysComponents, init: RelaysInit) {
    this.#parts = components
    this.#reachable = init.reachable
    this.#configured = [...new Set(init.configured.flatMap((text) => parseAddress(text)?.machineId ?? []))]
  }

  /** Before the node's start. */
  start(): void {
    const { node } = this.#parts
    node.reach.isRelay = (machineId) => this.#places.has(machineId)
    node.reach.relayedAddresses = () => this.#addresses()
    node.reach.places.onLost = (machineId) => {
      this.#failed(machineId, 'the place was lost')
      node.reach.onAddresses()
    }
    // Who is reachable by its own word and has none to hold a place at never needs one.
    if (!this.#reachable || this.#configured.length > 0) this.#timer = setInterval(() => void this.#poll(), LOOK_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** Whether the world may reach us without a relay, as far as is known. */
  get isPublic(): boolean {
    return this.#reachable || this.#parts.node.directAddresses().some(isPublicText)
  }

  status(): RelayJson[] {
    const { node } = this.#parts
    return [...new Set([...this.#configured, ...this.#places.keys()])].map((machineId) => {
      const until = node.reach.places.reservedUntil(machineId)
      return {
        machine_id: machineId,
        connected: node.connectionsTo(machineId).some(({ relay }) => relay === null),
        reserved_until: until === null ? null : new Date(until).toISOString(),
        last_error: this.#places.get(machineId)?.lastError ?? null,
      }
    })
  }

  async #poll(): Promise<void> {
    if (this.#looking) return
    this.#looking = true
    try {
      const wanted = await this.#wanted()
      for (const [machineId, place] of this.#places) if (!place.asking && !wanted.includes(machineId)) this.#abandon(machineId)
      for (const machineId of wanted) await this.#keep(machineId)
    } catch (error) {
      this.#parts.log.error({ err: errorText(error) }, 'relays were not looked at')
    }
    this.#looking = false
  }

  /** Connected machines at which we want a place, `MAX_OWN_RELAYS` at most: those first where we have one. */
  async #wanted(): Promise<MachineId[]> {
    const { node } = this.#parts
    const direct = new Set(node.connections().flatMap(({ machineId, relay }) => (relay === null ? [machineId] : [])))
    const contacts = this.isPublic ? [] : [...direct].filter((machineId) => node.reach.accepts(machineId))
    const possible = this.#configured.length > 0 ? this.#configured.filter((machineId) => direct.has(machineId)) : contacts
    const offering: MachineId[] = []
    for (const machineId of this.#inTurn(possible)) if (await node.reach.places.isOffered(machineId)) offering.push(machineId)
    const isOurs = (machineId: MachineId): boolean => node.reach.places.reservedUntil(machineId) !== null
    return offering.toSorted((a, b) => Number(isOurs(b)) - Number(isOurs(a))).slice(0, MAX_OWN_RELAYS)
  }

  /** Those that are ours or are to be, and where that is too few some of the others. */
  #inTurn(possible: readonly MachineId[]): MachineId[] {
    const { places } = this.#parts.node.reach
    const kept = possible.filter((machineId) => this.#places.has(machineId))
    if (kept.filter((machineId) => places.reservedUntil(machineId) !== null).length >= MAX_OWN_RELAYS) return kept
    const others = possible.filter((machineId) => !this.#places.has(machineId))
    const from = this.#turn < others.length ? this.#turn : 0
    this.#turn = from + LOOKED_AT_ONCE
    return [...kept, ...others.slice(from, this.#turn)]
  }

  async #keep(machineId: MachineId): Promise<void> {
    const { node, clock, log } = this.#parts
    const place = this.#places.get(machineId) ?? { failures: 0, nextAt: 0, lastError: null, asking: false }
    this.#places.set(machineId, place)
    if (node.reach.places.reservedUntil(machineId) !== null) return
    if (place.nextAt > clock.monotonic()) return
    place.asking = true
    try {
      await node.reach.places.reserve(machineId)
      Object.assign(place, { failures: 0, lastError: null })
      log.info({ machine: shortId(machineId) }, 'others reach us through a relay')
      node.reach.onAddresses()
    } catch (error) {
      this.#failed(machineId, errorText(error))
    }
    place.asking = false
  }

  /** libp2p would keep the place, and renew it, as long as its connection. */
  #abandon(machineId: MachineId): void {
    this.#places.delete(machineId)
    this.#parts.node.reach.places.release(machineId)
    this.#parts.node.reach.onAddresses()
  }

  #failed(machineId: MachineId, error: string): void {
    const place = this.#places.get(machineId)
    if (place === undefined) return
    place.nextAt = this.#parts.clock.monotonic() + Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.min(place.failures, 16))
    place.failures += 1
    place.lastError = error
  }

  #addresses(): string[] {
    const { node, book } = this.#parts
    return [...this.#places.keys()].flatMap((relay) => {
      if (node.reach.places.reservedUntil(relay) === null) return []
      const dialled = node.connectionsTo(relay).filter((one) => !one.inbound && one.relay === null)
      const known = new Set([...dialled.map(({ address }) => address), ...book.addressesOf(relay)])
      return announceable([...known].filter((text) => parseAddress(text)?.relay === null))
        .slice(0, ADDRESSES_PER_RELAY)
        .map((text) => relayedAddress(text, node.machineId))
        .filter((text) => parseAddress(text) !== null)
    })
  }
}
