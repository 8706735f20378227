import { KEEP_ALIVE, type Libp2p, type PeerData, type PeerId, type PeerInfo, type PeerStore } from '@libp2p/interface'
import type { Multiaddr } from '@multiformats/multiaddr'
import { BoundedMap } from '../../base/bounded-collections.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { MAX_CARD_ADDRESSES } from '../../protocol/limits/wire.ts'
import { addressesTo, isDirect, machineIdOf } from '../addresses.ts'

/** The engine of the hash table puts it on each peer of its table, and takes it off. */
export const IN_HASH_TABLE = 'kad-peer'
/** Protocols of one peer that are kept; we have about twenty, … */
export const MAX_PEER_PROTOCOLS = 64
/** … and the longest of them, in characters; of ours some thirty. */
export const MAX_PROTOCOL_TEXT = 64
/** Sweeps one after the other in which a machine of the hash table was gone, an hour in all, before others are told no more where it was. */
export const SWEEPS_GONE = 60

/** Peers of whom it is remembered where they are, as the hash table tells it: some twenty of them with each answer. */
const MAX_WHERE = 512

interface Parts {
  readonly peerId: PeerId
  readonly peerStore: PeerStore
  readonly connectionManager: { getConnections(peer: PeerId): readonly unknown[] }
}

/** libp2p forgets an address an hour after it was first said, also of who is connected, and then nobody would be told any more where the servers of the hash table are. `forgetGonePeers` forgets in its place. */
export const KEEP_ADDRESSES = { maxAddressAge: Number.POSITIVE_INFINITY, maxPeerAge: Number.POSITIVE_INFINITY }

/**
 * libp2p keeps every address that a peer says it has, adds to them whatever others say of it, and compares each with each:
 * some thousands, which fit one answer, take seconds. Here a peer has few, its own words once it was connected, and before that the last ones of others.
 * And it dials by itself whom it is to keep alive, servers of the hash table and relays, also one that was given up: whoever awaits a dial of that
 * machine would wait for it. So it is to keep nobody alive.
 */
export const boundPeerStore = ({ peerId, peerStore, connectionManager }: Parts): object => {
  rememberWhere(peerStore)
  const [merge, patch] = [peerStore.merge.bind(peerStore), peerStore.patch.bind(peerStore)]
  peerStore.patch = async (peer, data, options) => patch(peer, peer.equals(peerId) ? data : bounded(data), options)
  peerStore.merge = async (peer, given, options) => {
    const { multiaddrs, ...data } = peer.equals(peerId) ? given : bounded(given)
    if (multiaddrs === undefined) return merge(peer, data, options)
    const known = await peerStore.get(peer, options).catch(() => null)
    const hasSpoken = connectionManager.getConnections(peer).length > 0 || (known?.tags.has(IN_HASH_TABLE) && known.addresses.length > 0)
    if (known !== null && Object.keys(data).length > 0) await merge(peer, data, options)
    if (known !== null && hasSpoken) return known
    return patch(peer, { ...(known === null && data), multiaddrs }, options)
  }
  return {}
}

/** libp2p takes a lock and decodes all of a peer each time, which made one question of a stranger to the hash table cost milliseconds. */
const rememberWhere = (peerStore: PeerStore): void => {
  const where = new BoundedMap<string, Promise<PeerInfo>>({ max: MAX_WHERE })
  const getInfo = peerStore.getInfo.bind(peerStore)
  peerStore.getInfo = async (peer) => {
    const key = peer.toString()
    const known = where.get(key)
    if (known !== undefined) return known
    // Before it is read, so that what is written meanwhile forgets it.
    const info = getInfo(peer)
    where.set(key, info)
    return info.catch((error: unknown) => {
      where.delete(key)
      throw error
    })
  }
  const noted =
    <Rest extends unknown[], Result>(write: (peer: PeerId, ...rest: Rest) => Promise<Result>) =>
    async (peer: PeerId, ...rest: Rest): Promise<Result> =>
      write.call(peerStore, peer, ...rest).finally(() => where.delete(peer.toString()))
  peerStore.merge = noted(peerStore.merge)
  peerStore.patch = noted(peerStore.patch)
  peerStore.delete = noted(peerStore.delete)
}

/** Those at which we could dial, as many as a card has. */
export const directOnes = (addresses: readonly Multiaddr[]): Multiaddr[] => firstDirect(addresses, (address) => address)

const firstDirect = <T>(all: readonly T[], addressOf: (one: T) => Multiaddr): T[] => {
  const found: T[] = []
  for (const one of all) if (found.length < MAX_CARD_ADDRESSES && isDirect(addressOf(one))) found.push(one)
  return found
}

/** And it need not be kept alive. Nobody here asks for the rest: the name of its program, when it was dialled, and its addresses once more, signed. */
const bounded = ({ multiaddrs, addresses, protocols, tags, publicKey }: PeerData): PeerData => ({
  ...(tags && { tags: Object.fromEntries(Object.entries(tags).filter(([tag]) => !tag.startsWith(KEEP_ALIVE))) }),
  ...(publicKey && { publicKey }),
  ...(multiaddrs && { multiaddrs: directOnes(multiaddrs) }),
  ...(addresses && { addresses: firstDirect(addresses, ({ multiaddr }) => multiaddr) }),
  ...(protocols && { protocols: protocols.filter(({ length }) => length <= MAX_PROTOCOL_TEXT).slice(0, MAX_PEER_PROTOCOLS) }),
})

/** Tells of each machine, found on the local network or connected, of which libp2p had not heard before, and where it is said to be. */
export const onFirstHeard = (
  libp2p: Pick<Libp2p, 'addEventListener' | 'peerId'>,
  listener: (machineId: MachineId, addresses: string[]) => void,
): void =>
  libp2p.addEventListener('peer:update', ({ detail: { peer, previous } }) => {
    const machineId = machineIdOf(peer.id)
    const addresses = peer.addresses.map(({ multiaddr }) => multiaddr)
    if (machineId === null || previous !== undefined || addresses.length === 0 || peer.id.equals(libp2p.peerId)) return
    listener(machineId, addressesTo(peer.id, addresses))
  })

/**
 * Makes libp2p forget every peer that it has no connection to. Its store has no bound and no sweep, so
 * that anybody could fill our memory with keys used once; where peers are is in our own book. The table of the hash table is
 * bounded, and knows its peers by their entries here: of these it forgets where they were, after `SWEEPS_GONE`. `gone`: in how many sweeps each was.
 */
export const forgetGonePeers = async (
  libp2p: Pick<Libp2p, 'getConnections' | 'peerStore'>,
  gone = new Map<string, number>(),
): Promise<void> => {
  for (const { id, tags } of await libp2p.peerStore.all()) {
    const peer = id.toString()
    const sweeps = (gone.get(peer) ?? 0) + 1
    gone.delete(peer)
    if (libp2p.getConnections(id).length > 0) continue
    if (!tags.has(IN_HASH_TABLE)) await libp2p.peerStore.delete(id)
    else if (sweeps < SWEEPS_GONE) gone.set(peer, sweeps)
    else await libp2p.peerStore.patch(id, { multiaddrs: [] })
  }
}
