import type { Connection, Stream } from '@libp2p/interface'
import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_STREAMS_PER_CONNECTION } from '../protocol/limits/wire.ts'
import { hostOf, relayOfText } from './addresses.ts'
import { roundTripOf } from './libp2p/heartbeat.ts'
import { isEarlyProtocol, openProposed, trafficMeterOf } from './libp2p/muxer.ts'
import type { Traffic, TrafficMeter } from './libp2p/traffic.ts'
import { MeshStream } from './stream.ts'

/** A connection on which something came within this time is not silent, whichever run waits for an answer. */
const QUIET_AFTER_MS = 1_000
/** A stranger's connection on which nothing of use came for so long goes first where places are short. */
export const IDLE_CONNECTION_MS = 60_000

/** A Noise session with one machine. */
export class MeshConnection {
  /** What the handshake proved. */
  readonly machineId: MachineId
  readonly inbound: boolean
  /** The peer's address as text. */
  readonly address: string
  /** What budgets per address count by. */
  readonly host: string
  /** The relay that carries it; null: nobody stands between. What the handshake proved is true either way. */
  readonly relay: MachineId | null
  /** How it ended, in words; null while it lives. */
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
    // libp2p's hole punching ends the relayed connection as soon as there is another, with all that runs on it: see `DirectUpgrades`.
    if (this.relay !== null) components.connection.close = async () => undefined
    this.#meter = trafficMeterOf(components.connection)
  }

  /** What the peer has sent so far. */
  get received(): Readonly<Traffic> | null {
    return this.#meter?.total ?? null
  }

  /** No byte came on a stream of our own protocols for a minute. Streams of libp2p itself (identify, gossipsub) do not count. */
  get idle(): boolean {
    return this.unusedFor(IDLE_CONNECTION_MS)
  }

  /** We have ended the connection ourselves, so a handshake that fails by that is not held against the peer. */
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

  /** Nothing came on a stream of our own protocols for so many milliseconds. */
  unusedFor(ms: number): boolean {
    return this.silentMs >= ms
  }

  /** Milliseconds since the last data on a stream of our own protocols, or since the connection opened. */
  get silentMs(): number {
    return this.#clock.monotonic() - this.#heardAt
  }

  /** Grows with whatever comes on one of our streams. */
  get heard(): number {
    return this.#heard
  }

  /** Nothing came for a while. A slow connection still brings bytes, so only a quiet one may be taken for dead. */
  get quiet(): boolean {
    return this.unusedFor(QUIET_AFTER_MS)
  }

  noteHeard(): void {
    this.#heard += 1
    this.#heardAt = this.#clock.monotonic()
  }

  /** The last measured round trip in milliseconds; null before the first. */
  get rttMs(): number | null {
    return roundTripOf(this.#connection)
  }

  /** Opens a stream; for our own protocols without waiting for the peer's agreement. */
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

  /** Ends the connection and every stream of it at once. */
  abort(reason: Error): void {
    this.#givenUp ||= this.open
    this.ended ??= `given up here: ${errorText(reason)}`
    this.#connection.abort(reason)
  }

  async #newStream(protocol: string, signal: AbortSignal): Promise<Stream> {
    return this.#connection.newStream(protocol, {
      signal,
      maxOutboundStreams: MAX_STREAMS_PER_CONNECTION,
      // A relay says how much it carries; what that ends, a run resumes over the next connection.
      runOnLimitedConnection: true,
    })
  }

  /** Those that we have opened. */
  #streamsOf(protocol: string): number {
    return this.#connection.streams.filter((one) => one.direction === 'outbound' && one.protocol === protocol).length
  }
}
