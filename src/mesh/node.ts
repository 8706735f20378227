import type { Connection, Libp2p } from '@libp2p/interface'
import { createLibp2p } from 'libp2p'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { MachineKey } from '../identity/machine-key.ts'
import type { MachineId } from '../protocol/ids.ts'
import type { Metered, PeerClass } from '../protocol/limits/mesh.ts'
import { MAX_CARD_ADDRESSES, MAX_STREAMS_PER_CONNECTION } from '../protocol/limits/wire.ts'
import { AgentShares } from './agent-shares.ts'
import type { MeshConnection } from './connection.ts'
import type { RecordValidator } from './dht-record.ts'
import { type DialOptions, Dialler } from './dialler.ts'
import { ConnectionGate } from './gater.ts'
import { type DhtMode, Dht } from './dht.ts'
import { type TopicValidator, joinTopic, watchGossip } from './libp2p/gossip.ts'
import { type MeshServices, libp2pOptions, listenError } from './libp2p/options.ts'
import { forgetGonePeers, onFirstHeard } from './libp2p/peer-store.ts'
import { EngineDials } from './library-dials.ts'
import { OpenConnections } from './open-connections.ts'
import { PeerLimits } from './peer-limits.ts'
import type { Violation } from './penalties.ts'
import { Reachability } from './reachability.ts'
import { Sources } from './sources.ts'
import { MeshStream } from './stream.ts'

export interface MeshNodeComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly machineKey: MachineKey
  readonly log: Logger
  /** Of records of the hash table; without it there is none. */
  readonly judge?: RecordValidator
}

export interface MeshNodeInit {
  /** Multiaddrs to listen on, such as `/ip4/0.0.0.0/tcp/0`. */
  readonly listen: readonly string[]
  /** Addresses to tell others beside those we listen on, such as that of a port forward. */
  readonly announce?: readonly string[]
  /** Look for peers on the local network. */
  readonly mdns: boolean
  /** Whether machines may connect that nobody names; default true. */
  readonly strangers?: boolean
  /** Connections at once; default `MAX_CONNECTIONS`. */
  readonly connections?: number
  /** Whether we carry for our contacts; default false. */
  readonly relay?: boolean
  /** The part in the hash table; default off. */
  readonly dht?: DhtMode
}

/** How often libp2p's peer store is emptied of peers that are not connected. */
const PEER_STORE_SWEEP_MS = 60_000

export type StreamHandler = (connection: MeshConnection, stream: MeshStream) => void

/**
 * This machine on the mesh: listens, dials, carries streams and presences. Everything above speaks
 * of machines and streams; libp2p stays in this folder.
 */
export class MeshNode implements Startable {
  /** What contacts, ACL and bootstrap list say of a machine: those that are named go before strangers, the accepted before the rest. */
  standing: (machineId: MachineId) => PeerClass = () => 'stranger'
  /** Whether a pin or the ACL names this machine. */
  isListed: (machineId: MachineId) => boolean = () => false
  readonly shares: AgentShares
  /** How it is reached through others, and what it carries for them. */
  readonly reach: Reachability
  readonly table: Dht
  readonly #machineKey: MachineKey
  readonly #sources: Sources
  readonly #limits: PeerLimits
  readonly #gate: ConnectionGate
  readonly #engineDials: EngineDials
  readonly #init: MeshNodeInit
  readonly #handlers = new Map<string, StreamHandler>()
  readonly #connections: OpenConnections
  readonly #onConnected = new Set<(connection: MeshConnection) => void>()
  readonly #onFound = new Set<(machineId: MachineId, addresses: string[]) => void>()
  #libp2p: Libp2p<MeshServices> | null = null
  #dialler: Dialler | null = null
  readonly #topics = new Map<string, { validator: TopicValidator; onNeighbour: () => void }>()
  #sweep: NodeJS.Timeout | undefined

