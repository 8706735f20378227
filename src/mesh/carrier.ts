import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { TokenBucket } from '../base/rate-limit.ts'
import { type AgentId, type MachineId, shortId } from '../protocol/ids.ts'
import {
  CARRIED_BURST,
  CARRIED_BYTES_PER_SECOND,
  MAX_CARRIED,
  MAX_CARRIED_HELD,
  MAX_CARRIED_OF_MACHINE,
  MAX_CARRIED_OF_PAIR,
} from '../protocol/limits/mesh.ts'
import type { AgentShares } from './agent-shares.ts'
import type { MeshOptions } from './libp2p/options.ts'
import { type CarriedEnds, CarriedStreams, RelayClient } from './libp2p/relay.ts'

/** Interval at which bytes above the rate are charged. */
const PAY_MS = 20
/** Bytes that are charged at a time. */
const PORTION = 64 * 1024
/** After this many bytes, the buffered amount is checked. */
const LOOK_BYTES = 1024 * 1024

interface CarrierDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly log: Logger
  /** Whether the machine belongs to a contact of level `known` or `trusted`. */
  readonly isAccepted: (machineId: MachineId) => boolean
  /** See `AgentShares.agentOf`. */
  readonly agentOf: (machineId: MachineId) => AgentId | null
}

export interface CarrierInit {
  readonly perSecond?: number
  readonly burst?: number
}

/** One carried connection. Its content is encrypted between its two ends. */
interface CarriedConnection {
  readonly from: MachineId
  readonly to: MachineId
  readonly sinceMs: number
  bytes: number
}

const REFUSALS = ['stranger', 'full', 'machine_full'] as const

/** Carries connections between contacts, as a relay, within limits. The gate asks it before each connection. */
export class Carrier {
  readonly #deps: CarrierDeps
  readonly #bucket: TokenBucket
  /** Oldest first. */
  readonly #carried = new Map<CarriedConnection, CarriedStreams>()
  readonly #refused: Record<(typeof REFUSALS)[number], number> = { stranger: 0, full: 0, machine_full: 0 }
  #total = { connections: 0, bytes: 0 }
  /** Bytes not yet charged, by the agent or machine that dialled. Above zero, no more is read from its connections. The one charged last comes last. */
  readonly #owed = new Map<string, number>()
  #paying: NodeJS.Timeout | undefined
  #notLooked = 0

  constructor(deps: CarrierDeps, { perSecond = CARRIED_BYTES_PER_SECOND, burst = CARRIED_BURST }: CarrierInit = {}) {
    this.#deps = deps
    this.#bucket = new TokenBucket(deps, { burst, perSecond })
  }

  /** Whether this machine may reserve a slot here and dial through this relay. */
  mayUse(machineId: MachineId): boolean {
    const may = this.#deps.isAccepted(machineId)
    if (!may) this.#refused.stranger += 1
    return may
  }

  /** Whether one more connection between these machines may be carried. */
  mayCarry(from: MachineId, to: MachineId): boolean {
    if (!this.mayUse(from) || !this.mayUse(to)) return false
    const reason = this.#tooManyOf(from, to) === undefined ? this.#noRoomFor(from, to) : null
    if (reason === null) return true
    this.#refused[reason] += 1
    return false
  }

