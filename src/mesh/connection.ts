import type { Connection, Stream } from '@libp2p/interface'
import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_STREAMS_PER_CONNECTION } from '../protocol/limits/wire.ts'
import { hostOf, relayOfText, machineIdOf } from './addresses.ts'
import { roundTripOf } from './libp2p/heartbeat.ts'
import { isEarlyProtocol, openProposed, trafficMeterOf } from './libp2p/muxer.ts'
import type { Traffic, TrafficMeter } from './libp2p/traffic.ts'
import { MeshStream } from './stream.ts'

/** A connection with data within this time is not quiet, even if a run waits for an answer. */
const QUIET_AFTER_MS = 1_000
/** An unlisted peer's connection without useful data for this time is closed first when slots are short. */
export const IDLE_CONNECTION_MS = 60_000

/** A Noise session with one machine. */
export class MeshConnection {
  /** Proven by the handshake. */
  readonly machineId: MachineId
  readonly inbound: boolean
  readonly address: string
  /** Host by which rate limits count it. */
  readonly host: string
  /** The relay that carries it, or null if it is direct. The machine is proven in both cases. */
  readonly relay: MachineId | null
  /** How the connection ended, or null while it is open. */
  ended: string | null = null
  readonly #connection: Connection
  readonly #clock: Pick<Clock, 'monotonic'>
  #heard = 0
  #heardAt: number
  #givenUp = false
  readonly #meter: TrafficMeter | null

  constructor(components: { connection: Connection; clock: Pick<Clock, 'monotonic'> }, init: { machineId: MachineId }) {
    this.#connection = components.connection
    this.#clock = components.clock
    this.#heardAt = components.clock.monotonic()
    this.machineId = init.machineId
    this.inbound = components.connection.direction === 'inbound'
    this.address = components.connection.remoteAddr.toString()
    this.host = hostOf(components.connection.remoteAddr)
    this.relay = relayOfText(this.address)
    // libp2p's hole punching would close the relayed connection, with its runs, as soon as there is a direct one. `DirectUpgrades` closes
    // it later.
    if (this.relay !== null) components.connection.close = async () => undefined
    this.#meter = trafficMeterOf(components.connection)
  }

  /** Traffic that the peer has sent so far. */
  get received(): Readonly<Traffic> | null {
    return this.#meter?.total ?? null
  }

  /** No byte came on a stream of x0x's own protocols for a minute. Streams of libp2p (identify, gossipsub) do not count. */
  get idle(): boolean {
    return this.unusedFor(IDLE_CONNECTION_MS)
  }

  /** This side has ended the connection, so a failed handshake is not a violation of the peer. */
  get givenUp(): boolean {
    return this.#givenUp
  }

  /** See `TrafficMeter.charge`. */
  meter(charge: (traffic: Traffic) => boolean): void {
    if (this.#meter === null) throw new TypeError('the connection has no meter')
    this.#meter.charge = charge
  }

  get open(): boolean {
    return this.#connection.status === 'open'
  }

  get openedAtMs(): number {
    return this.#connection.timeline.open
  }

  /** Whether the streams of x0x's own protocols were silent for this time. */
  unusedFor(ms: number): boolean {
    return this.silentMs >= ms
  }

  /** Milliseconds since the last data on a stream of x0x's own protocols, or since the connection opened. */
  get silentMs(): number {
    return this.#clock.monotonic() - this.#heardAt
  }

  /** Changes with every message on one of these streams. */
  get heard(): number {
    return this.#heard
  }

  /** No byte came for a second. A slow connection still brings bytes, so only a quiet one may be considered dead. */
  get quiet(): boolean {
    return this.unusedFor(QUIET_AFTER_MS)
  }

  noteHeard(): void {
    this.#heard += 1
    this.#heardAt = this.#clock.monotonic()
  }

  /** The last measured round trip in milliseconds, or null before the first. */
  get rttMs(): number | null {
    return roundTripOf(this.#connection)
  }

  /** Opens a stream. For x0x's own protocols it does not wait for the negotiation. */
  async openStream(protocol: string, signal: AbortSignal): Promise<MeshStream> {
    const early = isEarlyProtocol(protocol)
    if (this.#streamsOf(protocol) >= MAX_STREAMS_PER_CONNECTION)
      throw new AppError('rate_limited', `${MAX_STREAMS_PER_CONNECTION} streams to this peer are open already`)
    try {
      const stream = early ? await openProposed(this.#connection, protocol) : await this.#newStream(protocol, signal)
      return new MeshStream({ stream, connection: this }, { early })
    } catch (error) {
      throw new AppError('peer_unreachable', `no stream to the peer: ${errorText(error)}`, { cause: error })
    }
  }

  /** Ends the connection and all its streams at once. */
  abort(reason: Error): void {
    this.#givenUp ||= this.open
    this.ended ??= `stopped by this machine: ${errorText(reason)}`
    this.#connection.abort(reason)
  }

  async #newStream(protocol: string, signal: AbortSignal): Promise<Stream> {
    return this.#connection.newStream(protocol, {
      signal,
      maxOutboundStreams: MAX_STREAMS_PER_CONNECTION,
      // A relay limits the bytes that it carries. A run resumes on the next connection.
      runOnLimitedConnection: true,
    })
  }

  /** Number of streams that this side opened. */
  #streamsOf(protocol: string): number {
    return this.#connection.streams.filter((one) => one.direction === 'outbound' && one.protocol === protocol).length
  }
}

