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
import { type MeshConnection, OpenConnections } from './connection.ts'
import type { RecordValidator } from './dht-record.ts'
import { type DialOptions, Dialler } from './dialler.ts'
import { ConnectionGate } from './gater.ts'
import { type DhtMode, Dht } from './dht.ts'
import { type TopicValidator, joinTopic, watchGossip } from './libp2p/gossip.ts'
import { type Libp2pServices, libp2pOptions, listenError } from './libp2p/options.ts'
import { forgetGonePeers, onFirstHeard } from './libp2p/peer-store.ts'
import { EngineDials } from './library-dials.ts'
import { PeerLimits, Sources } from './sources.ts'
import type { Violation } from './penalties.ts'
import { Reachability } from './carrier.ts'
import { MeshStream } from './stream.ts'

export interface MeshNodeComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly machineKey: MachineKey
  readonly log: Logger
  /** Validates DHT records, or absent without DHT. */
  readonly validator?: RecordValidator
}

export interface MeshNodeInit {
  /** Multiaddrs to listen on, such as `/ip4/0.0.0.0/tcp/0`. */
  readonly listen: readonly string[]
  /** Further addresses to announce, such as that of a port forward. */
  readonly announce?: readonly string[]
  /** Whether to search for peers on the local network. */
  readonly mdns: boolean
  /** Whether unlisted machines may connect. */
  readonly acceptsUnlisted: boolean
  /** Maximum number of connections, by default `MAX_CONNECTIONS`. */
  readonly connections?: number
  /** Whether to relay for contacts, by default false. */
  readonly relay?: boolean
  /** Default off. */
  readonly dht?: DhtMode
}

/** Interval at which peers without a connection are removed from libp2p's peer store. */
const PEER_STORE_SWEEP_MS = 60_000

export type StreamHandler = (connection: MeshConnection, stream: MeshStream) => void

/** This machine in the mesh. It listens, dials, and carries streams and presences. Only this folder uses libp2p. */
export class MeshNode implements Startable {
  /** Peer class of a machine, by contacts, ACL and bootstrap list. A higher class has precedence. */
  classOf: (machineId: MachineId) => PeerClass = () => 'unlisted'
  /** Whether a pin or the ACL names this machine. */
  isPinned: (machineId: MachineId) => boolean = () => false
  readonly shares: AgentShares
  /** Relays that this machine uses, and its own relaying. */
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
  #libp2p: Libp2p<Libp2pServices> | null = null
  #dialler: Dialler | null = null
  readonly #topics = new Map<string, { validator: TopicValidator; onNeighbour: () => void }>()
  #sweep: NodeJS.Timeout | undefined

