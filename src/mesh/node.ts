import { type Message, TopicValidatorResult } from '@libp2p/gossipsub'
import type { Connection, Libp2p, PeerId } from '@libp2p/interface'
import { createLibp2p } from 'libp2p'

import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { MachineKey } from '../identity/machine-key.ts'
import { shortId, type MachineId } from '../protocol/ids.ts'
import { MAX_STREAMS_PER_CONNECTION, PEER_STORE_SWEEP_MS } from '../protocol/limits.ts'
import { MeshConnection } from './connection.ts'
import { forgetGonePeers } from './forget-peers.ts'
import { Dialler } from './dialler.ts'
import { connectionGate } from './gater.ts'
import { libp2pOptions, type MeshServices } from './libp2p-options.ts'
import { listenError } from './listen-error.ts'
import { machineIdOf } from './peer-ids.ts'
import { Penalties, type Offence, type PenaltyJson } from './penalties.ts'
import { MeshStream } from './stream.ts'

export interface MeshNodeComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly machineKey: MachineKey
  readonly log: Logger
}

export interface MeshNodeInit {
  /** Multiaddrs to listen on, such as `/ip4/0.0.0.0/tcp/0`. */
  readonly listen: readonly string[]
  /** Addresses to tell others beside those we listen on, such as that of a port forward. */
  readonly announce?: readonly string[]
  /** Look for peers on the local network. */
  readonly mdns: boolean
}

export type StreamHandler = (connection: MeshConnection, stream: MeshStream) => void
/** What becomes of an announcement: used and passed on, dropped, or held against who sent it. */
export type Verdict = 'accept' | 'ignore' | 'reject'
/** `publisher` signed the message with its machine key; `neighbour` brought it. */
export type TopicValidator = (data: Uint8Array, publisher: MachineId, neighbour: string) => Verdict

const VERDICTS = { accept: TopicValidatorResult.Accept, ignore: TopicValidatorResult.Ignore, reject: TopicValidatorResult.Reject }

/**
 * This machine on the mesh: listens, dials, carries streams and announcements. Everything above speaks
 * of machines and streams; libp2p stays in this folder.
 */
export class MeshNode implements Startable {
  /** Which machines the contacts or the ACL name: they go before strangers. */
  isKnown: (machineId: MachineId) => boolean = () => false
  readonly #machineKey: MachineKey
  readonly #log: Logger
  readonly #penalties: Penalties
  readonly #init: MeshNodeInit
  readonly #handlers = new Map<string, StreamHandler>()
  readonly #connections = new Map<Connection, MeshConnection>()
  readonly #byMachine = new Map<MachineId, readonly MeshConnection[]>()
  readonly #onConnected = new Set<(connection: MeshConnection) => void>()
  readonly #onDisconnected = new Set<(connection: MeshConnection) => void>()
  readonly #onFound = new Set<(machineId: MachineId, addresses: string[]) => void>()
  #libp2p: Libp2p<MeshServices> | null = null
  #dialler: Dialler | null = null
  #topics = new Map<string, TopicValidator>()
  #onNeighbour: (topic: string) => void = () => undefined
  #sweep: NodeJS.Timeout | undefined

  constructor(components: MeshNodeComponents, init: MeshNodeInit) {
    this.#machineKey = components.machineKey
    this.#log = components.log
    this.#penalties = new Penalties(components)
    this.#init = init
  }

  get machineId(): MachineId {
    return this.#machineKey.machineId
  }

  get listening(): boolean {
    return this.#libp2p !== null
  }

