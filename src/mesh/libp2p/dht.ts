import {
  type Connection,
  type PeerId,
  type PeerStore,
  type Stream,
  type StreamHandler,
  type StreamHandlerOptions,
  type Topology,
  peerDiscoverySymbol,
  peerRoutingSymbol,
  serviceCapabilities,
} from '@libp2p/interface'
import { type KadDHT, kadDHT } from '@libp2p/kad-dht'
import type { Multiaddr } from '@multiformats/multiaddr'
import { MemoryDatastore } from 'datastore-core'
import { BoundedMap } from '../../base/bounded-collections.ts'
import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { DIAL_MS, MAX_CARD_BYTES } from '../../protocol/limits/wire.ts'
import { addressesTo, machineIdOf } from '../addresses.ts'
import { RECORD_NAMESPACE, type RecordValidator, agentOfKey } from '../dht-record.ts'
import { MAX_TABLE_UPDATES, boundAnswers } from './dht-inside.ts'
import { withOwn } from './guarded.ts'
import { directOnes } from './peer-store.ts'
import { NO_DHT_DIALS, type DhtDialer } from './dht-dialer.ts'

/** Used only by x0x daemons, so no records of other networks are stored or requested. */
export const DHT_PROTOCOL = '/x0x/kad/1'
/** Inbound DHT streams per connection. */
const MAX_DHT_STREAMS = 8
/** Size limit of a reply. It holds a record and its machines, each with `MAX_CARD_ADDRESSES`. */
export const MAX_ANSWER_BYTES = 128 * 1024
/** Size limit of a request with a record. kad-dht would accept 4 MiB and hash it. */
export const MAX_QUESTION_BYTES = MAX_CARD_BYTES + 4 * 1024

/**
 * Time limit of one request, including its dial. kad-dht's adaptive limit grows to a minute per unanswered request. Then one silent server
 * could prevent storing a record.
 */
export const QUESTION_MS = 5_000

const FIXED = { minTimeout: QUESTION_MS, maxTimeout: QUESTION_MS }

const refuse = async (): Promise<never> => {
  throw new AppError('malformed', 'not a record of x0x')
}

/** kad-dht looks up the validator of a namespace by name on an object. Without these, a namespace such as `constructor` would find an inherited member. */
const INHERITED = Object.fromEntries(Object.getOwnPropertyNames(Object.prototype).map((name) => [name, refuse]))

export interface TableInit {
  /** Validates values from any source. */
  readonly validator: RecordValidator
  /** Whether records are stored for others, and requests answered. */
  readonly server: boolean
  /** If absent, only existing connections are used. */
  readonly ways?: DhtDialer | undefined
}

export const hashTable = ({ validator, server, ways = NO_DHT_DIALS }: TableInit): ((components: object) => KadDHT) => {
  const make = kadDHT({
    protocol: DHT_PROTOCOL,
    clientMode: !server,
    allowQueryWithZeroPeers: true,
    maxInboundStreams: MAX_DHT_STREAMS,
    routingTableUpdateMaxQueueSize: MAX_TABLE_UPDATES,
    networkDialTimeout: FIXED,
    pingNewContactTimeout: FIXED,
    pingOldContactTimeout: FIXED,
    // A fleet may use private addresses, and a dialled machine must prove its key anyway.
    peerInfoMapper: ({ id, multiaddrs }) => ({ id, multiaddrs: directOnes(multiaddrs) }),
    validators: { ...INHERITED, pk: refuse, [RECORD_NAMESPACE]: async (key, value) => void validator.verify(key, value) },
  })
  // libp2p gives each service the components that it requests by name.
  return (components) => {
    const asked = new WeakMap<Stream, MachineId>()
    const dht = make(bounded(components as Parts, asked, ways) as Parameters<typeof make>[0])
    boundAnswers(dht, asked, ways)
    // Otherwise libp2p would report machines that the DHT names as discovered, and ask the DHT for addresses before any dial.
    for (const service of [peerDiscoverySymbol, peerRoutingSymbol]) Object.defineProperty(dht, service, { value: undefined })
    return dht
  }
}

interface Answering {
  handle(protocol: string, handler: StreamHandler, options?: StreamHandlerOptions): Promise<void>
  register(protocol: string, topology: Topology): Promise<string>
}
/** The components by which kad-dht sends and receives. */
interface Parts {
  readonly connectionManager: { getConnections(peer: PeerId): readonly Connection[] }
  readonly registrar: Answering
  readonly peerStore: PeerStore
}

