import type { Libp2p } from '@libp2p/interface'

/**
 * Makes libp2p forget every peer that it has no connection to. Its store has no bound and no sweep, so
 * that anybody could fill our memory with keys used once; where peers are is in our own book.
 */
export const forgetGonePeers = async (libp2p: Pick<Libp2p, 'getConnections' | 'peerStore'>): Promise<void> => {
  for (const { id } of await libp2p.peerStore.all()) if (libp2p.getConnections(id).length === 0) await libp2p.peerStore.delete(id)
}
