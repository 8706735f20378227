import { kadDHT, type KadDHT } from '@libp2p/kad-dht'
import {
  peerDiscoverySymbol,
  serviceCapabilities,
  type PeerId,
  type PeerInfo,
  type PeerStore,
  type Stream,
  type StreamHandler,
  type StreamHandlerOptions,
} from '@libp2p/interface'
import type { Multiaddr } from '@multiformats/multiaddr'

import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { MAX_CARD_BYTES } from '../../protocol/limits.ts'
import { RECORD_NAMESPACE, type RecordJudge } from '../dht-record.ts'
import { machineIdOf } from '../peer-ids.ts'
import { withOwn } from './guarded.ts'
import { directOnes, NAMED_IN_HASH_TABLE } from './peer-store.ts'

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

/** The engine: `server` also keeps records for others and answers them. Values are judged by `judge` wherever they come from. */
export const hashTable = (judge: RecordJudge, { server }: { server: boolean }): ((components: object) => KadDHT) => {
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
    const dht = make(bounded(components as Parts) as unknown as Parameters<typeof make>[0])
    boundAnswers(dht)
    rememberNamed(dht, components as Parts)
    return dht
  }
}

interface Asking {
  openStream(peer: PeerId, protocol: string, options: { signal?: AbortSignal }): Promise<Stream>
  isDialable(addresses: Multiaddr | Multiaddr[]): Promise<boolean>
}
interface Answering {
  handle(protocol: string, handler: StreamHandler, options?: StreamHandlerOptions): Promise<void>
}
/** By which the engine asks, and is asked. */
interface Parts {
  readonly connectionManager: Asking
  readonly registrar: Answering
  readonly peerStore: PeerStore
}

/** The same components, with streams on which only so much comes. */
const bounded = (components: Parts): Parts => {
  const { connectionManager, registrar } = components
  return withOwn(components, {
    connectionManager: withOwn(connectionManager, {
      openStream: async (...asked) => boundStream(await connectionManager.openStream(...asked), MAX_ANSWER_BYTES),
      // libp2p would ask the servers of names for whatever is named.
      isDialable: async (addresses) => directOnes([addresses].flat()).length > 0,
    }),
    registrar: withOwn(registrar, {
      handle: async (protocol, handler, options) =>
        registrar.handle(protocol, (stream, connection) => handler(boundStream(stream, MAX_QUESTION_BYTES), connection), options),
    }),
  })
}

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

/**
 * The engine asks that there be a ping service, to see whether a peer is there before it enters it. libp2p's answers whatever
 * it is sent, from a queue without end, and is not ours: who opens a stream of the hash table is there.
 */
export const pingByStream = (components: { connectionManager: Asking }): object => ({
  [serviceCapabilities]: ['@libp2p/ping'],
  ping: async (peer: PeerId, options: { signal?: AbortSignal } = {}): Promise<number> => {
    const begun = performance.now()
    const stream = await components.connectionManager.openStream(peer, DHT_PROTOCOL, options)
    await stream.close()
    return performance.now() - begun
  },
})

/** As the engine names the message by which a record is put. */
const PUT = 'PUT_VALUE'

interface Rpc {
  readonly handlers: Record<string, unknown>
  handleMessage(peer: PeerId, message: { readonly type?: string }): Promise<unknown>
}
interface Network {
  addEventListener(name: 'peer', listener: (event: { readonly detail: PeerInfo }) => void): void
  safeDispatchEvent(name: string, event: unknown): boolean
  _writeReadMessage(...asked: readonly unknown[]): Promise<unknown>
}
interface Fetching {
  getMany(key: Uint8Array, options: { signal: AbortSignal }): AsyncIterable<{ readonly name: string; readonly value?: Uint8Array }>
}
/** What the engine has beside its interface. */
type Inside = KadDHT & {
  readonly rpc: Rpc
  readonly network: Network
  readonly routingTable: { readonly size: number }
  readonly contentFetching: Fetching
}
const isInside = (dht: KadDHT): dht is Inside => ['rpc', 'network', 'routingTable', 'contentFetching'].every((member) => member in dht)

const insideOf = (dht: KadDHT): Inside => {
  if (!isInside(dht)) throw new TypeError('the hash table has no way in that could be watched')
  return dht
}

/** An answer that names more than it may is that of a peer that does not answer. */
const boundAnswers = (dht: KadDHT): void => {
  const { network } = insideOf(dht)
  const ask = network._writeReadMessage
  network._writeReadMessage = async (...asked) => {
    let named = 0
    const counting: Pick<Network, 'safeDispatchEvent'> = {
      safeDispatchEvent: (...event) => {
        if (++named > MAX_NAMED) throw new AppError('malformed', 'too many machines in one answer of the hash table')
        return network.safeDispatchEvent(...event)
      },
    }
    return ask.call(Object.assign(Object.create(network) as Network, counting), ...asked)
  }
}

/** Where the engine can dial whom an answer names. libp2p would also say that they were found, as if they had said so themselves. */
const rememberNamed = (dht: KadDHT, { peerStore }: Parts): void => {
  Object.defineProperty(dht, peerDiscoverySymbol, { value: undefined })
  const tags = { [NAMED_IN_HASH_TABLE]: { value: 0 } }
  const remember = ({ id, multiaddrs }: PeerInfo): void => void peerStore.merge(id, { multiaddrs, tags }).catch(() => undefined)
  insideOf(dht).network.addEventListener('peer', ({ detail }) => remember(detail))
}

/** How many machines are asked first. */
export const peersOf = (dht: KadDHT): number => insideOf(dht).routingTable.size

/** Whether this peer may ask now. `keep`: that we keep a record for others. */
export type MayAsk = (machineId: MachineId, keep: boolean) => boolean

/** From now on each question of a peer is metered before it is looked at, and nobody can have us keep who provides what, or say anything after it. */
export const guardHashTable = (dht: KadDHT, mayAsk: MayAsk): void => {
  const { rpc } = insideOf(dht)
  for (const what of ['ADD_PROVIDER', 'GET_PROVIDERS', 'PING']) delete rpc.handlers[what]
  const handle = rpc.handleMessage.bind(rpc)
  rpc.handleMessage = async (peer, message) => {
    const machineId = machineIdOf(peer)
    if (machineId === null || !mayAsk(machineId, message.type === PUT))
      throw new AppError('rate_limited', 'too many questions to the hash table')
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
