import { yamux } from '@chainsafe/libp2p-yamux'
import { generateKeyPairFromSeed } from '@libp2p/crypto/keys'
import { gossipsub, type GossipSub } from '@libp2p/gossipsub'
import { identify, type Identify } from '@libp2p/identify'
import type { ConnectionGater, ConnectionProtector, Logger as LibraryLogger } from '@libp2p/interface'
import { mdns } from '@libp2p/mdns'
import { ping, type Ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import type { Libp2pOptions } from 'libp2p'

import { ANNOUNCE_TOPIC, MDNS_SERVICE } from '../protocol/card.ts'
import {
  ADDRESS_DIAL_MS,
  DIAL_MS,
  INBOUND_PER_SECOND_PER_HOST,
  INBOUND_UPGRADE_MS,
  KEEP_ALIVE_MS,
  MAX_CARD_BYTES,
  MAX_CONNECTIONS,
  MAX_DIAL_ADDRESSES,
  MAX_PARALLEL_DIALS,
  MAX_PENDING_CONNECTIONS,
  MAX_STREAM_WINDOW,
  MAX_STREAM_WRITE_BUFFER,
  MAX_STREAMS_PER_CONNECTION,
  PING_PATIENCE_MS,
} from '../protocol/limits.ts'
import { corkWrites } from './corked.ts'
import { agreeEarly, earlyStreams } from './early-stream.ts'
import { guardedMuxer } from './muxer-guard.ts'
import { noiseEncrypter } from './noise.ts'
import { quietWindows } from './quiet-windows.ts'

// A type, not an interface: libp2p wants its services indexable.
export type MeshServices = { identify: Identify; ping: Ping; pubsub: GossipSub }

export interface MeshOptions {
  /** The machine's 32-byte Ed25519 seed. */
  readonly seed: Uint8Array
  readonly listen: readonly string[]
  readonly announce: readonly string[]
  readonly mdns: boolean
  readonly gater: ConnectionGater
}

/** Room for the envelope of gossipsub around one announcement. */
const GOSSIP_OVERHEAD = 4096

/** Streams of gossipsub, identify and ping beside ours. */
const OTHER_STREAMS = 32

const muxer = earlyStreams(
  guardedMuxer(
    quietWindows(
      yamux({
        enableKeepAlive: true,
        keepAliveInterval: KEEP_ALIVE_MS,
        maxInboundStreams: MAX_STREAMS_PER_CONNECTION + OTHER_STREAMS,
        maxOutboundStreams: MAX_STREAMS_PER_CONNECTION + OTHER_STREAMS,
        streamOptions: { maxStreamWindowSize: MAX_STREAM_WINDOW, maxWriteBufferLength: MAX_STREAM_WRITE_BUFFER },
      }),
    ),
  ),
)

const pubsub = gossipsub({
  allowPublishToZeroTopicPeers: true,
  // Who published is proven by the machine's own key, so nobody can pass off another's announcement as new.
  globalSignaturePolicy: 'StrictSign',
  floodPublish: true,
  emitSelf: false,
  doPX: false,
  allowedTopics: [ANNOUNCE_TOPIC],
  maxInboundDataLength: 16 * (MAX_CARD_BYTES + GOSSIP_OVERHEAD),
  maxOutboundBufferSize: 64 * (MAX_CARD_BYTES + GOSSIP_OVERHEAD),
  // A fleet behind one NAT is not an attack: hosts with many peers are judged by what they send.
  scoreParams: { IPColocationFactorWeight: 0 },
})

/** libp2p's hook for private networks: the one place where a connection can be touched before Noise begins. */
const betweenSocketAndNoise = (): ConnectionProtector => ({
  protect: async (stream) => {
    corkWrites(stream)
    agreeEarly(stream)
    return stream
  },
})

/** libp2p formats what it would say for each frame and asks the terminal for each stream, whether anybody reads it or not. */
const nothing: LibraryLogger = Object.assign(() => undefined, {
  error: () => undefined,
  trace: () => undefined,
  enabled: false,
  newScope: () => nothing,
})

/** libp2p as we use it: TCP, Noise, yamux, identify, ping, gossipsub, and each small default raised on purpose. */
export const libp2pOptions = async (options: MeshOptions): Promise<Libp2pOptions<MeshServices>> => ({
  privateKey: await generateKeyPairFromSeed('Ed25519', options.seed),
  start: false,
  logger: { forComponent: () => nothing },
  addresses: { listen: [...options.listen], appendAnnounce: [...options.announce] },
  transports: [tcp()],
  connectionProtector: betweenSocketAndNoise,
  connectionEncrypters: [noiseEncrypter()],
  streamMuxers: [muxer],
  connectionGater: options.gater,
  connectionManager: {
    maxConnections: MAX_CONNECTIONS,
    maxParallelDials: MAX_PARALLEL_DIALS,
    maxIncomingPendingConnections: MAX_PENDING_CONNECTIONS,
    inboundUpgradeTimeout: INBOUND_UPGRADE_MS,
    inboundConnectionThreshold: INBOUND_PER_SECOND_PER_HOST,
    maxPeerAddrsToDial: MAX_DIAL_ADDRESSES,
    dialTimeout: DIAL_MS,
    addressDialTimeout: ADDRESS_DIAL_MS,
  },
  connectionMonitor: { pingTimeout: { minTimeout: PING_PATIENCE_MS } },
  peerDiscovery: options.mdns ? [mdns({ serviceTag: MDNS_SERVICE })] : [],
  services: { identify: identify(), ping: ping(), pubsub },
})
