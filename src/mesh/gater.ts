import type { ConnectionGater, MultiaddrConnection, PeerId } from '@libp2p/interface'

import { AppError } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_STRANGER_CONNECTIONS } from '../protocol/limits.ts'
import { MAX_UNPROVEN_CONNECTIONS } from '../protocol/meter-limits.ts'
import { MAX_STRANGERS_PER_RELAY } from '../protocol/relay-limits.ts'
import { hostOf, isBehindRelay } from './addresses.ts'
import { KnownHosts } from './known-hosts.ts'
import { machineIdOf } from './peer-ids.ts'

/** Strangers of one host: an eighth of their places. */
export const MAX_STRANGERS_PER_HOST = 64
/** Connections of one stranger's machine: two that crossed, and two that are left of before. The oldest makes room. */
export const MAX_CONNECTIONS_PER_STRANGER = 4
/** Connections of one machine that is named. The oldest makes room. */
export const MAX_CONNECTIONS_PER_MACHINE = 32

/** What the gate must know of the mesh. */
export interface GateView {
  isKnown(machineId: MachineId): boolean
  /** Whether this machine, or strangers from this host, are refused for their offences. */
  isRefused(machineId: MachineId, host: string): boolean
  /** Whether one more connection from this host may begin now. `known`: a machine that we know has been seen or is listed there. */
  mayBegin(host: string, known: boolean): boolean
  /** A connection from this host was closed before Noise had proven its machine. */
  onUnfinished(host: string): void
  /** Strangers that we have dialled ourselves. */
  strangersDialled(): number
  /** Whether this machine may be dialled: see `EngineDials`. */
  mayDial(machineId: MachineId): boolean
  /** Whether this machine may hold a place at us, to be reached through us. */
  mayReserve(machineId: MachineId): boolean
  /** Whether we carry between these. */
  mayCarry(from: MachineId, to: MachineId): boolean
}

/** Why connections were refused. */
const REFUSALS = ['too_fast', 'no_machine', 'penalty', 'stranger', 'host_full', 'full'] as const
type Refusal = (typeof REFUSALS)[number]

/** What we use of an inbound connection. Its `timeline` is the same object in the `Connection` that libp2p makes of it, and so identifies both. */
export type Incoming = Pick<MultiaddrConnection, 'remoteAddr' | 'timeline' | 'addEventListener' | 'abort'>

/** The upgraded connection: a `MeshConnection`. */
export interface Held {
  /** See `MeshConnection.idle`. */
  readonly idle: boolean
  abort(reason: Error): void
}

/** An inbound connection, from before its first byte until it is closed. */
interface Guest {
  readonly incoming: Incoming
  readonly host: string
  /** Null until Noise has proven the machine. */
  machineId: MachineId | null
  /** Null until libp2p has upgraded the connection, which is a moment after `machineId` is known. */
  held: Held | null
  /** We closed it to make room, so that it ended unproven is no offence. */
  dropped: boolean
}

/**
 * Who may come in and stay: Ed25519 machines only, none that is refused for its offences, each source as fast as it
 * may, and strangers only while they leave room for those we know and for one another. Where places are short, the
 * host that has most of them loses one. Any address may be dialled, loopback included, as a card may name any; how many strangers
 * are is bounded elsewhere.
 */
export class Gate implements ConnectionGater {
  readonly #view: GateView
  readonly #strangers: boolean
  /** By `timeline`, the oldest first. */
  readonly #guests = new Map<object, Guest>()
  readonly #hosts = new KnownHosts()
  readonly #refusals = Object.fromEntries(REFUSALS.map((reason) => [reason, 0])) as Record<Refusal, number>
  /** Cache of `outsideHosts()`; null when a connection has come, gone or been proven since. */
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

  /** How many hosts have an inbound connection of a stranger, or one whose machine is not proven yet. */
  outsideHosts(): number {
    this.#outsideHosts ??= this.#countByHost(({ machineId }) => machineId === null || !this.#view.isKnown(machineId)).size
    return this.#outsideHosts
  }

  /** A machine that we know is at this host, so connections from there keep a share of their own: see `Sources.mayConnect`. */
  remember(host: string, machineId: MachineId): void {
    this.#hosts.add(host, machineId)
  }

  /** Contacts, ACL or bootstrap list have changed. `listed`: see `AddressBook.listedHosts`. */
  reviewHosts(listed: ReadonlySet<string>): void {
    this.#hosts.review((machineId) => this.#view.isKnown(machineId), listed)
    this.#outsideHosts = null
  }

  /** libp2p has upgraded the inbound connection with this timeline. */
  opened(timeline: object, held: Held): void {
    const guest = this.#guests.get(timeline)
    if (guest !== undefined) guest.held = held
  }

  denyDialPeer(peer: PeerId): boolean {
    const machineId = machineIdOf(peer)
    return machineId === null || !this.#view.mayDial(machineId)
  }

  denyDialMultiaddr(): boolean {
    return false
  }

  denyInboundRelayReservation(peer: PeerId): boolean {
    const machineId = machineIdOf(peer)
    return machineId === null || !this.#view.mayReserve(machineId)
  }

  denyOutboundRelayedConnection(source: PeerId, destination: PeerId): boolean {
    const [from, to] = [machineIdOf(source), machineIdOf(destination)]
    return from === null || to === null || !this.#view.mayCarry(from, to)
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

  /** Where strangers' places are full, the host with most strangers gives one up: an idle connection, or else its oldest. It gives up one in use only to a host with fewer than it has. */
  #noRoomFor(newcomer: Guest): Refusal | null {
    const here = this.#countByHost((guest) => this.#isStranger(guest))
    const mine = here.get(newcomer.host) ?? 0
    if (mine > (isBehindRelay(newcomer.host) ? MAX_STRANGERS_PER_RELAY : MAX_STRANGERS_PER_HOST)) return 'host_full'
    const all = [...here.values()].reduce((sum, count) => sum + count, this.#view.strangersDialled())
    if (all <= MAX_STRANGER_CONNECTIONS) return null
    const [, most] = fullestOf(here)
    const crowded = [...this.#guests.values()].filter((one) => one !== newcomer && this.#isStranger(one) && here.get(one.host) === most)
    const leaving = crowded.find(({ held }) => held?.idle === true) ?? (mine < most ? crowded[0] : undefined)
    if (leaving === undefined) return 'full'
    this.#drop(leaving)
    return null
  }

  /** A machine that has restarted may have left connections behind that are dead and not closed. */
  #dropOldestOf(machineId: MachineId, limit: number): void {
    const own = [...this.#guests.values()].filter((guest) => guest.machineId === machineId)
    // Aborted below `MeshConnection`, so that `givenUp` stays false: a handshake that breaks off by it counts as the machine's own offence.
    if (own.length > limit) this.#drop(own[0]!, own[0]!.incoming)
  }

  /** Above `MAX_UNPROVEN_CONNECTIONS` the fullest host loses its oldest unproven connection, hosts in `KnownHosts` after all others: a machine that we know may be about to prove itself there. */
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
