import type { PeerId, PeerInfo, Stream } from '@libp2p/interface'
import type { KadDHT } from '@libp2p/kad-dht'
import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { addressesTo, machineIdOf } from '../addresses.ts'
import { agentOfKey } from '../dht-record.ts'
import { directOnes } from './peer-store.ts'
import type { DhtDialer } from './dht-dialer.ts'

/** Machines that one reply may name. They are the 20 nearest, the target, and the replying server. kad-dht scans a list for each. */
export const MAX_NAMED = 22
/** Machines that wait for their entry in the routing table. For each further one, kad-dht scans all of them. */
export const MAX_TABLE_UPDATES = 256
/** Above this number, machines that were only named are not entered. A dead one occupies the queue for seconds, and a full queue would keep out machines that connect or reply. */
const MAX_NAMED_UPDATES = MAX_TABLE_UPDATES / 4

/** Part of a minute in which a put searches the nearest machines. kad-dht stores the value only after the search. */
const SEARCH_MS = 40_000
/** Machines on which a value is stored, as many as kad-dht considers nearest. */
const MAX_TAKERS = 20

/** kad-dht's names of the messages that store and request a record. */
const [PUT, GET] = ['PUT_VALUE', 'GET_VALUE']
/** Messages that are answered. */
const ANSWERED = [PUT, GET, 'FIND_NODE']

interface DhtQuery {
  readonly type?: string
  readonly key?: Uint8Array
}
interface Answer {
  readonly closer: readonly unknown[]
  readonly providers: readonly unknown[]
}
interface Rpc {
  readonly handlers: Record<string, unknown>
  handleMessage(peer: PeerId, message: DhtQuery): Promise<unknown>
}
interface Network {
  safeDispatchEvent(name: string, event: { readonly detail: PeerInfo }): boolean
  _writeReadMessage(stream: Stream, ...asked: readonly unknown[]): Promise<Answer>
}
/** Event of a search. It reports a machine that replied or, at the end, a nearest one. */
interface Found {
  readonly name: string
  readonly from?: PeerId
  readonly peer?: { readonly id: PeerId }
}
interface Routing {
  getClosestPeers(key: Uint8Array, options: { signal: AbortSignal }): AsyncIterable<Found>
  getClosestPeersOffline(key: Uint8Array, options?: object): Promise<PeerInfo[]>
}
interface Table {
  /** Absent before the start. */
  readonly kb?: { toIterable(): Iterable<{ readonly peerId: PeerId }> }
  readonly routingTableUpdateQueue: { readonly size: number }
  find(peer: PeerId): Promise<PeerId | undefined>
}
interface Fetching {
  readonly peerRouting: Pick<Routing, 'getClosestPeers'>
  put(
    key: Uint8Array,
    value: Uint8Array,
    options: { signal: AbortSignal },
  ): AsyncIterable<{ readonly name: string; readonly messageType?: unknown }>
  getMany(key: Uint8Array, options: { signal: AbortSignal }): AsyncIterable<{ readonly name: string; readonly value?: Uint8Array }>
}
/** Private members of kad-dht that this file uses. */
type Inside = KadDHT & {
  readonly rpc: Rpc
  readonly network: Network
  readonly routingTable: Table
  readonly peerRouting: Routing
  readonly contentFetching: Fetching
}
const MEMBERS = {
  rpc: ['handlers', 'handleMessage'],
  network: ['safeDispatchEvent', '_writeReadMessage'],
  routingTable: ['kb', 'find', 'routingTableUpdateQueue'],
  peerRouting: ['getClosestPeers', 'getClosestPeersOffline'],
  contentFetching: ['getMany', 'peerRouting', 'put'],
}
const isInside = (dht: KadDHT): dht is Inside =>
  Object.entries(MEMBERS).every(([part, members]) => members.every((member) => member in Object(Reflect.get(dht, part))))

const insideOf = (dht: KadDHT): Inside => {
  if (!isInside(dht)) throw new TypeError('the DHT library lacks members that x0x uses')
  return dht
}