export interface OpenConnectionsInit {
  /** Returns false if the connection exceeded a limit and ends. */
  maySend(connection: MeshConnection, traffic: Traffic): boolean
  /** Called once per connection, before any other use. */
  onOpened(connection: Connection, wrapped: MeshConnection): void
}

/** The open connections of this machine, each with the machine at its other end. */
export class OpenConnections {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #init: OpenConnectionsInit
  readonly #all = new Map<Connection, MeshConnection>()
  readonly #byMachine = new Map<MachineId, readonly MeshConnection[]>()
  readonly #onDisconnected = new Set<(connection: MeshConnection) => void>()

  constructor(components: { clock: Pick<Clock, 'monotonic'> }, init: OpenConnectionsInit) {
    this.#clock = components.clock
    this.#init = init
  }

  all(): MeshConnection[] {
    return [...this.#all.values()].filter((connection) => connection.open)
  }

  /** Oldest first. */
  to(machineId: MachineId): MeshConnection[] {
    return (this.#byMachine.get(machineId) ?? []).filter((connection) => connection.open)
  }

  onDisconnected(listener: (connection: MeshConnection) => void): void {
    this.#onDisconnected.add(listener)
  }

  abort(reason: AppError): void {
    for (const connection of this.#all.keys()) connection.abort(reason)
  }

  /** Null for a peer without a MachineId, whose connection is closed. */
  wrap(connection: Connection): MeshConnection | null {
    const known = this.#all.get(connection)
    if (known !== undefined) return known
    const machineId = machineIdOf(connection.remotePeer)
    if (machineId === null) {
      connection.abort(new AppError('peer_rejected', 'only Ed25519 machines'))
      return null
    }
    const wrapped = new MeshConnection({ connection, clock: this.#clock }, { machineId })
    wrapped.meter((traffic) => this.#init.maySend(wrapped, traffic))
    if (connection.status !== 'open') return wrapped
    this.#init.onOpened(connection, wrapped)
    this.#all.set(connection, wrapped)
    this.#byMachine.set(machineId, [...(this.#byMachine.get(machineId) ?? []), wrapped])
    connection.addEventListener('close', ({ error }) => {
      wrapped.ended ??= error === undefined ? 'ended by the other machine' : `lost: ${errorText(error)}`
      this.#forget(connection, wrapped)
    })
    return wrapped
  }

  #forget(connection: Connection, wrapped: MeshConnection): void {
    const { machineId } = wrapped
    this.#all.delete(connection)
    const others = (this.#byMachine.get(machineId) ?? []).filter((one) => one !== wrapped)
    if (others.length === 0) this.#byMachine.delete(machineId)
    else this.#byMachine.set(machineId, others)
    for (const listener of this.#onDisconnected) listener(wrapped)
  }
}
