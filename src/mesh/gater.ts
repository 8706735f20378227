import type { ConnectionGater, MultiaddrConnection, PeerId } from '@libp2p/interface'

import { AppError } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_STRANGER_CONNECTIONS } from '../protocol/limits.ts'
import {
  MAX_CONNECTIONS_PER_MACHINE,
  MAX_CONNECTIONS_PER_STRANGER,
  MAX_REMEMBERED_HOSTS,
  MAX_STRANGERS_PER_HOST,
  MAX_UNPROVEN_CONNECTIONS,
} from '../protocol/meter-limits.ts'
import { hostOf } from './addresses.ts'
import { machineIdOf } from './peer-ids.ts'

/** What the gate must know of the mesh. */
export interface GateView {
  isKnown(machineId: MachineId): boolean
  /** Too many offences of late, of this machine or of strangers from this host. */
  isRefused(machineId: MachineId, host: string): boolean
  /** Whether one more connection may come from there now. `known`: machines that we know come from there. */
  mayBegin(host: string, known: boolean): boolean
  /** A connection of this host ended before it had said who it is. */
  onUnfinished(host: string): void
  /** Ends the oldest connection of a stranger there that is of no use; false when there is none. */
  endIdle(host: string): boolean
  /** Strangers that we have dialled ourselves. */
  strangersDialled(): number
}

/** Why connections were refused. */
const REFUSALS = ['too_fast', 'no_machine', 'penalty', 'stranger', 'host_full', 'full'] as const
type Refusal = (typeof REFUSALS)[number]

/** An inbound connection, from before its first byte until it is closed. */
interface Guest {
  readonly host: string
  /** Null until Noise has proven it. */
  machineId: MachineId | null
  /** We gave it up ourselves. */
  dropped: boolean
}

/** What is touched of a connection that comes in. */
export type Incoming = Pick<MultiaddrConnection, 'remoteAddr' | 'addEventListener' | 'abort'>

/**
 * Who may come in and stay: Ed25519 machines only, none that is refused for its offences, each source as fast as it
 * may, and strangers only while they leave room for those we know and for one another. Where places are short, the
 * host that has most of them loses one. Dialling is free, loopback included: a card may name any address.
 */
export class Gate implements ConnectionGater {
  readonly #view: GateView
  readonly #strangers: boolean
  readonly #guests = new Map<Incoming, Guest>()
  /** Hosts from which machines came that we know, the latest last. */
  readonly #hosts = new Set<string>()
  readonly #refusals = Object.fromEntries(REFUSALS.map((reason) => [reason, 0])) as Record<Refusal, number>

  /** `strangers`: whether machines may stay that nobody names. */
  constructor(components: { view: GateView }, init: { strangers: boolean }) {
    this.#view = components.view
    this.#strangers = init.strangers
  }

  /** Connections refused so far, by reason, for `/diagnostics/mesh`. */
  get refusals(): Readonly<Record<Refusal, number>> {
    return { ...this.#refusals }
  }

  /** Hosts of which strangers are here now. */
  strangerHosts(): number {
    return this.#countByHost((guest) => this.#isStranger(guest)).size
  }

  /** Machines that we know are there: whoever comes from there may be one of them. */
  remember(host: string): void {
    this.#hosts.delete(host)
    this.#hosts.add(host)
    if (this.#hosts.size > MAX_REMEMBERED_HOSTS) this.#hosts.delete(this.#hosts.keys().next().value!)
  }

  denyDialMultiaddr(): boolean {
    return false
  }

  /** Before Noise, when only the address is known. */
  denyInboundConnection(connection: Incoming): boolean {
    const host = hostOf(connection.remoteAddr)
    const known = this.#hosts.has(host)
    if (!this.#view.mayBegin(host, known)) return this.#refuse('too_fast')
    const guest: Guest = { host, machineId: null, dropped: false }
    this.#guests.set(connection, guest)
    connection.addEventListener('close', () => {
      this.#guests.delete(connection)
      if (guest.machineId === null && !guest.dropped) this.#view.onUnfinished(host)
    })
    this.#makeRoomForUnproven()
    return false
  }

  /** Once Noise has proven the machine. */
  denyInboundEncryptedConnection(peer: PeerId, connection: Incoming): boolean {
    const host = hostOf(connection.remoteAddr)
    const machineId = machineIdOf(peer)
    const guest = this.#guests.get(connection)
    if (machineId === null || guest === undefined) return this.#refuse('no_machine')
    guest.machineId = machineId
    if (this.#view.isRefused(machineId, host)) return this.#refuse('penalty')
    const stranger = this.#isStranger(guest)
    if (stranger && !this.#strangers) return this.#refuse('stranger')
    const reason = stranger ? this.#noRoomFor(guest) : null
    if (reason !== null) return this.#refuse(reason)
    this.#dropOldestOf(machineId, stranger ? MAX_CONNECTIONS_PER_STRANGER : MAX_CONNECTIONS_PER_MACHINE)
    if (!stranger) this.remember(host)
    return false
  }

  #noRoomFor({ host }: Guest): Refusal | null {
    const here = this.#countByHost((guest) => this.#isStranger(guest))
    const mine = here.get(host) ?? 0
    if (mine > MAX_STRANGERS_PER_HOST) return 'host_full'
    const all = [...here.values()].reduce((sum, count) => sum + count, this.#view.strangersDialled())
    if (all <= MAX_STRANGER_CONNECTIONS) return null
    const [fullest, most] = fullestOf(here)
    return mine < most && this.#view.endIdle(fullest) ? null : 'full'
  }

  /** A peer that has restarted may have left connections behind that nobody has found dead yet. */
  #dropOldestOf(machineId: MachineId, limit: number): void {
    const own = [...this.#guests].filter(([, guest]) => guest.machineId === machineId)
    if (own.length > limit) this.#drop(...own[0]!)
  }

  #makeRoomForUnproven(): void {
    const unproven = this.#countByHost(({ machineId }) => machineId === null)
    if ([...unproven.values()].reduce((sum, count) => sum + count, 0) <= MAX_UNPROVEN_CONNECTIONS) return
    const [fullest] = fullestOf(unproven)
    const oldest = [...this.#guests].find(([, guest]) => guest.machineId === null && guest.host === fullest)
    if (oldest !== undefined) this.#drop(...oldest)
  }

  #drop(connection: Incoming, guest: Guest): void {
    guest.dropped = true
    this.#guests.delete(connection)
    connection.abort(new AppError('rate_limited', 'its place was needed'))
  }

  #refuse(reason: Refusal): true {
    this.#refusals[reason] += 1
    return true
  }

  #isStranger({ machineId }: Guest): boolean {
    return machineId !== null && !this.#view.isKnown(machineId)
  }

  #countByHost(counts: (guest: Guest) => boolean): Map<string, number> {
    const hosts = new Map<string, number>()
    for (const guest of this.#guests.values()) if (counts(guest)) hosts.set(guest.host, (hosts.get(guest.host) ?? 0) + 1)
    return hosts
  }
}

const fullestOf = (hosts: ReadonlyMap<string, number>): [string, number] => {
  let fullest: [string, number] = ['', 0]
  for (const [host, count] of hosts) if (count > fullest[1]) fullest = [host, count]
  return fullest
}
