import { randomBytes } from 'node:crypto'
import type { TestContext } from 'node:test'

import { yamux } from '@chainsafe/libp2p-yamux'
import { circuitRelayServer, type CircuitRelayServerComponents } from '@libp2p/circuit-relay-v2'
import { generateKeyPairFromSeed } from '@libp2p/crypto/keys'
import { identify } from '@libp2p/identify'
import type { Connection, Libp2p, PeerId, Stream } from '@libp2p/interface'
import { noise } from '@chainsafe/libp2p-noise'
import { peerIdFromString } from '@libp2p/peer-id'
import { tcp } from '@libp2p/tcp'
import { createLibp2p } from 'libp2p'

import { peerIdOf } from '../../src/identity/machine-key.ts'
import type { MachineId } from '../../src/protocol/ids.ts'

/** Replaces a chunk in transit. `index` counts the chunks of one relayed connection in both directions. Null forwards it unchanged. */
export type Tamper = ((chunk: Uint8Array, index: number) => readonly Uint8Array[]) | null

interface Stop {
  readonly connection: Connection
  request: { peer: { id: Uint8Array; addrs: Uint8Array[] } }
}
type Server = {
  makeReservation(peer: PeerId, expire: bigint): Promise<unknown>
  onHop(stream: Stream, connection: Connection): Promise<void>
  stopHop(stop: Stop, options: object): Promise<Stream | undefined>
}

/** libp2p's relay without access control, run by an attacker who reads and changes the traffic. */
export class HostileRelay {
  tamper: Tamper = null
  /** The machine to which it connects every client, instead of the requested one. */
  leadsTo: MachineId | null = null
  /** The machine ID that it reports for the other end. */
  callsThem: MachineId | null = null
  /** The expiry time that it reports for reservations, in seconds. */
  saysUntil: bigint | null = null
  /** All traffic that it has relayed, in order of arrival. */
  readonly seen: Buffer[] = []
  carried = 0
  #node: Libp2p | null = null

  async start(t: Pick<TestContext, 'after'>): Promise<this> {
    const relay = (components: CircuitRelayServerComponents): unknown => {
      const server = circuitRelayServer({ reservations: { applyDefaultLimit: false } })(components) as unknown as Server
      this.#seize(server)
      return server
    }
    this.#node = await createLibp2p({
      privateKey: await generateKeyPairFromSeed('Ed25519', randomBytes(32)),
      addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
      transports: [tcp()],
      connectionEncrypters: [noise()],
      streamMuxers: [yamux()],
      connectionGater: { denyDialMultiaddr: () => false },
      services: { identify: identify(), relay },
    })
    t.after(() => this.#node?.stop())
    return this
  }

  get addresses(): string[] {
    return this.#node!.getMultiaddrs().map(String)
  }

  #seize(server: Server): void {
    const { onHop, stopHop, makeReservation } = server
    server.makeReservation = async (peer, expire) => makeReservation.call(server, peer, this.saysUntil ?? expire)
    const hops: Stream[] = []
    server.onHop = async (stream, connection) => {
      hops.push(stream)
      await onHop.call(server, stream, connection)
    }
    server.stopHop = async (stop, options) => {
      if (this.callsThem !== null) stop.request.peer.id = peerIdFromString(peerIdOf(this.callsThem)).toMultihash().bytes
      const other = this.leadsTo === null ? undefined : this.#node!.getConnections(peerIdFromString(peerIdOf(this.leadsTo)))[0]
      const there = await stopHop.call(server, { ...stop, connection: other ?? stop.connection }, options)
      const here = hops.at(-1)!
      let index = -1
      // The relay's message about the connection must precede the first relayed byte.
      if (there !== undefined) setImmediate(() => [here, there].forEach((stream) => this.#between(stream, () => ++index)))
      this.carried += 1
      return there
    }
  }

  #between(stream: Stream, next: () => number): void {
    const send = stream.send.bind(stream)
    stream.send = (data) => {
      const chunk = data.subarray()
      this.seen.push(Buffer.from(chunk))
      const at = next()
      let room = true
      for (const piece of this.tamper === null ? [chunk] : this.tamper(chunk, at)) room = send(piece) && room
      return room
    }
  }
}