/** The same components, but with bounded streams and dials through `ways`. `asked` records the machine at the other end of each stream. */
const bounded = (components: Parts, asked: WeakMap<Stream, MachineId>, ways: DhtDialer): object => {
  const { connectionManager, registrar, peerStore } = components
  const connectionTo = (peer: PeerId): Connection | undefined =>
    connectionManager.getConnections(peer).findLast(({ status, limits }) => status === 'open' && limits === undefined)
  const openStream = async (peer: PeerId, protocol: string, options: { signal?: AbortSignal } = {}): Promise<Stream> => {
    const machineId = machineIdOf(peer)
    if (machineId === null) throw new AppError('peer_rejected', 'only Ed25519 machines')
    if (connectionTo(peer) === undefined) {
      const own = (await peerStore.get(peer).catch(() => null))?.addresses ?? []
      const at = directOnes(own.map(({ multiaddr }) => multiaddr))
      await ways.reach(machineId, addressesTo(peer, at), options.signal ?? AbortSignal.timeout(DIAL_MS))
    }
    // libp2p's own method would dial if no connection is left, without limits.
    const connection = connectionTo(peer)
    if (connection === undefined) throw new AppError('peer_unreachable', 'there is no connection to it')
    const stream = boundStream(await connection.newStream(protocol, options), MAX_ANSWER_BYTES)
    asked.set(stream, machineId)
    return stream
  }
  // libp2p would query DNS for any name.
  const isDialable = async (addresses: Multiaddr | Multiaddr[]): Promise<boolean> => directOnes([addresses].flat()).length > 0
  return withOwn<object>(components, {
    // Other members are missing on purpose, so that a changed kad-dht that dials in another way fails.
    connectionManager: { openStream, isDialable },
    registrar: withOwn(registrar, {
      handle: async (protocol, handler, options) =>
        registrar.handle(protocol, (stream, connection) => handler(boundStream(stream, MAX_QUESTION_BYTES), connection), options),
      register: async (protocol, topology) => registrar.register(protocol, alsoTell(topology, ways)),
    }),
    // Replaces libp2p's ping, which answers anything from an unbounded queue. A machine that opens a DHT stream is alive.
    ping: {
      ping: async (peer: PeerId, options?: { signal?: AbortSignal }) => {
        const begun = performance.now()
        const stream = await openStream(peer, DHT_PROTOCOL, options)
        await stream.close()
        return performance.now() - begun
      },
    },
  })
}

const alsoTell = (topology: Topology, ways: DhtDialer): Topology => ({
  ...topology,
  onConnect: (peer, connection) => {
    const machineId = machineIdOf(peer)
    if (machineId !== null) ways.met(machineId)
    return topology.onConnect?.(peer, connection)
  },
})

/** Call it in the turn in which the stream is passed to its reader, so that no byte is missed. */
const boundStream = (stream: Stream, limit: number): Stream => {
  let received = 0
  stream.addEventListener('message', (event) => {
    received += event.data.byteLength
    if (received <= limit) return
    event.stopImmediatePropagation()
    stream.abort(new AppError('rate_limited', 'too many DHT messages at once'))
  })
  return stream
}

/** kad-dht requires a ping service. `bounded` replaces it. */
export const claimPing = (): object => ({ [serviceCapabilities]: ['@libp2p/ping'] })

/** Records stored for unlisted agents, 6 KB each. kad-dht itself has no limit. */
export const MAX_RECORDS = 1_024
/** Prefix of libp2p's peer store, which `forgetGonePeers` bounds. All other keys are records. */
const PEERS = '/peers/'

type Call<Name extends 'delete' | 'get' | 'has' | 'put'> = Parameters<MemoryDatastore[Name]>

/** libp2p's datastore, in memory. Records of named agents are always kept. If there are too many others, the source with most loses one. */
export class RecordStore extends MemoryDatastore {
  readonly #validator: Pick<RecordValidator, 'isNamed' | 'source'>
  readonly #records: BoundedMap<string, Uint8Array>

  constructor(components: { validator: Pick<RecordValidator, 'isNamed' | 'source'> }) {
    super()
    this.#validator = components.validator
    this.#records = new BoundedMap({ max: MAX_RECORDS, isApart: (_, record) => this.#isNamed(record) })
  }

  get count(): number {
    return this.#records.size
  }

  override delete(...[key, options]: Call<'delete'>): ReturnType<MemoryDatastore['delete']> {
    return this.#records.delete(key.toString()) ? undefined : super.delete(key, options)
  }

  override get(...[key, options]: Call<'get'>): ReturnType<MemoryDatastore['get']> {
    return this.#records.get(key.toString()) ?? super.get(key, options)
  }

  override has(...[key, options]: Call<'has'>): ReturnType<MemoryDatastore['has']> {
    return this.#records.has(key.toString()) || super.has(key, options)
  }

  override put(...[key, value, options]: Call<'put'>): ReturnType<MemoryDatastore['put']> {
    const name = key.toString()
    if (name.startsWith(PEERS)) return super.put(key, value, options)
    this.#records.set(name, value, this.#validator.source)
    return key
  }

  /** kad-dht stores a record as protobuf that begins with its key. */
  #isNamed(record: Uint8Array): boolean {
    const agentId = agentOfKey(record.subarray(2, 2 + (record[1] ?? 0)))
    return agentId !== null && this.#validator.isNamed(agentId)
  }
}
