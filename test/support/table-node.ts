import { randomBytes } from 'node:crypto'
import type { TestContext } from 'node:test'

import type { PeerId } from '@libp2p/interface'
import { createLibp2p } from 'libp2p'

import { RecordValidator } from '../../src/mesh/dht-record.ts'
import type { Answerer } from '../../src/mesh/libp2p/dht-inside.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'
import { IN_HASH_TABLE } from '../../src/mesh/libp2p/peer-store.ts'
import { RecordStore } from '../../src/mesh/libp2p/dht.ts'
import type { DhtDialer } from '../../src/mesh/libp2p/dht-dialer.ts'
import type { MachineId } from '../../src/protocol/ids.ts'
import { signalOf } from './hostile-link.ts'
import { ManualClock } from './manual-clock.ts'
import { until } from './processes.ts'

/** Allows all peers to query the DHT. */
export const ANSWER: Answerer = async (_machineId, _keep, answer) => answer()

type Options = Awaited<ReturnType<typeof libp2pOptions>>

interface NodeInit {
  readonly server: boolean
  readonly reach?: DhtDialer['reach']
  /** Replaces options of libp2p. */
  readonly change?: (options: Options) => Options
}

/** A libp2p node with our options, without any higher layer. */
export const startNode = async (t: TestContext, { server, reach, change = (options) => options }: NodeInit) => {
  const validator = new RecordValidator({ clock: new ManualClock(Date.now()), isNamed: () => false })
  const named = new Map<MachineId, readonly string[]>()
  const ways: DhtDialer = {
    named: (machineId, addresses) => void named.set(machineId, addresses),
    reach: reach ?? (async () => Promise.reject(new Error('nobody is dialled'))),
    met: () => undefined,
  }
  const store = new RecordStore({ validator })
  const dht = { validator, server, ways, store }
  const wish = { seed: randomBytes(32), listen: ['/ip4/127.0.0.1/tcp/0'], announce: [], mdns: false, gater: {}, dht }
  const names: string[] = []
  const dns = { query: async (name: string) => Promise.reject(new Error(`${names.push(name)} names were asked for`)) }
  const node = await createLibp2p({ ...change(await libp2pOptions(wish)), dns })
  await node.start()
  t.after(() => node.stop())
  return Object.assign(node, { names, named, store })
}
export type Node = Awaited<ReturnType<typeof startNode>>

/** Connects it, and waits until it queries this server. */
export const join = async (asker: Node, server: Node): Promise<void> => {
  await asker.dial(server.getMultiaddrs())
  await until(async () => (await asker.peerStore.get(server.peerId)).tags.has(IN_HASH_TABLE))
}

export const allOf = async <T>(all: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = []
  for await (const one of all) found.push(one)
  return found
}

interface Network {
  sendRequest(
    to: PeerId,
    question: object,
    options: object,
  ): AsyncIterable<{ readonly name: string; readonly closer?: readonly { readonly id: PeerId }[] }>
}

/** The events of one query to this server. The last is `PEER_RESPONSE` or an error. */
export const eventsOf = async (asker: Node, server: Node, question: object) => {
  const { network } = asker.services.dht as unknown as { network: Network }
  return allOf(network.sendRequest(server.peerId, question, { signal: signalOf(), path: {} }))
}
