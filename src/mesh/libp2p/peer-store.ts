import { KEEP_ALIVE, type Libp2p, type PeerData, type PeerId, type PeerInfo, type PeerStore } from '@libp2p/interface'
import type { Multiaddr } from '@multiformats/multiaddr'
import { BoundedMap } from '../../base/bounded-collections.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { MAX_CARD_ADDRESSES } from '../../protocol/limits/wire.ts'
import { addressesTo, isDirect, machineIdOf } from '../addresses.ts'

/** Tag that kad-dht sets on the peers in its routing table. */
export const IN_HASH_TABLE = 'kad-peer'
/** Protocols stored per peer. x0x has about twenty. */
export const MAX_PEER_PROTOCOLS = 64
/** Longest stored protocol name, in characters. Those of x0x have about thirty. */
export const MAX_PROTOCOL_TEXT = 64
/** Number of sweeps, an hour in all, after which the addresses of an absent DHT peer are forgotten. */
export const SWEEPS_GONE = 60

/** Peers whose addresses are cached. A DHT reply names about twenty. */
const MAX_WHERE = 512

interface Parts {
  readonly peerId: PeerId
  readonly peerStore: PeerStore
  readonly connectionManager: { getConnections(peer: PeerId): readonly unknown[] }
}

/** Disables libp2p's expiry after an hour, which would also remove the addresses of connected DHT servers. `forgetGonePeers` does it instead. */
export const KEEP_ADDRESSES = { maxAddressAge: Number.POSITIVE_INFINITY, maxPeerAge: Number.POSITIVE_INFINITY }

/**
 * Limits the addresses per peer. libp2p stores all that a peer and others name, and compares each with each. A few thousand fit into one
 * reply and take seconds. Here a connected peer's own addresses replace those that others named. It also removes the keep-alive tag,
 * because libp2p would redial such peers by itself. Other dials of that machine would wait for it.
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

/** Caches addresses. libp2p takes a lock and decodes the whole peer each time, which made each DHT request of an unlisted peer cost milliseconds. */
const rememberWhere = (peerStore: PeerStore): void => {
  const where = new BoundedMap<string, Promise<PeerInfo>>({ max: MAX_WHERE })
  const getInfo = peerStore.getInfo.bind(peerStore)
  peerStore.getInfo = async (peer) => {
    const key = peer.toString()
    const known = where.get(key)
    if (known !== undefined) return known
    // Stored before it resolves, so that a concurrent write invalidates it.
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

/** Addresses that can be dialled directly, as many as a card may have. */
export const directOnes = (addresses: readonly Multiaddr[]): Multiaddr[] => firstDirect(addresses, (address) => address)

const firstDirect = <T>(all: readonly T[], addressOf: (one: T) => Multiaddr): T[] => {
  const found: T[] = []
  for (const one of all) if (found.length < MAX_CARD_ADDRESSES && isDirect(addressOf(one))) found.push(one)
  return found
}

/** Removes the keep-alive tag and unused data. Unused are the agent version, the time of the dial, and the signed copy of the addresses. */
const bounded = ({ multiaddrs, addresses, protocols, tags, publicKey }: PeerData): PeerData => ({
  ...(tags && { tags: Object.fromEntries(Object.entries(tags).filter(([tag]) => !tag.startsWith(KEEP_ALIVE))) }),
  ...(publicKey && { publicKey }),
  ...(multiaddrs && { multiaddrs: directOnes(multiaddrs) }),
  ...(addresses && { addresses: firstDirect(addresses, ({ multiaddr }) => multiaddr) }),
  ...(protocols && { protocols: protocols.filter(({ length }) => length <= MAX_PROTOCOL_TEXT).slice(0, MAX_PEER_PROTOCOLS) }),
})

/** Reports each machine that libp2p had not seen before, found by mDNS or connected, with its addresses. */
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
 * Removes peers without a connection from libp2p's peer store, which has no bound, so that keys used once cannot fill the memory. The
 * address book has its own copy. Peers of the DHT's bounded routing table only lose their addresses, after `SWEEPS_GONE`. `gone` counts
 * their sweeps.
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