  /** Starts to carry a connection. The oldest one of the same pair makes space. Limits are checked again, because others may have started since `mayCarry`. */
  carry({ from, to, here, there }: CarriedEnds): void {
    const carried: CarriedConnection = { from, to, sinceMs: this.#deps.clock.monotonic(), bytes: 0 }
    const holder = this.#holderOf(from)
    const streams = new CarriedStreams({
      ends: { here, there },
      onBytes: (count) => this.#onBytes(carried, holder, count),
      isShort: () => this.#owed.has(holder),
      onEnd: () => this.#carried.delete(carried),
    })
    this.#total.connections += 1
    const leaving = this.#tooManyOf(from, to)
    if (leaving !== undefined) this.#end(leaving, 'another connection replaced it')
    const full = this.#noRoomFor(from, to) !== null
    this.#carried.set(carried, streams)
    if (full) return this.#end(carried, 'too many relayed connections')
    this.#deps.log.debug({ from: shortId(from), to: shortId(to) }, 'a connection is relayed')
  }

  /** Ends connections of machines that are no longer contacts. */
  review(): void {
    const { isAccepted } = this.#deps
    for (const carried of this.#carried.keys())
      if (!isAccepted(carried.from) || !isAccepted(carried.to)) this.#end(carried, 'one of its ends is no longer a contact')
  }

  stop(): void {
    clearTimeout(this.#paying)
  }

  /** For `/diagnostics/mesh`. */
  diagnostics() {
    const now = this.#deps.clock.monotonic()
    return {
      carried: [...this.#carried.keys()].map(({ from, to, sinceMs, bytes }) => ({
        from,
        to,
        bytes,
        age_secs: Math.round((now - sinceMs) / 1000),
      })),
      carried_total: this.#total.connections,
      carried_bytes_total: this.#total.bytes,
      refused: { ...this.#refused },
    }
  }

  /** The oldest connection of the same pair, in either direction, if one more would exceed the limit. */
  #tooManyOf(from: MachineId, to: MachineId): CarriedConnection | undefined {
    const same = [...this.#carried.keys()].filter((one) => (one.from === from && one.to === to) || (one.from === to && one.to === from))
    return same.length >= MAX_CARRIED_OF_PAIR ? same[0] : undefined
  }

  #noRoomFor(from: MachineId, to: MachineId): 'full' | 'machine_full' | null {
    if (this.#carried.size >= MAX_CARRIED) return 'full'
    const holders = [...this.#carried.keys()].map((one) => [this.#holderOf(one.from), this.#holderOf(one.to)])
    const of = (machineId: MachineId): number => holders.filter((ends) => ends.includes(this.#holderOf(machineId))).length
    return Math.max(of(from), of(to)) >= MAX_CARRIED_OF_MACHINE ? 'machine_full' : null
  }

  /** All machines of one agent share one limit. */
  #holderOf(machineId: MachineId): string {
    return this.#deps.agentOf(machineId) ?? machineId
  }

  #end(carried: CarriedConnection, reason: string): void {
    this.#carried.get(carried)?.abort(new AppError('rate_limited', reason))
  }

  #onBytes(carried: CarriedConnection, holder: string, count: number): void {
    carried.bytes += count
    this.#total.bytes += count
    this.#owed.set(holder, (this.#owed.get(holder) ?? 0) + count)
    this.#notLooked += count
    if (this.#notLooked >= LOOK_BYTES) this.#boundHeld()
    this.#pay()
  }

  /** Bounds the buffered bytes. A machine that does not read can leave one window of each connection here. */
  #boundHeld(): void {
    this.#notLooked = 0
    const held = [...this.#carried].map(([carried, streams]) => ({ carried, bytes: streams.held })).toSorted((a, b) => b.bytes - a.bytes)
    let all = held.reduce((sum, { bytes }) => sum + bytes, 0)
    for (const { carried, bytes } of held) {
      if (all <= MAX_CARRIED_HELD) return
      this.#end(carried, 'its reader is too slow')
      all -= bytes
    }
  }

  #pay(): void {
    for (const [holder, owed] of this.#owed) {
      const paid = Math.min(owed, PORTION)
      if (!this.#bucket.take(paid)) break
      this.#owed.delete(holder)
      if (owed > paid) this.#owed.set(holder, owed - paid)
    }
    if (this.#owed.size > 0) this.#paying ??= setTimeout(() => this.#payLater(), PAY_MS).unref()
  }

  #payLater(): void {
    this.#paying = undefined
    this.#pay()
    for (const streams of this.#carried.values()) streams.update()
  }
}

/** Relays that this machine uses, and its own relaying. Other classes set the rules for both. */
export class Reachability {
  /** Whether a machine belongs to a contact of level `known` or `trusted`. Only for these it relays, and tries addresses that they name. */
  accepts: (machineId: MachineId) => boolean = () => false
  /** Whether this machine uses the machine as its relay. */
  isRelay: (machineId: MachineId) => boolean = () => false
  /** Own addresses through relays, which are announced too. */
  relayedAddresses: () => readonly string[] = () => []
  /** Called when the own addresses may have changed. */
  onAddresses: () => void = () => undefined
  /** Reservations at other machines' relays. */
  readonly places = new RelayClient({ isRelay: (machineId) => this.isRelay(machineId) })
  /** The relay of this daemon, or null if it is off. */
  readonly carrier: Carrier | null
  readonly #reviews = new Set<() => void>()

  constructor(
    components: { readonly clock: Pick<Clock, 'monotonic'>; readonly log: Logger; readonly shares: Pick<AgentShares, 'agentOf'> },
    init: { readonly relay: boolean },
  ) {
    const { shares } = components
    const isAccepted = (machineId: MachineId): boolean => this.accepts(machineId)
    this.carrier = init.relay ? new Carrier({ ...components, isAccepted, agentOf: (machineId) => shares.agentOf(machineId) }) : null
  }

  get options(): NonNullable<MeshOptions['reach']> {
    return {
      client: this.places,
      mayAsk: (machineId) => this.accepts(machineId),
      onReview: (review) => void this.#reviews.add(review),
      server: this.carrier,
    }
  }

  /** The contacts have changed. */
  review(): void {
    this.carrier?.review()
    for (const review of this.#reviews) review()
  }

  /** See `Carrier`. */
  mayReserve(machineId: MachineId): boolean {
    return this.carrier?.mayUse(machineId) ?? false
  }

  /** See `Carrier`. */
  mayCarry(from: MachineId, to: MachineId): boolean {
    return this.carrier?.mayCarry(from, to) ?? false
  }
}
