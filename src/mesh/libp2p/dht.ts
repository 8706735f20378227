import { kadDHT, type KadDHT } from '@libp2p/kad-dht'
import {
  KEEP_ALIVE,
  peerDiscoverySymbol,
  peerRoutingSymbol,
  serviceCapabilities,
  type PeerId,
  type PeerInfo,
  type PeerStore,
  type Stream,
  type StreamHandler,
  type StreamHandlerOptions,
  type Topology,
} from '@libp2p/interface'
import type { Multiaddr } from '@multiformats/multiaddr'

import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { DIAL_MS, MAX_CARD_BYTES } from '../../protocol/limits.ts'
import { addressesTo } from '../addresses.ts'
import { isRecordKey, RECORD_NAMESPACE, type RecordJudge } from '../dht-record.ts'
import { machineIdOf } from '../peer-ids.ts'
import { withOwn } from './guarded.ts'
import { directOnes } from './peer-store.ts'

/** Of our own daemons alone: no record of any other network is kept or looked for. */
export const DHT_PROTOCOL = '/x0x/kad/1'
/** Streams of the hash table that one connection may have open towards us. */
const MAX_DHT_STREAMS = 8
/** What comes on one of its streams at most: the answer with a record and its machines, at `MAX_CARD_ADDRESSES` each … */
export const MAX_ANSWER_BYTES = 128 * 1024
/** … or a question with a record. The engine would take 4 MiB, and hash what it is asked for. */
export const MAX_QUESTION_BYTES = MAX_CARD_BYTES + 4 * 1024
/** Machines that one answer may name: the 20 nearest, the one that was looked for, and who answers. The engine goes through a list with each. */
export const MAX_NAMED = 22
/** Machines that wait to be entered into the table; the engine goes through all of them for each one more. */
const MAX_TABLE_UPDATES = 256

const refuse = async (): Promise<never> => {
  throw new AppError('malformed', 'no record of ours')
}

/** How the engine comes to machines, all that it would else dial past us. */
export interface TableWays {
  /** A server has said where a machine is. */
  named(machineId: MachineId, addresses: readonly string[], server: MachineId): void
  /** Connects to a machine that is at `own` by its own words. Throws where it may not be dialled, or does not answer. */
  reach(machineId: MachineId, own: readonly string[], signal: AbortSignal): Promise<void>
  /** A machine has connected that keeps records for others. */
  met(machineId: MachineId): void
}

const NO_WAYS: TableWays = {
  named: () => undefined,
  reach: async () => Promise.reject(new AppError('conflict', 'nobody is dialled for the hash table')),
  met: () => undefined,
}

export interface TableInit {
  /** Values are judged by it wherever they come from. */
  readonly judge: RecordJudge
  /** Whether records are kept for others, and others answered. */
  readonly server: boolean
  /** Absent: only who is connected anyway is asked. */
  readonly ways?: TableWays | undefined
}

export const hashTable = ({ judge, server, ways = NO_WAYS }: TableInit): ((components: object) => KadDHT) => {
  const make = kadDHT({
    protocol: DHT_PROTOCOL,
    clientMode: !server,
    allowQueryWithZeroPeers: true,
    maxInboundStreams: MAX_DHT_STREAMS,
    routingTableUpdateMaxQueueSize: MAX_TABLE_UPDATES,
    // A fleet may be at private addresses, and each address is dialled to a machine that must prove itself.
    peerInfoMapper: ({ id, multiaddrs }) => ({ id, multiaddrs: directOnes(multiaddrs) }),
    validators: { pk: refuse, [RECORD_NAMESPACE]: async (key, value) => void judge.verify(key, value) },
    // What is older than what was seen is refused by `verify`.
    selectors: { pk: () => 0, [RECORD_NAMESPACE]: (_key, values) => values.length - 1 },
  })
  // libp2p gives each service whatever it asks for by name.
  return (components) => {
    const asked = new WeakMap<Stream, MachineId>()
    const dht = make(bounded(components as Parts, asked, ways) as unknown as Parameters<typeof make>[0])
    boundAnswers(dht, asked, ways)
    // libp2p would say of whom the table names that they were found, as if they had said so themselves, and ask it where to dial whomever.
    for (const service of [peerDiscoverySymbol, peerRoutingSymbol]) Object.defineProperty(dht, service, { value: undefined })
    return dht
  }
}