/** Treats a reply as missing if it names too many machines, or names them by another way. `ways` learns of each named machine before kad-dht does. */
export const boundAnswers = (dht: KadDHT, asked: WeakMap<Stream, MachineId>, ways: DhtDialer): void => {
  const { network, routingTable } = insideOf(dht)
  const ask = network._writeReadMessage
  network._writeReadMessage = async (stream, ...question) => {
    let named = 0
    const server = asked.get(stream)
    const counting: Pick<Network, 'safeDispatchEvent'> = {
      safeDispatchEvent: (name, event) => {
        if (++named > MAX_NAMED) throw new AppError('malformed', 'too many machines in one DHT answer')
        const { id, multiaddrs } = event.detail
        const machineId = machineIdOf(id)
        if (machineId !== null && server !== undefined) ways.named(machineId, addressesTo(id, directOnes(multiaddrs)), server)
        return routingTable.routingTableUpdateQueue.size < MAX_NAMED_UPDATES && network.safeDispatchEvent(name, event)
      },
    }
    const answer = await ask.call(Object.assign(Object.create(network) as Network, counting), stream, ...question)
    if (named !== answer.closer.length + answer.providers.length)
      throw new TypeError('the DHT library names machines that were not counted')
    return answer
  }
}

/** Machines in the routing table. A dead one stays until its slot is needed. */
export const machinesOf = (dht: KadDHT): MachineId[] =>
  [...(insideOf(dht).routingTable.kb?.toIterable() ?? [])].flatMap(({ peerId }) => machineIdOf(peerId) ?? [])

/** Handles a request of this peer. Throws if the peer may not send one now. `keep` means that a record is stored for others. */
export type Answerer = (machineId: MachineId, keep: boolean, answer: () => Promise<unknown>) => Promise<unknown>

/** Charges each request before it is handled, and rejects provider records and other unused messages. Replies name only DHT servers, because kad-dht would also reveal other recent peers and their keys. */
export const guardHashTable = (dht: KadDHT, answerer: Answerer): void => {
  const { rpc, peerRouting, routingTable } = insideOf(dht)
  const closest = peerRouting.getClosestPeersOffline.bind(peerRouting)
  peerRouting.getClosestPeersOffline = async (...asked) => {
    const inTable = async (one: PeerInfo): Promise<PeerInfo[]> => ((await routingTable.find(one.id)) === undefined ? [] : [one])
    return (await Promise.all((await closest(...asked)).map(inTable))).flat()
  }
  if (!ANSWERED.every((what) => what in rpc.handlers)) throw new TypeError('the DHT library has other names for its messages')
  for (const what of Object.keys(rpc.handlers)) if (!ANSWERED.includes(what)) delete rpc.handlers[what]
  const handle = rpc.handleMessage.bind(rpc)
  rpc.handleMessage = async (peer, message) => {
    const machineId = machineIdOf(peer)
    if (machineId === null) throw new AppError('peer_rejected', 'only Ed25519 machines')
    return answerer(machineId, message.type === PUT, async () => {
      if (message.type === GET && agentOfKey(message.key ?? new Uint8Array()) === null)
        throw new AppError('malformed', 'the key is not that of an agent')
      return handle(peer, message)
    })
  }
}

/** Every valid value under a key, as they arrive. kad-dht would write its choice to machines with another value, and may fail. */
export async function* valuesOf(dht: KadDHT, key: Uint8Array, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  for await (const event of insideOf(dht).contentFetching.getMany(key, { signal }))
    if (event.name === 'VALUE' && event.value) yield event.value
}

/**
 * The machines nearest to a key. If the search exceeds `searchMs`, it yields those that replied first. They are in the own routing table,
 * ahead of slow machines that name one another.
 */
async function* nearestInTime(routing: Routing, key: Uint8Array, signal: AbortSignal, searchMs: number): AsyncGenerator<Found> {
  const over = AbortSignal.timeout(searchMs)
  const answered: Found[] = []
  try {
    for await (const event of routing.getClosestPeers(key, { signal: AbortSignal.any([signal, over]) })) {
      if (event.name === 'PEER_RESPONSE' && event.from) answered.push({ ...event, name: 'FINAL_PEER', peer: { id: event.from } })
      yield event
    }
  } catch (error) {
    if (signal.aborted || !over.aborted) throw error
    yield* answered.slice(0, MAX_TAKERS)
  }
}

/** Stores a value on the machines nearest to the key, as far as they are found in `searchMs`. Machines that refuse are skipped. Returns how many accepted. */
export const putValue = async (
  dht: KadDHT,
  key: Uint8Array,
  value: Uint8Array,
  signal: AbortSignal,
  searchMs = SEARCH_MS,
): Promise<number> => {
  const { contentFetching, peerRouting } = insideOf(dht)
  const inTime: Fetching['peerRouting'] = {
    getClosestPeers: (wanted, options) => nearestInTime(peerRouting, wanted, options.signal, searchMs),
  }
  const putting = Object.assign(Object.create(contentFetching) as Fetching, { peerRouting: inTime })
  let takers = 0
  for await (const event of putting.put(key, value, { signal }))
    if (event.name === 'PEER_RESPONSE' && String(event.messageType) === PUT) takers += 1
  return takers
}
