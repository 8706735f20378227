import type { ConnectionGater, MultiaddrConnection, PeerId } from '@libp2p/interface'

import { AppError } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_STRANGER_CONNECTIONS } from '../protocol/limits.ts'
import {
  MAX_CONNECTIONS_PER_MACHINE,
  MAX_CONNECTIONS_PER_STRANGER,
  MAX_STRANGERS_PER_HOST,
  MAX_UNPROVEN_CONNECTIONS,
} from '../protocol/meter-limits.ts'
import { hostOf } from './addresses.ts'
import { KnownHosts } from './known-hosts.ts'
import { machineIdOf } from './peer-ids.ts'

/** What the gate must know of the mesh. */
export interface GateView {
  isKnown(machineId: MachineId): boolean
  /** Too many offences of late, of this machine or of strangers from this host. */
  isRefused(machineId: MachineId, host: string): boolean
  /** Whether one more connection may come from there now. `known`: machines that we know may be there. */
  mayBegin(host: string, known: boolean): boolean
  /** A connection of this host ended before it had said who it is. */
  onUnfinished(host: string): void
  /** Strangers that we have dialled ourselves. */
  strangersDialled(): number
}

/** Why connections were refused. */
const REFUSALS = ['too_fast', 'no_machine', 'penalty', 'stranger', 'host_full', 'full'] as const
type Refusal = (typeof REFUSALS)[number]

/** What is touched of a connection that comes in. libp2p hands on its timeline to what it makes of it. */
export type Incoming = Pick<MultiaddrConnection, 'remoteAddr' | 'timeline' | 'addEventListener' | 'abort'>

/** What libp2p and we have made of it. */
export interface Held {
  /** Nothing of use was done on it of late. */
  readonly idle: boolean
  abort(reason: Error): void
}

/** An inbound connection, from before its first byte until it is closed. */
interface Guest {
  readonly incoming: Incoming
  readonly host: string
  /** Null until Noise has proven it. */
  machineId: MachineId | null
  /** Null until then, and for a moment longer. */
  held: Held | null
  /** We gave it up ourselves. */
  dropped: boolean
}

/**
 * Who may come in and stay: Ed25519 machines only, none that is refused for its offences, each source as fast as it
 * may, and strangers only while they leave room for those we know and for one another. Where places are short, the
 * host that has most of them loses one. Dialling is free, loopback included: a card may name any address.
 */
export class Gate implements ConnectionGater {
  readonly #view: GateView
  readonly #strangers: boolean
  /** By their timelines, the oldest first. */
  readonly #guests = new Map<object, Guest>()
  readonly #hosts = new KnownHosts()
  readonly #refusals = Object.fromEntries(REFUSALS.map((reason) => [reason, 0])) as Record<Refusal, number>
  /** Counted when asked for, and again when somebody has come or gone. */
  #outsideHosts: number | null = null

  /** `strangers`: whether machines may stay that nobody names. */
  constructor(components: { view: GateView }, init: { strangers: boolean }) {
    this.#view = components.view
    this.#strangers = init.strangers
  }

