import type { PeerId, PeerInfo, Stream } from '@libp2p/interface'
import type { KadDHT } from '@libp2p/kad-dht'
import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { addressesTo, machineIdOf } from '../addresses.ts'
import { agentOfKey } from '../dht-record.ts'
import { directOnes } from './peer-store.ts'
import type { DhtDialer } from './dht-dialer.ts'

/** Machines that one answer may name: the 20 nearest, the one that was looked for, and who answers. The engine goes through a list with each. */
export const MAX_NAMED = 22
/** Machines that wait to be entered into the table: for each one more the engine goes through all of them, … */
export const MAX_TABLE_UPDATES = 256
/** … and so many, before one that a server has only named is not entered. Each that is not there takes seconds, and where there is no room, who connects or answers is never entered. */
const MAX_NAMED_UPDATES = MAX_TABLE_UPDATES / 4

/** How long a put looks for the nearest, of the minute that it is given: the engine puts nothing before it knows them all. */
const SEARCH_MS = 40_000
/** Machines to which a value is put, as many as the engine takes for the nearest. */
const MAX_TAKERS = 20

/** As the engine names the messages by which a record is put, and asked for, … */
const [PUT, GET] = ['PUT_VALUE', 'GET_VALUE']
/** … and all that are answered. */
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
/** What comes of a search: who answers, and at its end who is nearest. */
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
  /** Absent before it is started. */
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
/** What the engine has beside its interface. */
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
  if (!isInside(dht)) throw new TypeError('the hash table has not the members that we rely on')
  return dht
}

/** An answer that names more than it may, or a machine past us, is that of a peer that does not answer. What it names we learn before the engine does. */
export const boundAnswers = (dht: KadDHT, asked: WeakMap<Stream, MachineId>, ways: DhtDialer): void => {
  const { network, routingTable } = insideOf(dht)
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
        return routingTable.routingTableUpdateQueue.size < MAX_NAMED_UPDATES && network.safeDispatchEvent(name, event)
      },
    }
    const answer = await ask.call(Object.assign(Object.create(network) as Network, counting), stream, ...question)
    if (named !== answer.closer.length + answer.providers.length) throw new TypeError('the hash table names machines past us')
    return answer
  }
}

/** The machines that are asked first. One that is gone stays among them until its place is wanted. */
export const machinesOf = (dht: KadDHT): MachineId[] =>
  [...(insideOf(dht).routingTable.kb?.toIterable() ?? [])].flatMap(({ peerId }) => machineIdOf(peerId) ?? [])

/** Answers a question of this peer, or throws if the peer may not ask now. `keep`: that we keep a record for others. */
export type Answerer = (machineId: MachineId, keep: boolean, answer: () => Promise<unknown>) => Promise<unknown>

/**
 * From now on each question of a peer is metered before it is looked at, and nobody can have us keep who provides what, or say anything
 * after it. Named are servers of the table alone: the engine would also tell of any other peer whether it was here lately, and its key.
 */
export const guardHashTable = (dht: KadDHT, answerer: Answerer): void => {
  const { rpc, peerRouting, routingTable } = insideOf(dht)
  const closest = peerRouting.getClosestPeersOffline.bind(peerRouting)
  peerRouting.getClosestPeersOffline = async (...asked) => {
    const inTable = async (one: PeerInfo): Promise<PeerInfo[]> => ((await routingTable.find(one.id)) === undefined ? [] : [one])
    return (await Promise.all((await closest(...asked)).map(inTable))).flat()
  }
  if (!ANSWERED.every((what) => what in rpc.handlers)) throw new TypeError('the hash table names its questions otherwise')
  for (const what of Object.keys(rpc.handlers)) if (!ANSWERED.includes(what)) delete rpc.handlers[what]
  const handle = rpc.handleMessage.bind(rpc)
  rpc.handleMessage = async (peer, message) => {
    const machineId = machineIdOf(peer)
    if (machineId === null) throw new AppError('peer_rejected', 'only Ed25519 machines')
    return answerer(machineId, message.type === PUT, async () => {
      if (message.type === GET && agentOfKey(message.key ?? new Uint8Array()) === null) throw new AppError('malformed', 'no key of ours')
      return handle(peer, message)
    })
  }
}

/** Every value under a key that the judge believed, as they come. The engine's own choice of one writes it to those who had another, and fails where they do not take it. */
export async function* valuesOf(dht: KadDHT, key: Uint8Array, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  for await (const event of insideOf(dht).contentFetching.getMany(key, { signal }))
    if (event.name === 'VALUE' && event.value) yield event.value
}

/** The machines nearest to a key. Where they are not known in `searchMs`, those that answered first: they are of our own table, and slow ones that name one another come behind them. */
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

/** Puts a value to the machines nearest to the key, as far as they are known in `searchMs`; whoever does not take it is left out. Answers how many took it. */
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
