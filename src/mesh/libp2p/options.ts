import { yamux } from '@chainsafe/libp2p-yamux'
import { type AutoNATv2Components, autoNATv2 } from '@libp2p/autonat-v2'
import type { CircuitRelayServerComponents } from '@libp2p/circuit-relay-v2'
import { privateKeyFromRaw } from '@libp2p/crypto/keys'
import { type DCUtRServiceComponents, dcutr } from '@libp2p/dcutr'
import type { GossipSub } from '@libp2p/gossipsub'
import { type Identify, identify } from '@libp2p/identify'
import type { Connection, ConnectionGater, Logger as LibraryLogger } from '@libp2p/interface'
import type { KadDHT } from '@libp2p/kad-dht'
import { mdns } from '@libp2p/mdns'
import { tcp } from '@libp2p/tcp'
import type { Multiaddr } from '@multiformats/multiaddr'
import { MemoryDatastore } from 'datastore-core'
import type { Libp2pOptions } from 'libp2p'
import { AppError, errorText } from '../../base/errors.ts'
import { machineKeyOf } from '../../identity/machine-key.ts'
import { fromHex } from '../../protocol/ids.ts'
import {
  ADDRESS_DIAL_MS,
  DIAL_MS,
  MAX_CONNECTIONS,
  MAX_DIAL_ADDRESSES,
  MAX_PARALLEL_DIALS,
  MAX_STREAMS_PER_CONNECTION,
  MAX_STREAM_WRITE_BUFFER,
} from '../../protocol/limits/wire.ts'
import { MDNS_SERVICE } from '../../protocol/wire/card.ts'
import { type RecordStore, type TableInit, claimPing, hashTable } from './dht.ts'
import { gossip } from './gossip.ts'
import { type MayUse, type OnReview, guarded, withOwn } from './guarded.ts'
import { guardedMuxer } from './muxer.ts'
import { noiseEncrypter } from './noise.ts'
import { KEEP_ADDRESSES, boundPeerStore } from './peer-store.ts'
import { type RelayClient, type RelayServerRules, relayServer } from './relay.ts'
import { betweenSocketAndNoise } from './socket.ts'

export interface ReachRules {
  /** Contacts. Direct addresses are exchanged with them, and they are dialled for it. */
  readonly mayAsk: MayUse
  /** Called when the set of those machines may have grown. */
  readonly onReview: OnReview
  /** Null if this daemon does not relay. */
  readonly server: RelayServerRules | null
}

/** Dials with a transport directly, without libp2p's dial queue. */
export interface DialUpgrades {
  dial(address: Multiaddr, options: { signal: AbortSignal }): Promise<Connection>
}

/** Disables autonat's search for random peers. */
const nobody = {
  // oxlint-disable-next-line require-yield
  async *walk() {
    return
  },
}

/**
 * autonat finds out which own public addresses others can dial. dcutr replaces a relayed connection by a direct one. Both dial addresses
 * that a peer names, so only contacts may use them.
 */
export const reachServices = ({ mayAsk, onReview, server }: ReachRules) => ({
  autonat: (components: AutoNATv2Components) => autoNATv2()(withOwn(guarded(components, mayAsk, onReview), { randomWalk: nobody })),
  dcutr: (components: DCUtRServiceComponents) => dcutr()(guarded(components, mayAsk)),
  ways: (components: { readonly transportManager: DialUpgrades }): DialUpgrades => ({
    dial: async (address, options) => components.transportManager.dial(address, options),
  }),
  relay: (components: CircuitRelayServerComponents): unknown => (server === null ? {} : relayServer(server)(components)),
})

/**
 * Inbound connections in upgrade at once. One host may start more than that within `INBOUND_UPGRADE_MS` (`protocol/limits/mesh.ts`).
 * libp2p's default of 10 is used up by one CI job.
 */
const MAX_PENDING_CONNECTIONS = 512
/** Time limit of an inbound upgrade. It exceeds `ADDRESS_DIAL_MS`, after which the dialling side gives up. */
const INBOUND_UPGRADE_MS = 5_000
/** Disables libp2p's own limit, which admits the first connections of each second. The limits in `protocol/limits/mesh.ts` select at random. */
const INBOUND_PER_SECOND_PER_HOST = 1_000_000
/** yamux's largest window per stream. At 40 MB/s, 8 MiB fill 200 ms. */
const MAX_STREAM_WINDOW = 8 * 1024 * 1024
/** Interval of yamux's pings. They show that the peer is alive (`heartbeat.ts`), and measure the round trip that the window needs to grow. */
const KEEP_ALIVE_MS = 10_000

// A type, because libp2p requires an index signature.
export type Libp2pServices = { peers: object; identify: Identify; pubsub: GossipSub; ways?: DialUpgrades; dht?: KadDHT; ping?: object }