  /** Connections refused so far, by reason, for `/diagnostics/mesh`. */
  get refusals(): Readonly<Record<Refusal, number>> {
    return { ...this.#refusals }
  }

  /** Hosts of which somebody is here now who is a stranger, or has not said yet who it is. */
  outsideHosts(): number {
    this.#outsideHosts ??= this.#countByHost(({ machineId }) => machineId === null || !this.#view.isKnown(machineId)).size
    return this.#outsideHosts
  }

  /** This machine, which we know, is there: whoever comes from there may be one of its kind. */
  remember(host: string, machineId: MachineId): void {
    this.#hosts.add(host, machineId)
  }

  /** Whom we know has changed. `listed`: hosts where machines are said to be that we know. */
  reviewHosts(listed: ReadonlySet<string>): void {
    this.#hosts.review((machineId) => this.#view.isKnown(machineId), listed)
    this.#outsideHosts = null
  }

  /** What was made of a connection that came in. */
  opened(timeline: object, held: Held): void {
    const guest = this.#guests.get(timeline)
    if (guest !== undefined) guest.held = held
  }

  denyDialMultiaddr(): boolean {
    return false
  }

  /** Before Noise, when only the address is known. */
  denyInboundConnection(connection: Incoming): boolean {
    const host = hostOf(connection.remoteAddr)
    if (!this.#view.mayBegin(host, this.#hosts.has(host))) return this.#refuse('too_fast')
    const guest: Guest = { incoming: connection, host, machineId: null, held: null, dropped: false }
    this.#guests.set(connection.timeline, guest)
    this.#outsideHosts = null
    connection.addEventListener('close', () => {
      this.#forget(guest)
      if (guest.machineId === null && !guest.dropped) this.#view.onUnfinished(host)
    })
    this.#makeRoomForUnproven()
    return false
  }

  /** Once Noise has proven the machine. */
  denyInboundEncryptedConnection(peer: PeerId, connection: Incoming): boolean {
    const machineId = machineIdOf(peer)
    const guest = this.#guests.get(connection.timeline)
    if (machineId === null || guest === undefined) return this.#refuse('no_machine')
    guest.machineId = machineId
    this.#outsideHosts = null
    if (this.#view.isRefused(machineId, guest.host)) return this.#refuse('penalty')
    const stranger = this.#isStranger(guest)
    if (stranger && !this.#strangers) return this.#refuse('stranger')
    const reason = stranger ? this.#noRoomFor(guest) : null
    if (reason !== null) return this.#refuse(reason)
    this.#dropOldestOf(machineId, stranger ? MAX_CONNECTIONS_PER_STRANGER : MAX_CONNECTIONS_PER_MACHINE)
    if (!stranger) this.remember(guest.host, machineId)
    return false
  }

  /** Of the host that has most of them one leaves for a newcomer of another: one that is idle, or else the oldest. Among equals only who is idle does. */
  #noRoomFor(newcomer: Guest): Refusal | null {
    const here = this.#countByHost((guest) => this.#isStranger(guest))
    const mine = here.get(newcomer.host) ?? 0
    if (mine > MAX_STRANGERS_PER_HOST) return 'host_full'
    const all = [...here.values()].reduce((sum, count) => sum + count, this.#view.strangersDialled())
    if (all <= MAX_STRANGER_CONNECTIONS) return null
    const [, most] = fullestOf(here)
    const crowded = [...this.#guests.values()].filter((one) => one !== newcomer && this.#isStranger(one) && here.get(one.host) === most)
    const leaving = crowded.find(({ held }) => held?.idle === true) ?? (mine < most ? crowded[0] : undefined)
    if (leaving === undefined) return 'full'
    this.#drop(leaving)
    return null
  }

  /** A peer that has restarted may have left connections behind that nobody has found dead yet. */
  #dropOldestOf(machineId: MachineId, limit: number): void {
    const own = [...this.#guests.values()].filter((guest) => guest.machineId === machineId)
    // Its own doing: what that breaks off is held against it as ever.
    if (own.length > limit) this.#drop(own[0]!, own[0]!.incoming)
  }

  /** Where machines are that we know, one of them may be about to say who it is: others go first. */
  #makeRoomForUnproven(): void {
    const unproven = [...this.#guests.values()].filter(({ machineId }) => machineId === null)
    if (unproven.length <= MAX_UNPROVEN_CONNECTIONS) return
    const outside = unproven.filter(({ host }) => !this.#hosts.has(host))
    const candidates = outside.length > 0 ? outside : unproven
    const [fullest] = fullestOf(countHosts(candidates))
    const oldest = candidates.find(({ host }) => host === fullest)
    if (oldest !== undefined) this.#drop(oldest)
  }

  #drop(guest: Guest, end: Pick<Held, 'abort'> = guest.held ?? guest.incoming): void {
    guest.dropped = true
    this.#forget(guest)
    end.abort(new AppError('rate_limited', 'its place was needed'))
  }

  #forget({ incoming }: Guest): void {
    this.#guests.delete(incoming.timeline)
    this.#outsideHosts = null
  }

  #refuse(reason: Refusal): true {
    this.#refusals[reason] += 1
    return true
  }

  #isStranger({ machineId }: Guest): boolean {
    return machineId !== null && !this.#view.isKnown(machineId)
  }

  #countByHost(counts: (guest: Guest) => boolean): Map<string, number> {
    return countHosts([...this.#guests.values()].filter(counts))
  }
}

const countHosts = (guests: readonly Guest[]): Map<string, number> => {
  const hosts = new Map<string, number>()
  for (const { host } of guests) hosts.set(host, (hosts.get(host) ?? 0) + 1)
  return hosts
}

const fullestOf = (hosts: ReadonlyMap<string, number>): [string, number] => {
  let fullest: [string, number] = ['', 0]
  for (const [host, count] of hosts) if (count > fullest[1]) fullest = [host, count]
  return fullest
}
