import type { Libp2p } from '@libp2p/interface'

/** The engine of the hash table puts it on each peer of its table, and takes it off. */
export const IN_HASH_TABLE = 'kad-peer'

/**
 * Makes libp2p forget every peer that it has no connection to. Its store has no bound and no sweep, so
 * that anybody could fill our memory with keys used once; where peers are is in our own book.
 */
export const forgetGonePeers = async (libp2p: Pick<Libp2p, 'getConnections' | 'peerStore'>): Promise<void> => {
  for (const { id, tags } of await libp2p.peerStore.all()) {
    // The table of the hash table is bounded, and knows its peers by their entries here.
    if (libp2p.getConnections(id).length === 0 && !tags.has(IN_HASH_TABLE)) await libp2p.peerStore.delete(id)
  }
}
