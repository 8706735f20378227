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
import { type CarriedEnds, CarriedStreams } from './libp2p/relay.ts'

/** How often it is looked whether what came too fast is paid for. */
const PAY_MS = 20
/** What is paid for at once. */
const PORTION = 64 * 1024
/** After so many bytes it is looked how much waits. */
const LOOK_BYTES = 1024 * 1024

export interface CarrierComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly log: Logger
  /** A contact of level `known` or `trusted`. */
  readonly isAccepted: (machineId: MachineId) => boolean
  /** See `AgentShares.agentOf`. */
  readonly agentOf: (machineId: MachineId) => AgentId | null
}

export interface CarrierInit {
  readonly perSecond?: number
  readonly burst?: number
}

/** A connection that we carry. What is in it only its two ends know. */
interface PeerStreamHandler {
  readonly from: MachineId
  readonly to: MachineId
  readonly sinceMs: number
  bytes: number
}

/** Why nobody was carried. */
const REFUSALS = ['stranger', 'full', 'machine_full'] as const

/** What this daemon carries for its contacts, and how much: who may be carried is said here, and by the gate for it. */
export class Carrier {
  readonly #parts: CarrierComponents
  readonly #bucket: TokenBucket
  /** The oldest first. */
  readonly #carried = new Map<PeerStreamHandler, CarriedStreams>()
  readonly #refused: Record<(typeof REFUSALS)[number], number> = { stranger: 0, full: 0, machine_full: 0 }
  #total = { connections: 0, bytes: 0 }
  /** Unpaid bytes of each agent or machine that has dialled through us: while it owes any, nothing more is taken on its connections. Whoever was paid for last comes last. */
  readonly #owed = new Map<string, number>()
  #paying: NodeJS.Timeout | undefined
  #notLooked = 0

  constructor(components: CarrierComponents, { perSecond = CARRIED_BYTES_PER_SECOND, burst = CARRIED_BURST }: CarrierInit = {}) {
    this.#parts = components
    this.#bucket = new TokenBucket(components, { burst, perSecond })
  }

  /** Whether this machine may hold a place, and ask to be carried. */
  mayUse(machineId: MachineId): boolean {
    const may = this.#parts.isAccepted(machineId)
    if (!may) this.#refused.stranger += 1
    return may
  }

  /** Whether one more connection may be carried between these, if it comes about. */
  mayCarry(from: MachineId, to: MachineId): boolean {
    if (!this.mayUse(from) || !this.mayUse(to)) return false
    const reason = this.#tooManyOf(from, to) === undefined ? this.#noRoomFor(from, to) : null
    if (reason === null) return true
    this.#refused[reason] += 1
    return false
  }

  /** Once for each. The oldest of the same two makes room. It may be one too many all the same, since others were asked for meanwhile. */
  carry({ from, to, here, there }: CarriedEnds): void {
    const carried: PeerStreamHandler = { from, to, sinceMs: this.#parts.clock.monotonic(), bytes: 0 }
    const holder = this.#holderOf(from)
    const streams = new CarriedStreams({
      ends: { here, there },
      onBytes: (count) => this.#onBytes(carried, holder, count),
      isShort: () => this.#owed.has(holder),
      onEnd: () => this.#carried.delete(carried),
    })
    this.#total.connections += 1
    const leaving = this.#tooManyOf(from, to)
    if (leaving !== undefined) this.#end(leaving, 'another took its place')
    const full = this.#noRoomFor(from, to) !== null
    this.#carried.set(carried, streams)
    if (full) return this.#end(carried, 'too many are carried')
    this.#parts.log.debug({ from: shortId(from), to: shortId(to) }, 'a connection is carried')
  }

  /** The contacts have changed: whoever is none any more is not carried further. */
  review(): void {
    const { isAccepted } = this.#parts
    for (const carried of this.#carried.keys())
      if (!isAccepted(carried.from) || !isAccepted(carried.to)) this.#end(carried, 'one of its ends is no contact any more')
  }

  stop(): void {
    clearTimeout(this.#paying)
  }

  /** For `/diagnostics/mesh`. */
  diagnostics() {
    const now = this.#parts.clock.monotonic()
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

  /** The oldest between the same two, whoever of them asked, where one more would be too many. */
  #tooManyOf(from: MachineId, to: MachineId): PeerStreamHandler | undefined {
    const same = [...this.#carried.keys()].filter((one) => (one.from === from && one.to === to) || (one.from === to && one.to === from))
    return same.length >= MAX_CARRIED_OF_PAIR ? same[0] : undefined
  }

  #noRoomFor(from: MachineId, to: MachineId): 'full' | 'machine_full' | null {
    if (this.#carried.size >= MAX_CARRIED) return 'full'
    const holders = [...this.#carried.keys()].map((one) => [this.#holderOf(one.from), this.#holderOf(one.to)])
    const of = (machineId: MachineId): number => holders.filter((ends) => ends.includes(this.#holderOf(machineId))).length
    return Math.max(of(from), of(to)) >= MAX_CARRIED_OF_MACHINE ? 'machine_full' : null
  }

  /** All machines of one agent share. */
  #holderOf(machineId: MachineId): string {
    return this.#parts.agentOf(machineId) ?? machineId
  }

  #end(carried: PeerStreamHandler, reason: string): void {
    this.#carried.get(carried)?.abort(new AppError('rate_limited', reason))
  }

  #onBytes(carried: PeerStreamHandler, holder: string, count: number): void {
    carried.bytes += count
    this.#total.bytes += count
    this.#owed.set(holder, (this.#owed.get(holder) ?? 0) + count)
    this.#notLooked += count
    if (this.#notLooked >= LOOK_BYTES) this.#boundHeld()
    this.#pay()
  }

  /** Who does not read may leave a window of each of many connections here. */
  #boundHeld(): void {
    this.#notLooked = 0
    const held = [...this.#carried].map(([carried, streams]) => ({ carried, bytes: streams.held })).toSorted((a, b) => b.bytes - a.bytes)
    let all = held.reduce((sum, { bytes }) => sum + bytes, 0)
    for (const { carried, bytes } of held) {
      if (all <= MAX_CARRIED_HELD) return
      this.#end(carried, 'too much waits here for who does not read')
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