interface Asking {
  getConnections(peer: PeerId): readonly unknown[]
  openStream(peer: PeerId, protocol: string, options: { signal?: AbortSignal }): Promise<Stream>
  isDialable(addresses: Multiaddr | Multiaddr[]): Promise<boolean>
}
interface Answering {
  handle(protocol: string, handler: StreamHandler, options?: StreamHandlerOptions): Promise<void>
  register(protocol: string, topology: Topology): Promise<string>
}
interface Ping {
  ping(peer: PeerId, options?: { signal?: AbortSignal }): Promise<number>
}
/** By which the engine asks, and is asked. */
interface Parts {
  readonly connectionManager: Asking
  readonly registrar: Answering
  readonly peerStore: PeerStore
  readonly ping: Ping
}

/** The same components, with streams on which only so much comes, and ways of our own. `asked`: of whom a stream asks. */
const bounded = (components: Parts, asked: WeakMap<Stream, MachineId>, ways: TableWays): Parts => {
  const { connectionManager, registrar, peerStore } = components
  const openStream: Asking['openStream'] = async (peer, protocol, options) => {
    const machineId = machineIdOf(peer)
    if (machineId === null) throw new AppError('peer_rejected', 'only Ed25519 machines')
    if (connectionManager.getConnections(peer).length === 0) {
      const own = (await peerStore.get(peer).catch(() => null))?.addresses ?? []
      const at = directOnes(own.map(({ multiaddr }) => multiaddr))
      await ways.reach(machineId, addressesTo(peer, at), options.signal ?? AbortSignal.timeout(DIAL_MS))
    }
    const stream = boundStream(await connectionManager.openStream(peer, protocol, options), MAX_ANSWER_BYTES)
    asked.set(stream, machineId)
    return stream
  }
  return withOwn(components, {
    connectionManager: withOwn(connectionManager, {
      openStream,
      // libp2p would ask the servers of names for whatever is named.
      isDialable: async (addresses) => directOnes([addresses].flat()).length > 0,
    }),
    registrar: withOwn(registrar, {
      handle: async (protocol, handler, options) =>
        registrar.handle(protocol, (stream, connection) => handler(boundStream(stream, MAX_QUESTION_BYTES), connection), options),
      register: async (protocol, topology) => registrar.register(protocol, alsoTell(topology, ways)),
    }),
    // libp2p dials by itself whom it is to keep alive, and whoever awaits a dial of that machine would wait for it.
    peerStore: withOwn(peerStore, {
      merge: async (peer, { tags = {}, ...data }, options) => {
        const others = Object.entries(tags).filter(([tag]) => !tag.startsWith(KEEP_ALIVE))
        return peerStore.merge(peer, { ...data, tags: Object.fromEntries(others) }, options)
      },
    }),
    // libp2p's service answers whatever it is sent, from a queue without end: who opens a stream of the hash table is there.
    ping: {
      ping: async (peer, options = {}) => {
        const begun = performance.now()
        const stream = await openStream(peer, DHT_PROTOCOL, options)
        await stream.close()
        return performance.now() - begun
      },
    },
  })
}