export interface MeshOptions {
  /** The machine's 32-byte Ed25519 seed. */
  readonly seed: Uint8Array
  readonly listen: readonly string[]
  readonly announce: readonly string[]
  readonly mdns: boolean
  readonly gater: ConnectionGater
  /** Absent without relays. */
  readonly reach?: ReachRules & { readonly client: RelayClient }
  /** Null without DHT. */
  readonly dht?: (TableInit & { readonly store?: RecordStore }) | null
}

/** Streams of gossipsub and identify. */
const OTHER_STREAMS = 32

const muxer = guardedMuxer(
  yamux({
    enableKeepAlive: true,
    keepAliveInterval: KEEP_ALIVE_MS,
    maxInboundStreams: MAX_STREAMS_PER_CONNECTION + OTHER_STREAMS,
    maxOutboundStreams: MAX_STREAMS_PER_CONNECTION + OTHER_STREAMS,
    streamOptions: { maxStreamWindowSize: MAX_STREAM_WINDOW, maxWriteBufferLength: MAX_STREAM_WRITE_BUFFER },
  }),
)

/** A logger that discards everything. libp2p's would format its arguments for each frame and check the terminal for each stream. */
const nothing: LibraryLogger = Object.assign(() => undefined, {
  error: () => undefined,
  trace: () => undefined,
  enabled: false,
  newScope: () => nothing,
})

/** Contains no version on purpose. */
const USER_AGENT = 'x0x'

/**
 * libp2p with TCP, Noise, yamux, identify and gossipsub. Defaults are changed on purpose. libp2p's ping is left out, because it answers
 * anything from an unbounded queue. `docs/libp2p.md` lists the private members that this folder uses.
 */
export const libp2pOptions = async (options: MeshOptions): Promise<Libp2pOptions<Libp2pServices>> => ({
  // The runtime derives the public key. libp2p would do so in JavaScript, which takes a tenth of the start.
  privateKey: privateKeyFromRaw(Buffer.concat([options.seed, fromHex(machineKeyOf(options.seed).machineId)])),
  start: false,
  nodeInfo: { userAgent: USER_AGENT },
  logger: { forComponent: () => nothing },
  addresses: { listen: [...options.listen], appendAnnounce: [...options.announce] },
  transports: [tcp(), ...(options.reach === undefined ? [] : [options.reach.client.transport])],
  connectionProtector: betweenSocketAndNoise,
  connectionEncrypters: [noiseEncrypter()],
  streamMuxers: [muxer],
  connectionGater: options.gater,
  connectionManager: {
    // The gate decides first. libp2p would refuse new connections, or close any existing one.
    maxConnections: MAX_CONNECTIONS + MAX_PENDING_CONNECTIONS,
    maxParallelDials: MAX_PARALLEL_DIALS,
    maxIncomingPendingConnections: MAX_PENDING_CONNECTIONS,
    inboundUpgradeTimeout: INBOUND_UPGRADE_MS,
    inboundConnectionThreshold: INBOUND_PER_SECOND_PER_HOST,
    maxPeerAddrsToDial: MAX_DIAL_ADDRESSES,
    dialTimeout: DIAL_MS,
    addressDialTimeout: ADDRESS_DIAL_MS,
  },
  // See `endUnanswered`.
  connectionMonitor: { enabled: false },
  peerDiscovery: options.mdns ? [mdns({ serviceTag: MDNS_SERVICE })] : [],
  peerStore: KEEP_ADDRESSES,
  datastore: options.dht?.store ?? new MemoryDatastore(),
  services: {
    peers: boundPeerStore,
    identify: identify(),
    pubsub: gossip,
    ...(options.reach && reachServices(options.reach)),
    ...(options.dht && { ping: claimPing, dht: hashTable(options.dht) }),
  },
})

/** libp2p's error text has a line for each address that failed. */
const FAILED_ADDRESS = /^\s*(\/\S+): (?:\w*Error: )?(.*)$/gm

const REASONS = [
  ['EADDRINUSE', 'the port is in use'],
  ['EACCES', 'this user may not take that port'],
  ['EADDRNOTAVAIL', 'this machine has no such address'],
] as const

const reasonOf = (text: string): string => REASONS.find(([code]) => text.includes(code))?.[1] ?? text

/** Error of a mesh that cannot listen, with the remedy. The code is `conflict` if the port is in use, otherwise `bad_config`. */
export const listenError = (listen: readonly string[], cause: unknown): AppError => {
  const text = errorText(cause)
  const failed = [...text.matchAll(FAILED_ADDRESS)].map(([, address = '', reason = '']) => `${address}: ${reasonOf(reason)}`)
  const what = failed.length > 0 ? failed.join('; ') : `${listen.join(', ')}: ${reasonOf(text.split('\n')[0] ?? '')}`
  const remedy = 'choose another address with --listen, or listen in config.toml, or stop the program that uses it'
  return new AppError(text.includes('EADDRINUSE') ? 'conflict' : 'bad_config', `cannot listen on ${what}; ${remedy}`, { cause })
}
