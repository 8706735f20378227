import { code, table } from './table.ts'

/** Private members of one object of a library. */
interface Reliance {
  /** The object, as `test/mesh/private-members.test.ts` finds it in a running node. */
  readonly object: string
  readonly members: readonly string[]
  /** File below `src/mesh/libp2p` that uses them. */
  readonly file: string
  readonly why: string
}

interface Library {
  /** The version whose source was read. */
  readonly version: string
  readonly reliances: readonly Reliance[]
}

/** Members of libp2p's libraries that their interfaces do not promise. The test looks for each in the pinned version. */
export const LIBRARIES: Readonly<Record<string, Library>> = {
  libp2p: {
    version: '3.3.11',
    reliances: [
      {
        object: 'connection',
        members: ['muxer', 'maConn'],
        file: 'muxer.ts',
        why: 'Find the meter of a connection, and open streams of x0x by its muxer while `maConn` is open.',
      },
    ],
  },
  '@libp2p/gossipsub': {
    version: '17.1.1',
    reliances: [
      { object: 'pubsub', members: ['handleReceivedRpc'], file: 'gossip.ts', why: 'Charge each batch before it is handled.' },
      {
        object: 'pubsub',
        members: ['handleIHave'],
        file: 'gossip.ts',
        why: 'Bound the batches that this daemon asks for. The answer of this member is all that is asked for.',
      },
      {
        object: 'pubsub',
        members: ['score'],
        file: 'gossip.ts',
        why: 'Reach the two members of the next row.',
      },
      {
        object: 'score',
        members: ['markInvalidMessageDelivery', 'duplicateMessage'],
        file: 'gossip.ts',
        why: 'Penalise a peer that brings an invalid message, and not a peer that brings the valid copy.',
      },
    ],
  },
  '@libp2p/kad-dht': {
    version: '16.4.5',
    reliances: [
      {
        object: 'dht',
        members: ['rpc', 'network', 'routingTable', 'peerRouting', 'contentFetching'],
        file: 'dht-inside.ts',
        why: 'Reach the members of the next rows.',
      },
      {
        object: 'rpc',
        members: ['handlers', 'handleMessage'],
        file: 'dht-inside.ts',
        why: 'Charge each request before it is handled, and keep three handlers only. Provider records are refused.',
      },
      {
        object: 'fetching',
        members: ['getMany'],
        file: 'dht-inside.ts',
        why: 'Get each valid value. A peer that refuses a correction does not end the search.',
      },
      {
        object: 'network',
        members: ['_writeReadMessage', 'safeDispatchEvent'],
        file: 'dht-inside.ts',
        why: 'See each machine that an answer names before the DHT does, bound them, and refuse an answer that names them in another way.',
      },
      {
        object: 'table',
        members: ['find', 'kb'],
        file: 'dht-inside.ts',
        why: 'Count the machines of the routing table, and enter named ones.',
      },
      {
        object: 'routing',
        members: ['getClosestPeersOffline'],
        file: 'dht-inside.ts',
        why: 'Name only servers to others. All machines in an answer come from this member.',
      },
    ],
  },
  '@chainsafe/libp2p-yamux': {
    version: '8.0.1',
    reliances: [
      {
        object: 'muxer',
        members: ['onData', 'status'],
        file: 'muxer.ts',
        why: 'Charge all input, keep no part of a frame that never ends, and close the connection after GoAway (`closed`). A data frame may arrive in parts, each with a header.',
      },
      { object: 'muxer', members: ['_newStream'], file: 'muxer.ts', why: 'Prepare each stream before its first byte.' },
      {
        object: 'muxer',
        members: ['ping', 'rtt'],
        file: 'heartbeat.ts',
        why: 'Close a connection that stays silent while a ping waits, and send no ping if data arrives. The timer of the library calls `ping` too.',
      },
      {
        object: 'stream',
        members: ['sendWindowUpdate', 'recvWindow', 'recvWindowCapacity', 'state'],
        file: 'muxer.ts',
        why: 'Send no window update for each small message. State 3 means established.',
      },
    ],
  },
  '@chainsafe/libp2p-noise': {
    version: '17.0.0',
    reliances: [
      { object: 'secured', members: ['decrypt'], file: 'noise.ts', why: 'Join the parts of a large message once.' },
      {
        object: 'secured',
        members: ['decoder'],
        file: 'noise.ts',
        why: 'Replace its `lengthDecoder`: an empty message ends the connection. A `RangeError` means that the length is incomplete; any other error ends the connection.',
      },
      {
        object: 'secured',
        members: ['stream', 'writeBuffer', 'processSendQueue', 'sendData'],
        file: 'write-coalescing.ts',
        why: 'Join small frames of one turn into one message, and send them before the connection ends. The `stream` of a TCP connection has a `socket`.',
      },
    ],
  },
  '@libp2p/tcp': {
    version: '11.0.28',
    reliances: [
      {
        object: 'wire',
        members: ['socket', 'sendData', 'sendReset'],
        file: 'socket.ts',
        why: 'Send the writes of one tick in one packet, also before a reset.',
      },
    ],
  },
  '@libp2p/utils': {
    version: '7.4.1',
    reliances: [
      {
        object: 'wire',
        members: ['onData', 'push'],
        file: 'socket.ts',
        why: 'Save the round trip of the agreement on Noise, and refuse a peer that does not propose Noise first.',
      },
      { object: 'wire', members: ['maxWriteBufferLength'], file: 'muxer.ts', why: 'Bound what waits for a peer that does not read.' },
    ],
  },
  '@libp2p/circuit-relay-v2': {
    version: '4.2.13',
    reliances: [
      {
        object: 'relay',
        members: ['onHop', 'stopHop'],
        file: 'relay.ts',
        why: 'Count and bound relayed data. `onHop` asks the other end by `stopHop`, then joins both streams.',
      },
      { object: 'transport', members: ['reservationStore'], file: 'relay.ts', why: 'Reach the members of the next row.' },
      {
        object: 'store',
        members: ['addRelay', 'getReservation', 'reservations', 'relayFilter'],
        file: 'relay.ts',
        why: 'Reserve places at chosen relays, give them up, and ask a relay again that refused before. The library renews each place by its `timeout`.',
      },
    ],
  },
  '@libp2p/dcutr': { version: '3.0.28', reliances: [] },
  '@libp2p/autonat-v2': { version: '2.0.15', reliances: [] },
}

export const libp2pVersions = (): string =>
  table(
    ['library', 'version'],
    Object.entries(LIBRARIES).map(([name, { version }]) => [code(name), version]),
  )

export const libp2pMembers = (): string =>
  table(
    ['library', 'private members', 'used in', 'to'],
    Object.entries(LIBRARIES).flatMap(([name, { reliances }]) =>
      reliances.map(({ members, file, why }) => [code(name), members.map(code).join(' '), code(file), why]),
    ),
  )