  async start(): Promise<void> {
    const gater = connectionGate({
      isKnown: (machineId) => this.isKnown(machineId),
      strangerConnections: () => this.strangerConnections(),
      isRefused: (machineId, host) => this.refuses({ machineId, host }),
    })
    const options = await libp2pOptions({
      seed: this.#machineKey.seed,
      listen: this.#init.listen,
      announce: this.#init.announce ?? [],
      mdns: this.#init.mdns,
      gater,
    })
    const libp2p = await createLibp2p(options)
    this.#watch(libp2p)
    for (const [protocol, handler] of this.#handlers) await this.#register(libp2p, protocol, handler)
    this.#libp2p = libp2p
    this.#dialler = new Dialler({ dial: async (address, options) => libp2p.dial(address, options) })
    try {
      await libp2p.start()
    } catch (error) {
      this.#libp2p = null
      throw listenError(this.#init.listen, error)
    }
    for (const [topic, validator] of this.#topics) this.#join(libp2p, topic, validator)
    this.#sweep = setInterval(() => void forgetGonePeers(libp2p).catch(() => undefined), PEER_STORE_SWEEP_MS).unref()
  }

  async stop(): Promise<void> {
    const libp2p = this.#libp2p
    this.#libp2p = null
    this.#dialler = null
    clearInterval(this.#sweep)
    for (const connection of this.#connections.keys()) connection.abort(new AppError('shutting_down'))
    await libp2p?.stop()
  }

  /** Where others can reach us, each ending in our `/p2p/…`; empty before the start. */
  addresses(): string[] {
    return this.#libp2p?.getMultiaddrs().map((address) => address.toString()) ?? []
  }

  connections(): MeshConnection[] {
    return [...this.#connections.values()].filter((connection) => connection.open)
  }

  connectionsTo(machineId: MachineId): MeshConnection[] {
    return (this.#byMachine.get(machineId) ?? []).filter((connection) => connection.open)
  }

  strangerConnections(): number {
    return this.connections().filter((one) => !this.isKnown(one.machineId)).length
  }

  /** Something that this peer did cost us work for nothing; a source that does so again and again is refused for a while. */
  penalise(connection: MeshConnection, offence: Offence): void {
    const source = this.#sourceOf(connection)
    if (!this.#penalties.add(source, offence)) return
    this.#log.info({ source, offence }, 'a source is refused for a while')
    const reason = new AppError('rate_limited', 'too many offences')
    for (const other of this.connections()) if (this.#sourceOf(other) === source) other.abort(reason)
  }

  refuses(peer: Pick<MeshConnection, 'machineId' | 'host'>): boolean {
    return this.#penalties.refuses(this.#sourceOf(peer))
  }

  /** For `/diagnostics/mesh`. */
  penalties(): PenaltyJson[] {
    return this.#penalties.list()
  }

  /** Answers streams of a protocol; before the start, so that none is missed. */
  handle(protocol: string, handler: StreamHandler): void {
    if (this.#libp2p !== null) throw new TypeError('handlers are set before the start')
    this.#handlers.set(protocol, handler)
  }

  /** Joins a topic; before the start. `onNeighbour` is called when a neighbour has joined it. */
  joinTopic(topic: string, validator: TopicValidator, onNeighbour: () => void): void {
    if (this.#libp2p !== null) throw new TypeError('topics are joined before the start')
    this.#topics.set(topic, validator)
    const before = this.#onNeighbour
    this.#onNeighbour = (joined) => (joined === topic ? onNeighbour() : before(joined))
  }

  onConnected(listener: (connection: MeshConnection) => void): void {
    this.#onConnected.add(listener)
  }

  onDisconnected(listener: (connection: MeshConnection) => void): void {
    this.#onDisconnected.add(listener)
  }

  /** A machine was found on the local network, or has connected from anywhere for the first time. Nothing of it is proven. */
  onFound(listener: (machineId: MachineId, addresses: string[]) => void): void {
    this.#onFound.add(listener)
  }

  async publish(topic: string, data: Uint8Array): Promise<void> {
    await this.#libp2p?.services.pubsub.publish(topic, data)
  }

  /**
   * A connection to this machine: the one there is, or the first address that answers, beginning with the one that
   * did the last time: a connection that was lost comes back without waiting for an address that is old. Throws
   * `peer_unreachable` with `data.addresses`: every address tried and what came of it.
   */
  async dial(machineId: MachineId, addresses: readonly string[], signal: AbortSignal): Promise<MeshConnection> {
    // The newest: an older one may be what is left of a peer that has restarted.
    const existing = this.connectionsTo(machineId).at(-1)
    if (existing !== undefined) return existing
    const dialler = this.#dialler
    if (dialler === null) throw new AppError('shutting_down', 'the mesh is not running')
    const connection = this.#wrap(await dialler.dial(machineId, addresses, signal))
    if (connection === null) throw new AppError('peer_rejected', 'only Ed25519 machines')
    return connection
  }

  /** Machines that we know answer for themselves, wherever they are; strangers for all strangers of their host. */
  #sourceOf({ machineId, host }: { machineId: MachineId; host: string }): string {
    return this.isKnown(machineId) ? machineId : host
  }

  #watch(libp2p: Libp2p<MeshServices>): void {
    libp2p.addEventListener('connection:open', (event) => {
      const connection = this.#wrap(event.detail)
      if (connection !== null) for (const listener of this.#onConnected) listener(connection)
    })
    libp2p.addEventListener('peer:discovery', (event) => {
      const machineId = machineIdOf(event.detail.id)
      if (machineId === null || machineId === this.machineId) return
      const peer = `/p2p/${event.detail.id.toString()}`
      const addresses = event.detail.multiaddrs.map(String).map((text) => (text.endsWith(peer) ? text : text + peer))
      for (const listener of this.#onFound) listener(machineId, addresses)
    })
  }

  /** Null for a peer without a MachineId, whose connection is ended. */
  #wrap(connection: Connection): MeshConnection | null {
    const known = this.#connections.get(connection)
    if (known !== undefined) return known
    const machineId = machineIdOf(connection.remotePeer)
    if (machineId === null) {
      connection.abort(new AppError('peer_rejected', 'only Ed25519 machines'))
      return null
    }
    const wrapped = new MeshConnection({ connection }, { machineId })
    if (connection.status !== 'open') return wrapped
    this.#connections.set(connection, wrapped)
    this.#byMachine.set(machineId, [...(this.#byMachine.get(machineId) ?? []), wrapped])
    connection.addEventListener('close', ({ error }) => {
      wrapped.ended ??= error === undefined ? 'ended by the other side' : `lost: ${errorText(error)}`
      this.#forget(connection, wrapped)
    })
    return wrapped
  }

  #forget(connection: Connection, wrapped: MeshConnection): void {
    const { machineId } = wrapped
    this.#connections.delete(connection)
    const others = (this.#byMachine.get(machineId) ?? []).filter((one) => one !== wrapped)
    if (others.length === 0) this.#byMachine.delete(machineId)
    else this.#byMachine.set(machineId, others)
    for (const listener of this.#onDisconnected) listener(wrapped)
  }

  async #register(libp2p: Libp2p<MeshServices>, protocol: string, handler: StreamHandler): Promise<void> {
    const answer = (stream: Parameters<Parameters<Libp2p['handle']>[1]>[0], connection: Connection): void => {
      const wrapped = this.#wrap(connection)
      if (wrapped !== null) handler(wrapped, new MeshStream({ stream, connection: wrapped }, { early: false }))
    }
    await libp2p.handle(protocol, answer, {
      maxInboundStreams: MAX_STREAMS_PER_CONNECTION,
      maxOutboundStreams: MAX_STREAMS_PER_CONNECTION,
    })
  }

  #join(libp2p: Libp2p<MeshServices>, topic: string, validator: TopicValidator): void {
    const pubsub = libp2p.services.pubsub
    pubsub.topicValidators.set(topic, (peer: PeerId, message: Message) => {
      const publisher = message.type === 'signed' ? machineIdOf(message.from) : null
      return publisher === null ? TopicValidatorResult.Reject : VERDICTS[validator(message.data, publisher, peer.toString())]
    })
    pubsub.addEventListener('subscription-change', (event) => {
      for (const change of event.detail.subscriptions) if (change.subscribe) this.#onNeighbour(change.topic)
    })
    pubsub.subscribe(topic)
    this.#log.debug({ topic, machine: shortId(this.machineId) }, 'joined')
  }
}