const alsoTell = (topology: Topology, ways: TableWays): Topology => ({
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

/** As the engine names the messages by which a record is put, and asked for. */
const [PUT, GET] = ['PUT_VALUE', 'GET_VALUE']

interface Question {
  readonly type?: string
  readonly key?: Uint8Array
}
interface Rpc {
  readonly handlers: Record<string, unknown>
  handleMessage(peer: PeerId, message: Question): Promise<unknown>
}
interface Network {
  safeDispatchEvent(name: string, event: { readonly detail: PeerInfo }): boolean
  _writeReadMessage(stream: Stream, ...asked: readonly unknown[]): Promise<unknown>
}
interface Routing {
  getClosestPeersOffline(key: Uint8Array, options?: object): Promise<PeerInfo[]>
}
interface Table {
  readonly size: number
  find(peer: PeerId): Promise<PeerId | undefined>
}
interface Fetching {
  getMany(key: Uint8Array, options: { signal: AbortSignal }): AsyncIterable<{ readonly name: string; readonly value?: Uint8Array }>
}
/** What the engine has beside its interface. */
type Inside = KadDHT & {
  readonly rpc: Rpc
  readonly network: Network
  readonly routingTable: Table
  readonly peerRouting: Routing
  readonly contentFetching: Fetching
}
const isInside = (dht: KadDHT): dht is Inside =>
  ['rpc', 'network', 'routingTable', 'peerRouting', 'contentFetching'].every((member) => member in dht)

const insideOf = (dht: KadDHT): Inside => {
  if (!isInside(dht)) throw new TypeError('the hash table has no way in that could be watched')
  return dht
}

/** An answer that names more than it may is that of a peer that does not answer. What it names we learn before the engine does. */
const boundAnswers = (dht: KadDHT, asked: WeakMap<Stream, MachineId>, ways: TableWays): void => {
  const { network } = insideOf(dht)
  const ask = network._writeReadMessage
  network._writeReadMessage = async (stream, ...question) => {
    let named = 0
    const server = asked.get(stream)
    const counting: Pick<Network, 'safeDispatchEvent'> = {
      safeDispatchEvent: (name, event) => {
        if (++named > MAX_NAMED) throw new AppError('malformed', 'too many machines in one answer of the hash table')
        const { id, multiaddrs } = event.detail
        const machineId = machineIdOf(id)
        if (machineId !== null && server !== undefined) ways.named(machineId, addressesTo(id, directOnes(multiaddrs)), server)
        return network.safeDispatchEvent(name, event)
      },
    }
    return ask.call(Object.assign(Object.create(network) as Network, counting), stream, ...question)
  }
}

/** How many machines are asked first. */
export const peersOf = (dht: KadDHT): number => insideOf(dht).routingTable.size

/** Whether this peer may ask now. `keep`: that we keep a record for others. */
export type MayAsk = (machineId: MachineId, keep: boolean) => boolean

/**
 * From now on each question of a peer is metered before it is looked at, and nobody can have us keep who provides what, or say anything
 * after it. Named are servers of the table alone: the engine would also tell of any other peer whether it was here lately, and its key.
 */
export const guardHashTable = (dht: KadDHT, mayAsk: MayAsk): void => {
  const { rpc, peerRouting, routingTable } = insideOf(dht)
  const closest = peerRouting.getClosestPeersOffline.bind(peerRouting)
  peerRouting.getClosestPeersOffline = async (...asked) => {
    const inTable = async (one: PeerInfo): Promise<PeerInfo[]> => ((await routingTable.find(one.id)) === undefined ? [] : [one])
    return (await Promise.all((await closest(...asked)).map(inTable))).flat()
  }
  for (const what of ['ADD_PROVIDER', 'GET_PROVIDERS', 'PING']) delete rpc.handlers[what]
  const handle = rpc.handleMessage.bind(rpc)
  rpc.handleMessage = async (peer, message) => {
    const machineId = machineIdOf(peer)
    if (machineId === null || !mayAsk(machineId, message.type === PUT))
      throw new AppError('rate_limited', 'too many questions to the hash table')
    if (message.type === GET && !isRecordKey(message.key)) throw new AppError('malformed', 'no key of ours')
    return handle(peer, message)
  }
}

/** Every value under a key that the judge believed, as they come. The engine's own choice of one writes it to those who had another, and fails where they do not take it. */
export async function* valuesOf(dht: KadDHT, key: Uint8Array, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  for await (const event of insideOf(dht).contentFetching.getMany(key, { signal }))
    if (event.name === 'VALUE' && event.value) yield event.value
}

/** Puts a value to the machines nearest to the key; whoever does not take it is left out. Answers how many took it. */
export const putValue = async (dht: KadDHT, key: Uint8Array, value: Uint8Array, signal: AbortSignal): Promise<number> => {
  let takers = 0
  for await (const event of dht.put(key, value, { signal }))
    if (event.name === 'PEER_RESPONSE' && String(event.messageType) === PUT) takers += 1
  return takers
}
