import { errorText } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'
import { isPublicText } from '../identity/address.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { ADDRESSES_PER_RELAY, MAX_OWN_RELAYS } from '../protocol/limits/mesh.ts'
import { announceable, parseAddress, relayedAddress } from './addresses.ts'
import type { MeshServices } from './services.ts'

/** Interval of the checks for a missing reservation. */
const LOOK_MS = 1_000
/** Contacts asked per check, in rotation. Asking a thousand each second would use a third of a core. */
export const LOOKED_AT_ONCE = 16
/** First and longest pause after a relay refused. */
const RETRY_MIN_MS = 1_000
const RETRY_MAX_MS = 60_000

type RelaysDeps = Pick<MeshServices, 'book' | 'clock' | 'log' | 'node'>

export interface RelaysInit {
  /** Addresses of relays, each ending in `/p2p/…`. If empty, contacts that relay are used. */
  readonly configured: readonly string[]
  /** This machine announces addresses or is a relay, so it needs no contacts as relays. */
  readonly reachable: boolean
}

/** A relay that is used, or may be. */
interface RelayCandidate {
  failures: number
  /** Monotonic milliseconds. */
  nextAt: number
  lastError: string | null
  asking: boolean
}

/** A relay in `/diagnostics/mesh`. */
export interface RelayJson {
  machine_id: MachineId
  connected: boolean
  /** End of the reservation, or null without one. */
  reserved_until: string | null
  last_error: string | null
}

/**
 * Keeps reservations at relays, so that machines can connect that otherwise could not. It uses the configured relays, or contacts that
 * relay while this machine has no public address. Announced addresses of a relay come from the address book, not from the relay itself.
 */
export class Relays implements Startable {
  readonly #deps: RelaysDeps
  readonly #reachable: boolean
  readonly #configured: readonly MachineId[]
  readonly #places = new Map<MachineId, RelayCandidate>()
  #timer: NodeJS.Timeout | undefined
  #looking = false
  /** Position in the rotation of machines without a reservation. */
  #turn = 0

  constructor(deps: RelaysDeps, init: RelaysInit) {
    this.#deps = deps
    this.#reachable = init.reachable
    this.#configured = [...new Set(init.configured.flatMap((text) => parseAddress(text)?.machineId ?? []))]
  }

  /** Call it before the node's start. */
  start(): void {
    const { node } = this.#deps
    node.reach.isRelay = (machineId) => this.#places.has(machineId)
    node.reach.relayedAddresses = () => this.#addresses()
    node.reach.places.onLost = (machineId) => {
      this.#failed(machineId, 'the reservation was lost')
      node.reach.onAddresses()
    }
    // A machine that announces addresses and has no configured relay never needs one.
    if (!this.#reachable || this.#configured.length > 0) this.#timer = setInterval(() => void this.#poll(), LOOK_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** Whether this machine can probably be reached without a relay. */
  get isPublic(): boolean {
    return this.#reachable || this.#deps.node.directAddresses().some(isPublicText)
  }

  status(): RelayJson[] {
    const { node } = this.#deps
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
      this.#deps.log.error({ err: errorText(error) }, 'the relays could not be checked')
    }
    this.#looking = false
  }

  /** Connected machines where a reservation is wanted, at most `MAX_OWN_RELAYS`. Existing reservations come first. */
  async #wanted(): Promise<MachineId[]> {
    const { node } = this.#deps
    const direct = new Set(node.connections().flatMap(({ machineId, relay }) => (relay === null ? [machineId] : [])))
    const contacts = this.isPublic ? [] : [...direct].filter((machineId) => node.reach.accepts(machineId))
    const possible = this.#configured.length > 0 ? this.#configured.filter((machineId) => direct.has(machineId)) : contacts
    const offering: MachineId[] = []
    for (const machineId of this.#inTurn(possible)) if (await node.reach.places.isOffered(machineId)) offering.push(machineId)
    const isOurs = (machineId: MachineId): boolean => node.reach.places.reservedUntil(machineId) !== null
    return offering.toSorted((a, b) => Number(isOurs(b)) - Number(isOurs(a))).slice(0, MAX_OWN_RELAYS)
  }

  /** Current candidates, and if they are too few, the next ones of the rotation. */
  #inTurn(possible: readonly MachineId[]): MachineId[] {
    const { places } = this.#deps.node.reach
    const kept = possible.filter((machineId) => this.#places.has(machineId))
    if (kept.filter((machineId) => places.reservedUntil(machineId) !== null).length >= MAX_OWN_RELAYS) return kept
    const others = possible.filter((machineId) => !this.#places.has(machineId))
    const from = this.#turn < others.length ? this.#turn : 0
    this.#turn = from + LOOKED_AT_ONCE
    return [...kept, ...others.slice(from, this.#turn)]
  }

  async #keep(machineId: MachineId): Promise<void> {
    const { node, clock, log } = this.#deps
    const place = this.#places.get(machineId) ?? { failures: 0, nextAt: 0, lastError: null, asking: false }
    this.#places.set(machineId, place)
    if (node.reach.places.reservedUntil(machineId) !== null) return
    if (place.nextAt > clock.monotonic()) return
    place.asking = true
    try {
      await node.reach.places.reserve(machineId)
      Object.assign(place, { failures: 0, lastError: null })
      log.info({ machine: shortId(machineId) }, 'peers reach this machine through a relay')
      node.reach.onAddresses()
    } catch (error) {
      this.#failed(machineId, errorText(error))
    }
    place.asking = false
  }

  /** libp2p would renew the reservation until the connection ends. */
  #abandon(machineId: MachineId): void {
    this.#places.delete(machineId)
    this.#deps.node.reach.places.release(machineId)
    this.#deps.node.reach.onAddresses()
  }

  #failed(machineId: MachineId, error: string): void {
    const place = this.#places.get(machineId)
    if (place === undefined) return
    place.nextAt = this.#deps.clock.monotonic() + Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.min(place.failures, 16))
    place.failures += 1
    place.lastError = error
  }

  #addresses(): string[] {
    const { node, book } = this.#deps
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
