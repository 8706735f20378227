import type { ConnectionGater, MultiaddrConnection, PeerId } from '@libp2p/interface'
import { BoundedMap } from '../base/bounded-collections.ts'
import { AppError } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_UNLISTED_PER_RELAY, MAX_UNPROVEN_CONNECTIONS } from '../protocol/limits/mesh.ts'
import { MAX_CONNECTIONS, MAX_UNLISTED_CONNECTIONS } from '../protocol/limits/wire.ts'
import { hostOf, isBehindRelay, machineIdOf } from './addresses.ts'
import type { AgentShares } from './agent-shares.ts'
import type { Reachability } from './carrier.ts'

/**
 * Known machines without a pin or ACL entry whose hosts are remembered. Violations of others at those hosts do not keep them out. If there
 * are more, the host with most loses its oldest.
 */
export const MAX_REMEMBERED_MACHINES = 2_048
/** Hosts remembered per machine, such as home, work and a mobile network. Few, because each gets its own share (`Sources.mayConnect`) and one machine may hold a /48. */
export const MAX_HOSTS_PER_MACHINE = 4

/** Hosts where known machines have proven themselves, or that contacts list. A connection from such a host may be from a known machine. */
export class KnownHosts {
  /** Hosts of each machine. The latest machine and its latest host are last. */
  readonly #hostsOf: BoundedMap<MachineId, readonly string[]>
  /** Cache of all hosts in `#hostsOf`, or null after a change. */
  #met: ReadonlySet<string> | null = null
  #listed: ReadonlySet<string> = new Set()

  constructor(components: { isPinned: (machineId: MachineId) => boolean }) {
    this.#hostsOf = new BoundedMap({ max: MAX_REMEMBERED_MACHINES, isApart: components.isPinned })
  }

  has(host: string): boolean {
    this.#met ??= new Set([...this.#hostsOf.values()].flat())
    return this.#met.has(host) || this.#listed.has(host)
  }

  /** Records that a known machine has proven itself at this host. */
  add(host: string, machineId: MachineId): void {
    const before = this.#hostsOf.get(machineId) ?? []
    this.#hostsOf.set(machineId, [...before.filter((one) => one !== host), host].slice(-MAX_HOSTS_PER_MACHINE), host)
    if (!before.includes(host)) this.#met = null
  }

  /** Forgets machines that are no longer known. For `listed`, see `AddressBook.listedHosts`. */
  review(isKnown: (machineId: MachineId) => boolean, listed: ReadonlySet<string>): void {
    this.#listed = listed
    for (const machineId of this.#hostsOf.keys()) if (!isKnown(machineId)) this.#hostsOf.delete(machineId)
    this.#met = null
  }
}

/** Unlisted connections per host, an eighth of their slots. */
export const MAX_UNLISTED_PER_HOST = 64
/** Connections of a machine without an accepted agent. Two may have crossed, and two may be old. The oldest makes space. */
export const MAX_CONNECTIONS_PER_UNLISTED = 4
/** Connections of a machine with an accepted agent, see also `AgentShares`. The oldest makes space. */
export const MAX_CONNECTIONS_PER_MACHINE = 32

export interface GateView {
  isKnown(machineId: MachineId): boolean
  /** Whether a pin or the ACL names this machine. */
  isPinned(machineId: MachineId): boolean
  /** Whether this machine, or this host's unlisted machines, are refused for violations. */
  isRefused(machineId: MachineId, host: string): boolean
  /** Whether one more connection from this host may start. `known` means that a known machine may be there. */
  mayBegin(host: string, known: boolean): boolean
  /** A connection from this host closed before Noise proved its machine. */
  onUnfinished(host: string): void
  /** Machines to which this side dialled the connection. */
  dialled(): readonly MachineId[]
  /** Whether this machine may be dialled, see `EngineDials`. */
  mayDial(machineId: MachineId): boolean
}

export interface GateComponents {
  readonly view: GateView
  /** Rules of this daemon as a relay. */
  readonly reach: Pick<Reachability, 'mayReserve' | 'mayCarry'>
  readonly shares: Pick<AgentShares, 'agentOf'>
}

/** Reasons for refused or closed connections. `all_full` means that `MAX_CONNECTIONS` was reached. */
const REFUSALS = ['too_fast', 'no_machine', 'penalty', 'stranger', 'host_full', 'full', 'all_full'] as const
type Refusal = (typeof REFUSALS)[number]

/** The used members of an inbound connection. libp2p passes its `timeline` object on to the `Connection`, so it identifies both. */
export type InboundConnection = Pick<MultiaddrConnection, 'remoteAddr' | 'timeline' | 'addEventListener' | 'abort'>

/** The upgraded connection, which is a `MeshConnection`. */
export interface AdmittedConnection {
  /** See `MeshConnection.idle`. */
  readonly idle: boolean
  abort(reason: Error): void
}

/** An inbound connection, from before its first byte until it is closed. */
interface Guest {
  readonly incoming: InboundConnection
  readonly host: string
  /** Null until Noise has proven the machine. */
  machineId: MachineId | null
  /** Null until libp2p has upgraded the connection, shortly after `machineId` is known. */
  held: AdmittedConnection | null
  /** This side closed it to make space, so its end is not a violation. */
  dropped: boolean
}

/**
 * Decides which connections may be made and may stay. Only Ed25519 machines that are not refused may connect, within the rate of their
 * source. Unlisted ones must leave slots for known machines and for one another. When slots are short, the agent or host with most
 * connections loses one. Any address may be dialled, also loopback, because a card may name any. `mayDial` decides which machines may be
 * dialled.
 */
export class ConnectionGate implements ConnectionGater {
  readonly #view: GateView
  readonly #reach: GateComponents['reach']
  readonly #shares: GateComponents['shares']
  readonly #acceptsUnlisted: boolean
  readonly #max: number
  /** By `timeline`, oldest first. */
  readonly #guests = new Map<object, Guest>()
  readonly #hosts: KnownHosts
  readonly #refusals = Object.fromEntries(REFUSALS.map((reason) => [reason, 0])) as Record<Refusal, number>
  /** Cache of `outsideHosts()`, or null when a connection has opened, closed or been proven since. */
  #outsideHosts: number | null = null

