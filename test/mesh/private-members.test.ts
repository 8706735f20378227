import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { test, type TestContext } from 'node:test'

import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { circuitRelayServer, circuitRelayTransport, type CircuitRelayTransportComponents } from '@libp2p/circuit-relay-v2'
import type { Connection, Libp2p } from '@libp2p/interface'
import { identify, type Identify } from '@libp2p/identify'
import { peerIdFromString } from '@libp2p/peer-id'
import { tcp } from '@libp2p/tcp'
import { createLibp2p } from 'libp2p'

import { LIBRARIES } from '../../deploy/docs/libp2p.ts'
import { systemClock } from '../../src/base/clock.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { RecordValidator } from '../../src/mesh/dht-record.ts'
import { forgetGonePeers, IN_HASH_TABLE } from '../../src/mesh/libp2p/peer-store.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'
import { until } from '../support/processes.ts'

const textOf = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

/** The relay and the relay transport of libp2p before x0x wraps them. */
const relaying = async (t: TestContext): Promise<{ relay: Inside; transport: Inside; store: Inside }> => {
  let transport: unknown = null
  const relay = circuitRelayServer()
  const node = await createLibp2p({
    start: false,
    transports: [(components: CircuitRelayTransportComponents) => (transport = circuitRelayTransport()(components))],
    services: { identify: identify(), relay },
  })
  t.after(() => node.stop())
  return { relay: inside(node.services['relay']), transport: inside(transport), store: inside(inside(transport)['reservationStore']) }
}

const start = async (t: TestContext, listen: readonly string[]) => {
  const incoming: object[] = []
  const gater = { denyInboundConnection: ({ timeline }: { timeline: object }) => (incoming.push(timeline), false) }
  const node = await createLibp2p(
    await libp2pOptions({
      seed: randomBytes(32),
      listen,
      announce: [],
      mdns: false,
      gater,
      dht: { validator: new RecordValidator({ clock: systemClock, isNamed: () => false }), server: true },
    }),
  )
  await node.start()
  t.after(() => node.stop())
  return { node, incoming }
}

type Inside = Record<string, unknown>
const inside = (value: unknown): Inside => value as Inside

test('every private member that the mesh uses exists in the pinned versions of its libraries', { timeout: 60_000 }, async (t) => {
  const pinned = (JSON.parse(textOf('package.json')) as { devDependencies: Record<string, string> }).devDependencies
  for (const [name, { version }] of Object.entries(LIBRARIES)) {
    assert.equal((JSON.parse(textOf(`node_modules/${name}/package.json`)) as { version: string }).version, version, name)
    // The lock file alone pins the transitive dependencies.
    assert.equal(pinned[name] ?? version, version, `package.json: ${name}`)
  }
  const [here, there] = [await start(t, ['/ip4/127.0.0.1/tcp/0']), await start(t, [])]
  const connection = await there.node.dial(here.node.getMultiaddrs())
  await until(() => here.node.getConnections().length === 1)
  const [accepted] = here.node.getConnections()
  assert.ok(here.incoming.includes(accepted!.timeline))
  const { muxer, maConn } = inside(connection)
  const pubsub = inside(here.node.services.pubsub)
  const dht = inside(here.node.services.dht)
  const objects: Inside = {
    connection,
    muxer,
    stream: (muxer as { streams: unknown[] }).streams[0],
    secured: inside(muxer)['maConn'],
    wire: maConn,
    pubsub,
    dht,
    rpc: dht['rpc'],
    network: dht['network'],
    fetching: dht['contentFetching'],
    table: dht['routingTable'],
    routing: dht['peerRouting'],
    score: pubsub['score'],
    ...(await relaying(t)),
  }
  for (const { object, members, file } of Object.values(LIBRARIES).flatMap(({ reliances }) => reliances)) {
    const source = textOf(`src/mesh/libp2p/${file}`)
    for (const member of members) {
      assert.ok(member in (objects[object] as object), `${object}.${member}`)
      assert.match(source, new RegExp(`\\b${member}\\b`), `${file}: ${member}`)
    }
  }
})

test('disconnected peers are forgotten unless they are in the DHT routing table', { timeout: 60_000 }, async (t) => {
  const [here, there] = [await start(t, ['/ip4/127.0.0.1/tcp/0']), await start(t, [])]
  const { peerId, peerStore } = there.node
  await there.node.dial(here.node.getMultiaddrs())
  await until(async () => (await peerStore.get(here.node.peerId)).tags.has(IN_HASH_TABLE))
  const stranger = peerIdFromString(peerIdOf(machineKeyOf(randomBytes(32)).machineId))
  await peerStore.merge(stranger, { multiaddrs: here.node.getMultiaddrs() })
  await forgetGonePeers({ getConnections: () => [], peerStore })
  const left = (await peerStore.all()).map(({ id }) => id.toString()).filter((id) => id !== peerId.toString())
  assert.deepEqual(left, [here.node.peerId.toString()])
})

test('identify reveals the name of the program, and no version of it or of its libraries', { timeout: 60_000 }, async (t) => {
  const { node } = await start(t, ['/ip4/127.0.0.1/tcp/0'])
  const asking: Libp2p<{ identify: Identify }> = await createLibp2p({
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    services: { identify: identify({ runOnConnectionOpen: false }) },
  })
  t.after(() => asking.stop())
  const connection: Connection = await asking.dial(node.getMultiaddrs())
  const told = await asking.services.identify.identify(connection)
  // The name and version of the protocol itself, the same for all libp2p programs.
  assert.deepEqual([told.agentVersion, told.protocolVersion], ['x0x', 'ipfs/0.1.0'])
})