  constructor(components: MeshNodeComponents, init: MeshNodeInit) {
    this.#machineKey = components.machineKey
    this.table = new Dht(components, { mode: init.dht ?? 'off' })
    this.#init = init
    const outsideHosts = (): number => this.#gate.outsideHosts()
    this.#sources = new Sources({ ...components, outsideHosts }, { classOf: (machineId) => this.classOf(machineId) })
    this.#engineDials = new EngineDials(
      {
        ...components,
        addressesOf: (machineId) => this.table.addressesOf(machineId),
        dial: async (machineId, addresses, signal) => this.dial(machineId, addresses, signal, { background: true }),
        isKnown: (machineId) => this.isKnown(machineId),
        onServer: () => this.table.onServer(),
        sourceOf: (machineId) => this.#limits.sourceOf(machineId),
        unlistedDialled: () => this.connections().filter((one) => !one.inbound && !this.isKnown(one.machineId)).length,
      },
      { acceptsUnlisted: this.acceptsUnlisted },
    )
    this.#connections = new OpenConnections(components, {
      maySend: (connection, traffic) => this.#limits.maySend(connection, traffic),
      onOpened: ({ timeline }, connection) => this.#gate.opened(timeline, connection),
    })
    this.shares = new AgentShares({ connections: this.#connections })
    this.reach = new Reachability({ ...components, shares: this.shares }, { relay: init.relay ?? false })
    const { reach, shares, acceptsUnlisted } = this
    this.#gate = new ConnectionGate({ view: this.#gateView(), reach, shares }, { acceptsUnlisted, connections: init.connections })
    this.#limits = new PeerLimits({ sources: this.#sources, connections: this.#connections, log: components.log })
  }

  get acceptsUnlisted(): boolean {
    return this.#init.acceptsUnlisted
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

  /** Addresses at which others can connect, each with this machine's `/p2p/…`, direct ones first. Empty before the start. */
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
    return this.classOf(machineId) !== 'unlisted'
  }

  unlistedConnections(): number {
    return this.connections().filter((one) => !this.isKnown(one.machineId)).length
  }

  /** See `PeerLimits`. */
  penalise(connection: MeshConnection, violation: Violation): void {
    this.#limits.penalise(connection, violation)
  }

  /** See `PeerLimits`. */
  mayBegin(connection: MeshConnection, what: Metered): boolean {
    return this.#limits.mayBegin(connection, what)
  }

  /** Contacts, ACL or bootstrap list have changed. For `listed`, see `AddressBook.listedHosts`. */
  reviewHosts(listed: ReadonlySet<string>): void {
    this.#gate.reviewHosts(listed)
    this.reach.review()
    for (const { machineId, host } of this.connections()) if (this.isKnown(machineId)) this.#gate.remember(host, machineId)
  }

  refuses(peer: Pick<MeshConnection, 'machineId' | 'host'>): boolean {
    return this.#sources.refuses(peer)
  }

  /** Penalised sources, and refused connections by reason, for `/diagnostics/mesh`. */
  refusals(): ReturnType<Sources['diagnostics']> & { refused: ConnectionGate['refusals'] & { readonly agent_full: number } } {
    return { ...this.#sources.diagnostics(), refused: { ...this.#gate.refusals, agent_full: this.shares.closed } }
  }

  /** Registers the handler of a protocol. Call it before the start, so that no stream is missed. */
  handle(protocol: string, handler: StreamHandler): void {
    if (this.#libp2p !== null) throw new TypeError('handlers are set before the start')
    this.#handlers.set(protocol, handler)
  }

  /** Joins a topic. Call it before the start. `onNeighbour` is called when a neighbour has joined it. */
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

  /** Called when mDNS found a machine, or one connected for the first time. No claim about it is proven. */
  onFound(listener: (machineId: MachineId, addresses: string[]) => void): void {
    this.#onFound.add(listener)
  }

  async publish(topic: string, data: Uint8Array): Promise<void> {
    await this.#libp2p?.services.pubsub.publish(topic, data)
  }

  /**
   * Returns a connection to this machine. It is an existing one that is not in `besides`, or a new one to the first address that answers.
   * The address that answered last is tried first. Each other one may take `othersMs`. Throws `peer_unreachable`. Its `data.addresses` has
   * each address with its error.
   */
  async dial(
    machineId: MachineId,
    addresses: readonly string[],
    signal: AbortSignal,
    { besides = [], ...how }: Omit<DialOptions, 'force'> & { readonly besides?: readonly MeshConnection[] } = {},
  ): Promise<MeshConnection> {
    const others = this.connectionsTo(machineId).filter((one) => !besides.includes(one))
    // The newest, because an older one may be dead after the peer restarted.
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
      isPinned: (machineId) => this.isPinned(machineId),
      dialled: () => this.connections().flatMap(({ inbound, machineId }) => (inbound ? [] : [machineId])),
      isRefused: (machineId, host) => this.refuses({ machineId, host }),
      mayBegin: (host, known) => this.#sources.mayConnect(host, known),
      onUnfinished: (host) => void this.#sources.penalise(host, 'unfinished'),
      mayDial: (machineId) => this.#engineDials.may(machineId),
    }
  }

  #watch(libp2p: Libp2p<Libp2pServices>): void {
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

  async #register(libp2p: Libp2p<Libp2pServices>, protocol: string, handler: StreamHandler): Promise<void> {
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