  /** `connections` is the maximum number at once. */
  constructor(components: GateComponents, init: { acceptsUnlisted: boolean; connections?: number | undefined }) {
    this.#view = components.view
    this.#hosts = new KnownHosts(components.view)
    this.#reach = components.reach
    this.#shares = components.shares
    this.#acceptsUnlisted = init.acceptsUnlisted
    this.#max = init.connections ?? MAX_CONNECTIONS
  }

  /** Refused connections by reason, for `/diagnostics/mesh`. */
  get refusals(): Readonly<Record<Refusal, number>> {
    return { ...this.#refusals }
  }

  /** Number of hosts with an inbound connection that is unlisted or not proven yet. */
  outsideHosts(): number {
    this.#outsideHosts ??= this.#countByHost(({ machineId }) => machineId === null || !this.#view.isKnown(machineId)).size
    return this.#outsideHosts
  }

  /** Records the host of a known machine, so that connections from there keep their own share, see `Sources.mayConnect`. */
  remember(host: string, machineId: MachineId): void {
    this.#hosts.add(host, machineId)
  }

  /** Contacts, ACL or bootstrap list have changed. For `listed`, see `AddressBook.listedHosts`. */
  reviewHosts(listed: ReadonlySet<string>): void {
    this.#hosts.review((machineId) => this.#view.isKnown(machineId), listed)
    this.#outsideHosts = null
  }

  /** libp2p has upgraded the inbound connection with this timeline. */
  opened(timeline: object, held: AdmittedConnection): void {
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
    return machineId === null || !this.#reach.mayReserve(machineId)
  }

  denyOutboundRelayedConnection(source: PeerId, destination: PeerId): boolean {
    const [from, to] = [machineIdOf(source), machineIdOf(destination)]
    return from === null || to === null || !this.#reach.mayCarry(from, to)
  }

  /** Called before Noise, when only the address is known. */
  denyInboundConnection(connection: InboundConnection): boolean {
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

  /** Called after Noise has proven the machine. */
  denyInboundEncryptedConnection(peer: PeerId, connection: InboundConnection): boolean {
    const machineId = machineIdOf(peer)
    const guest = this.#guests.get(connection.timeline)
    if (machineId === null || guest === undefined) return this.#refuse('no_machine')
    guest.machineId = machineId
    this.#outsideHosts = null
    if (this.#view.isRefused(machineId, guest.host)) return this.#refuse('penalty')
    const isUnlisted = this.#isUnlisted(guest)
    if (isUnlisted && !this.#acceptsUnlisted) return this.#refuse('stranger')
    const reason = isUnlisted ? this.#noRoomFor(guest) : null
    if (reason !== null) return this.#refuse(reason)
    this.#dropOldestOf(machineId, this.#shares.agentOf(machineId) === null ? MAX_CONNECTIONS_PER_UNLISTED : MAX_CONNECTIONS_PER_MACHINE)
    if (!this.#makesRoomFor(guest)) return this.#refuse('all_full')
    if (!isUnlisted) this.remember(guest.host, machineId)
    return false
  }

  /** When the slots of unlisted machines are full, the host with most of them loses an idle connection, or else its oldest. It loses a connection in use only to a host with fewer. */
  #noRoomFor(newcomer: Guest): Refusal | null {
    const here = this.#countByHost((guest) => this.#isUnlisted(guest))
    const mine = here.get(newcomer.host) ?? 0
    if (mine > (isBehindRelay(newcomer.host) ? MAX_UNLISTED_PER_RELAY : MAX_UNLISTED_PER_HOST)) return 'host_full'
    const all = [...here.values()].reduce(
      (sum, count) => sum + count,
      this.#view.dialled().filter((one) => !this.#view.isKnown(one)).length,
    )
    if (all <= MAX_UNLISTED_CONNECTIONS) return null
    const [, most] = fullestOf(here)
    const crowded = [...this.#guests.values()].filter((one) => one !== newcomer && this.#isUnlisted(one) && here.get(one.host) === most)
    const leaving = crowded.find(({ held }) => held?.idle === true) ?? (mine < most ? crowded[0] : undefined)
    if (leaving === undefined) return 'full'
    this.#drop(leaving)
    return null
  }

  /**
   * When all slots are taken, the agent or host with most connections loses one, preferably an idle one. A listed machine (named by a pin
   * or the ACL) always gets it, and loses one only to another listed machine. Others get it if their agent or host has fewer.
   */
  #makesRoomFor(newcomer: Guest): boolean {
    const proven = [...this.#guests.values()].filter(({ machineId }) => machineId !== null)
    if (proven.length + this.#view.dialled().length <= this.#max) return true
    const listed = this.#isPinned(newcomer)
    const ordinary = proven.filter((guest) => !this.#isPinned(guest))
    const candidates = listed && ordinary.length === 0 ? proven : ordinary
    const shares = countBy(candidates, (guest) => this.#holderOf(guest))
    const [holder, most] = fullestOf(shares)
    const crowded = candidates.filter((guest) => guest !== newcomer && this.#holderOf(guest) === holder)
    const mayTakeBusy = listed || (shares.get(this.#holderOf(newcomer)) ?? 0) < most
    const leaving = crowded.find(({ held }) => held?.idle === true) ?? (mayTakeBusy ? crowded[0] : undefined)
    if (leaving === undefined) return false
    this.#refusals.all_full += 1
    this.#drop(leaving)
    return true
  }

  /** The agent that the machine has proven, or else its host. */
  #holderOf({ machineId, host }: Guest): string {
    return this.#shares.agentOf(machineId!) ?? host
  }

  #isPinned({ machineId }: Guest): boolean {
    return machineId !== null && this.#view.isPinned(machineId)
  }

  /** A machine that has restarted may have left dead connections. */
  #dropOldestOf(machineId: MachineId, limit: number): void {
    const own = [...this.#guests.values()].filter((guest) => guest.machineId === machineId)
    // Aborted below `MeshConnection`, so that `givenUp` stays false. A handshake that breaks off then counts as the machine's own
    // violation.
    if (own.length > limit) this.#drop(own[0]!, own[0]!.incoming)
  }

  /** Above `MAX_UNPROVEN_CONNECTIONS` the fullest host loses its oldest unproven connection. `KnownHosts` come last, because a known machine may be about to prove itself there. */
  #makeRoomForUnproven(): void {
    const unproven = [...this.#guests.values()].filter(({ machineId }) => machineId === null)
    if (unproven.length <= MAX_UNPROVEN_CONNECTIONS) return
    const outside = unproven.filter(({ host }) => !this.#hosts.has(host))
    const candidates = outside.length > 0 ? outside : unproven
    const [fullest] = fullestOf(countBy(candidates, hostOfGuest))
    const oldest = candidates.find(({ host }) => host === fullest)
    if (oldest !== undefined) this.#drop(oldest)
  }

  #drop(guest: Guest, end: Pick<AdmittedConnection, 'abort'> = guest.held ?? guest.incoming): void {
    guest.dropped = true
    this.#forget(guest)
    end.abort(new AppError('rate_limited', 'another connection needed its slot'))
  }

  #forget({ incoming }: Guest): void {
    this.#guests.delete(incoming.timeline)
    this.#outsideHosts = null
  }

  #refuse(reason: Refusal): true {
    this.#refusals[reason] += 1
    return true
  }

  #isUnlisted({ machineId }: Guest): boolean {
    return machineId !== null && !this.#view.isKnown(machineId)
  }

  #countByHost(counts: (guest: Guest) => boolean): Map<string, number> {
    return countBy([...this.#guests.values()].filter(counts), hostOfGuest)
  }
}

const hostOfGuest = ({ host }: Guest): string => host

const countBy = (guests: readonly Guest[], holderOf: (guest: Guest) => string): Map<string, number> => {
  const counts = new Map<string, number>()
  for (const guest of guests) counts.set(holderOf(guest), (counts.get(holderOf(guest)) ?? 0) + 1)
  return counts
}

const fullestOf = (counts: ReadonlyMap<string, number>): [string, number] => {
  let fullest: [string, number] = ['', 0]
  for (const one of counts) if (one[1] > fullest[1]) fullest = one
  return fullest
}
