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

/** Of our own daemons alone: no record of any other network is kept or looked for. */
export const DHT_PROTOCOL = '/x0x/kad/1'
/** Streams of the hash table that one connection may have open towards us. */
const MAX_DHT_STREAMS = 8
/** What comes on one of its streams at most: the answer with a record and its machines, at `MAX_CARD_ADDRESSES` each … */
export const MAX_ANSWER_BYTES = 128 * 1024
/** … or a question with a record. The engine would take 4 MiB, and hash what it is asked for. */
export const MAX_QUESTION_BYTES = MAX_CARD_BYTES + 4 * 1024

/** How long one question may take, with the dial for it. The engine's own time grows to a minute with each that is not answered, and a single silent server kept our record from being put anywhere. */
export const QUESTION_MS = 5_000

const FIXED = { minTimeout: QUESTION_MS, maxTimeout: QUESTION_MS }

const refuse = async (): Promise<never> => {
  throw new AppError('malformed', 'no record of ours')
}

/** The engine finds the judge of a namespace by its name on an object, and each object has these: what `constructor` were asked about it would take for a record. */
const INHERITED = Object.fromEntries(Object.getOwnPropertyNames(Object.prototype).map((name) => [name, refuse]))

export interface TableInit {
  /** Values are judged by it wherever they come from. */
  readonly judge: RecordValidator
  /** Whether records are kept for others, and others answered. */
  readonly server: boolean
  /** Absent: only who is connected anyway is asked. */
  readonly ways?: DhtDialer | undefined
}

export const hashTable = ({ judge, server, ways = NO_DHT_DIALS }: TableInit): ((components: object) => KadDHT) => {
  const make = kadDHT({
    protocol: DHT_PROTOCOL,
    clientMode: !server,
    allowQueryWithZeroPeers: true,
    maxInboundStreams: MAX_DHT_STREAMS,
    routingTableUpdateMaxQueueSize: MAX_TABLE_UPDATES,
    networkDialTimeout: FIXED,
    pingNewContactTimeout: FIXED,
    pingOldContactTimeout: FIXED,
    // A fleet may be at private addresses, and each address is dialled to a machine that must prove itself.
    peerInfoMapper: ({ id, multiaddrs }) => ({ id, multiaddrs: directOnes(multiaddrs) }),
    validators: { ...INHERITED, pk: refuse, [RECORD_NAMESPACE]: async (key, value) => void judge.verify(key, value) },
  })
  // libp2p gives each service whatever it asks for by name.
  return (components) => {
    const asked = new WeakMap<Stream, MachineId>()
    const dht = make(bounded(components as Parts, asked, ways) as Parameters<typeof make>[0])
    boundAnswers(dht, asked, ways)
    // libp2p would say of whom the table names that they were found, as if they had said so themselves, and ask it where to dial whomever.
    for (const service of [peerDiscoverySymbol, peerRoutingSymbol]) Object.defineProperty(dht, service, { value: undefined })
    return dht
  }
}

interface Answering {
  handle(protocol: string, handler: StreamHandler, options?: StreamHandlerOptions): Promise<void>
  register(protocol: string, topology: Topology): Promise<string>
}
/** By which the engine asks, and is asked. */
interface Parts {
  readonly connectionManager: { getConnections(peer: PeerId): readonly Connection[] }
  readonly registrar: Answering
  readonly peerStore: PeerStore
}

/** The same components, with streams on which only so much comes, and ways of our own. `asked`: of whom a stream asks. */
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
    // libp2p's own way to a stream would dial where none is left, past us.
    const connection = connectionTo(peer)
    if (connection === undefined) throw new AppError('peer_unreachable', 'there is no connection to it')
    const stream = boundStream(await connection.newStream(protocol, options), MAX_ANSWER_BYTES)
    asked.set(stream, machineId)
    return stream
  }
  // libp2p would ask the servers of names for whatever is named.
  const isDialable = async (addresses: Multiaddr | Multiaddr[]): Promise<boolean> => directOnes([addresses].flat()).length > 0
  return withOwn<object>(components, {
    // Nothing else of it, so that an engine that dials in another way fails.
    connectionManager: { openStream, isDialable },
    registrar: withOwn(registrar, {
      handle: async (protocol, handler, options) =>
        registrar.handle(protocol, (stream, connection) => handler(boundStream(stream, MAX_QUESTION_BYTES), connection), options),
      register: async (protocol, topology) => registrar.register(protocol, alsoTell(topology, ways)),
    }),
    // libp2p's service answers whatever it is sent, from a queue without end: who opens a stream of the hash table is there.
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

/** In the turn in which whoever reads it is given it, so that nothing of it is lost. */
const boundStream = (stream: Stream, limit: number): Stream => {
  let received = 0
  stream.addEventListener('message', (event) => {
    received += event.data.byteLength
    if (received <= limit) return
    event.stopImmediatePropagation()
    stream.abort(new AppError('rate_limited', 'too much at once for the hash table'))
  })
  return stream
}

/** The engine asks that there be a ping service; what it is given in its place is in `bounded`. */
export const claimPing = (): object => ({ [serviceCapabilities]: ['@libp2p/ping'] })

/** Records of the hash table that we keep for others, 6 KB each, beside those of named agents. The engine itself has no bound. */
export const MAX_RECORDS = 1_024
/** Where libp2p's store of peers puts its entries, which `forgetGonePeers` bounds. Whatever else comes is the engine's. */
const PEERS = '/peers/'

type Call<Name extends 'delete' | 'get' | 'has' | 'put'> = Parameters<MemoryDatastore[Name]>

/** What libp2p keeps, in memory. Records of named agents are kept apart; of the rest the source with most makes room. */
export class RecordStore extends MemoryDatastore {
  readonly #judge: Pick<RecordValidator, 'isNamed' | 'source'>
  readonly #records: BoundedMap<string, Uint8Array>

  constructor(components: { judge: Pick<RecordValidator, 'isNamed' | 'source'> }) {
    super()
    this.#judge = components.judge
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
    this.#records.set(name, value, this.#judge.source)
    return key
  }

  /** The engine writes a record as protobuf, which begins with a field that is the key. */
  #isNamed(record: Uint8Array): boolean {
    const agentId = agentOfKey(record.subarray(2, 2 + (record[1] ?? 0)))
    return agentId !== null && this.#judge.isNamed(agentId)
  }
}
