import { type AutoNATv2Components, autoNATv2 } from '@libp2p/autonat-v2'
import type { CircuitRelayServerComponents } from '@libp2p/circuit-relay-v2'
import { type DCUtRServiceComponents, dcutr } from '@libp2p/dcutr'
import type { Connection } from '@libp2p/interface'
import type { Multiaddr } from '@multiformats/multiaddr'
import { type MayUse, type OnReview, guarded, withOwn } from './guarded.ts'
import { type RelayServerRules, relayServer } from './relay-server.ts'

export interface ReachRules {
  /** Whom we tell, and whom we believe, at which addresses a machine may be reached directly, and whom we dial for that: contacts. */
  readonly mayAsk: MayUse
  /** When there may be others of them. */
  readonly onReview: OnReview
  /** Null: this daemon carries nothing. */
  readonly server: RelayServerRules | null
}

/** Of libp2p, the dial by a transport, past its queue. */
export interface Ways {
  dial(address: Multiaddr, options: { signal: AbortSignal }): Promise<Connection>
}

/** Nobody is looked for at random only to be asked about our addresses. */
const nobody = {
  // oxlint-disable-next-line require-yield
  async *walk() {
    return
  },
}

/**
 * autonat tells which of our public addresses others can dial, and dcutr replaces a relayed connection by a direct one where
 * one side can be dialled. Both dial what a peer names, so they are there for contacts alone.
 */
export const reachServices = ({ mayAsk, onReview, server }: ReachRules) => ({
  autonat: (components: AutoNATv2Components) => autoNATv2()(withOwn(guarded(components, mayAsk, onReview), { randomWalk: nobody })),
  dcutr: (components: DCUtRServiceComponents) => dcutr()(guarded(components, mayAsk)),
  ways: (components: { readonly transportManager: Ways }): Ways => ({
    dial: async (address, options) => components.transportManager.dial(address, options),
  }),
  relay: (components: CircuitRelayServerComponents): unknown => (server === null ? {} : relayServer(server)(components)),
})