  constructor(components: MeshNodeComponents, init: MeshNodeInit) {
    this.#machineKey = components.machineKey
    this.table = new Dht(components, { mode: init.dht ?? 'off' })
    this.#init = init
    const outsideHosts = (): number => this.#gate.outsideHosts()
    this.#sources = new Sources({ ...components, outsideHosts }, { standing: (machineId) => this.standing(machineId) })
    this.#engineDials = new EngineDials(
      {
        ...components,
        addressesOf: (machineId) => this.table.addressesOf(machineId),
        dial: async (machineId, addresses, signal) => this.dial(machineId, addresses, signal, { background: true }),
        isKnown: (machineId) => this.isKnown(machineId),
        onServer: () => this.table.onServer(),
        sourceOf: (machineId) => this.#limits.sourceOf(machineId),
        strangersDialled: () => this.connections().filter((one) => !one.inbound && !this.isKnown(one.machineId)).length,
      },
      { strangers: this.strangersMayCome },
    )
    this.#connections = new OpenConnections(components, {
      maySend: (connection, traffic) => this.#limits.maySend(connection, traffic),
      onOpened: ({ timeline }, connection) => this.#gate.opened(timeline, connection),
    })
    this.shares = new AgentShares({ connections: this.#connections })
    this.reach = new Reachability({ ...components, shares: this.shares }, { relay: init.relay ?? false })
    const { reach, shares, strangersMayCome: strangers } = this
    this.#gate = new ConnectionGate({ view: this.#gateView(), reach, shares }, { strangers, connections: init.connections })
    this.#limits = new PeerLimits({ sources: this.#sources, connections: this.#connections, log: components.log })
  }

  get strangersMayCome(): boolean {
    return this.#init.strangers ?? true
  }

  get machineId(): MachineId {
    return this.#machineKey.machineId
  }

  get listening(): boolean {
    return this.#libp2p !== null
  }

  async start(): Promise<void> {
    const options = await libp2pOptions({
      seed: this.#machineKey.seed,
      listen: this.#init.listen,
      announce: this.#init.announce ?? [],
      mdns: this.#init.mdns,
      gater: this.#gate,
      reach: this.reach.options,
      dht: this.table.startOptions(this.#engineDials),
    })
    const libp2p = await createLibp2p(options)
    this.#watch(libp2p)
    for (const [protocol, handler] of this.#handlers) await this.#register(libp2p, protocol, handler)
    this.#libp2p = libp2p
    const { ways } = libp2p.services
    this.#dialler = new Dialler({
      dial: async (machineId, address, options) => this.#engineDials.ours(machineId, async () => libp2p.dial(address, options)),
      dialRelayed: async (address, options) => ways!.dial(address, options),
      isKnown: (machineId) => this.isKnown(machineId),
      ownAddresses: () => this.directAddresses(),
    })
    const mayAsk = (machineId: MachineId): boolean => this.#limits.mayBring(machineId, 1)
    this.table.attach(libp2p.services.dht, { mayAsk, sourceOf: (machineId) => this.#limits.sourceOf(machineId) })
    try {
      await libp2p.start()
    } catch (error) {
      this.#libp2p = null
      throw listenError(this.#init.listen, error)
    }
    this.#sources.start()
    const { pubsub } = libp2p.services
    for (const [topic, { validator, onNeighbour }] of this.#topics) joinTopic(pubsub, topic, validator, onNeighbour)
    watchGossip(pubsub, this.#limits)
    const gone = new Map<string, number>()
    this.#sweep = setInterval(() => void forgetGonePeers(libp2p, gone).catch(() => undefined), PEER_STORE_SWEEP_MS).unref()
  }

  async stop(): Promise<void> {
    const libp2p = this.#libp2p
    this.#libp2p = null
    this.#dialler = null
    clearInterval(this.#sweep)
    this.#sources.stop()
    this.reach.carrier?.stop()
    this.#connections.abort(new AppError('shutting_down'))
    await libp2p?.stop()
  }

  /** Where others can reach us, each ending in our `/p2p/…`, directly first; empty before the start. */
  addresses(): string[] {
    const relayed = this.#libp2p === null ? [] : this.reach.relayedAddresses()
    return [...this.directAddresses().slice(0, MAX_CARD_ADDRESSES - relayed.length), ...relayed]
  }

  directAddresses(): string[] {
    return this.#libp2p?.getMultiaddrs().map((address) => address.toString()) ?? []
  }

  connections(): MeshConnection[] {
    return this.#connections.all()
  }

  connectionsTo(machineId: MachineId): MeshConnection[] {
    return this.#connections.to(machineId)
  }

  isKnown(machineId: MachineId): boolean {
    return this.standing(machineId) !== 'stranger'
  }

  strangerConnections(): number {
    return this.connections().filter((one) => !this.isKnown(one.machineId)).length
  }

  /** See `PeerLimits`. */
  penalise(connection: MeshConnection, offence: Violation): void {
    this.#limits.penalise(connection, offence)
  }

  /** See `PeerLimits`. */
  mayBegin(connection: MeshConnection, what: Metered): boolean {
    return this.#limits.mayBegin(connection, what)
  }

  /** Contacts, ACL or bootstrap list have changed. `listed`: hosts where machines are said to be that we know. */
  reviewHosts(listed: ReadonlySet<string>): void {
    this.#gate.reviewHosts(listed)
    this.reach.review()
    for (const { machineId, host } of this.connections()) if (this.isKnown(machineId)) this.#gate.remember(host, machineId)
  }

  refuses(peer: Pick<MeshConnection, 'machineId' | 'host'>): boolean {
    return this.#sources.refuses(peer)
  }

  /** Whom we have had enough of, and how many connections were refused for what: for `/diagnostics/mesh`. */
  refusals(): ReturnType<Sources['diagnostics']> & { refused: ConnectionGate['refusals'] & { readonly agent_full: number } } {
    return { ...this.#sources.diagnostics(), refused: { ...this.#gate.refusals, agent_full: this.shares.closed } }
  }

  /** Answers streams of a protocol; before the start, so that none is missed. */
  handle(protocol: string, handler: StreamHandler): void {
    if (this.#libp2p !== null) throw new TypeError('handlers are set before the start')
    this.#handlers.set(protocol, handler)
  }

  /** Joins a topic; before the start. `onNeighbour` is called when a neighbour has joined it. */
  joinTopic(topic: string, validator: TopicValidator, onNeighbour: () => void): void {
    if (this.#libp2p !== null) throw new TypeError('topics are joined before the start')
    this.#topics.set(topic, { validator, onNeighbour })
  }

  onDisconnected(listener: (connection: MeshConnection) => void): void {
    this.#connections.onDisconnected(listener)
  }

  onConnected(listener: (connection: MeshConnection) => void): void {
    this.#onConnected.add(listener)
  }

  /** A machine was found on the local network, or has connected from anywhere for the first time. Nothing of it is proven. */
  onFound(listener: (machineId: MachineId, addresses: string[]) => void): void {
    this.#onFound.add(listener)
  }

  async publish(topic: string, data: Uint8Array): Promise<void> {
    await this.#libp2p?.services.pubsub.publish(topic, data)
  }

  /**
   * A connection to this machine: one there is that is not among `besides`, or the first address that answers, beginning
   * with the one that did the last time; each other may take `othersMs`. Throws `peer_unreachable` with `data.addresses`:
   * every address tried and what came of it.
   */
  async dial(
    machineId: MachineId,
    addresses: readonly string[],
    signal: AbortSignal,
    { besides = [], ...how }: Omit<DialOptions, 'force'> & { readonly besides?: readonly MeshConnection[] } = {},
  ): Promise<MeshConnection> {
    const others = this.connectionsTo(machineId).filter((one) => !besides.includes(one))
    // The newest: an older one may be what is left of a peer that has restarted.
    const existing = others.findLast(({ relay }) => relay === null) ?? others.at(-1)
    if (existing !== undefined) return existing
    const dialler = this.#dialler
    if (dialler === null) throw new AppError('shutting_down', 'the mesh is not running')
    const connection = this.#connections.wrap(await dialler.dial(machineId, addresses, signal, { ...how, force: besides.length > 0 }))
    if (connection === null) throw new AppError('peer_rejected', 'only Ed25519 machines')
    return connection
  }

  #gateView(): ConstructorParameters<typeof ConnectionGate>[0]['view'] {
    return {
      isKnown: (machineId) => this.isKnown(machineId),
      isListed: (machineId) => this.isListed(machineId),
      dialled: () => this.connections().flatMap(({ inbound, machineId }) => (inbound ? [] : [machineId])),
      isRefused: (machineId, host) => this.refuses({ machineId, host }),
      mayBegin: (host, known) => this.#sources.mayConnect(host, known),
      onUnfinished: (host) => void this.#sources.penalise(host, 'unfinished'),
      mayDial: (machineId) => this.#engineDials.may(machineId),
    }
  }

  #watch(libp2p: Libp2p<MeshServices>): void {
    libp2p.addEventListener('connection:open', (event) => {
      const connection = this.#connections.wrap(event.detail)
      if (connection === null) return
      if (this.isKnown(connection.machineId)) this.#gate.remember(connection.host, connection.machineId)
      this.shares.onConnected(connection)
      for (const listener of this.#onConnected) listener(connection)
    })
    libp2p.addEventListener('self:peer:update', () => this.reach.onAddresses())
    onFirstHeard(libp2p, (machineId, addresses) => {
      for (const listener of this.#onFound) listener(machineId, addresses)
    })
  }

  async #register(libp2p: Libp2p<MeshServices>, protocol: string, handler: StreamHandler): Promise<void> {
    const answer = (stream: Parameters<Parameters<Libp2p['handle']>[1]>[0], connection: Connection): void => {
      const wrapped = this.#connections.wrap(connection)
      if (wrapped !== null) handler(wrapped, new MeshStream({ stream, connection: wrapped }, { early: false }))
    }
    await libp2p.handle(protocol, answer, {
      maxInboundStreams: MAX_STREAMS_PER_CONNECTION,
      maxOutboundStreams: MAX_STREAMS_PER_CONNECTION,
      runOnLimitedConnection: true,
    })
  }
}
