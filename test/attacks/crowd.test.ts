import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { cp } from 'node:fs/promises'
import { connect as openSocket } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { FrameStream } from '../../src/links/frame-stream.ts'
import { LinkHandshake, SLOW_ANSWER_MS } from '../../src/links/link-handshake.ts'
import { primitives } from '../../src/identity/primitives.ts'
import { MeshStream } from '../../src/mesh/stream.ts'
import { MAX_LINK_FRAME } from '../../src/protocol/limits/wire.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../../src/protocol/wire/link.ts'
import { RATES } from '../../src/protocol/limits/mesh.ts'
import { connect, signalOf } from '../support/hostile-link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { introduce, startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { firstMessage, muxerHead, openGossip, rightlySigned, UnlistedPeer } from '../support/unlisted-peer.ts'
import { tempDir } from '../support/temp-dir.ts'
import { IDLE_CONNECTION_MS } from '../../src/mesh/connection.ts'
import { CROWD_FACTOR } from '../../src/mesh/sources.ts'

const LIMIT = { timeout: 90_000 }

/** Listens on all addresses of this machine, on `port`. */
const startOnAll = async (t: TestContext) => {
  const bob = await startPeer(t, { name: 'bob', listen: '/ip4/0.0.0.0/tcp/0' })
  const [address = ''] = bob.node.addresses().filter((one) => one.startsWith('/ip4/127.0.0.1/'))
  return { bob, address, port: Number(address.split('/')[4]) }
}

/** Opens one connection from each of 1,200 hosts at once. The limit for all hosts together lets only some of them in. */
const beginFromManyHosts = async (t: TestContext, bob: Peer, port: number): Promise<void> => {
  const hosts = 1_200
  const { burst, perSecond } = RATES.unlisted.connections
  const began = performance.now()
  const mayCome = (): number => CROWD_FACTOR * (burst + (perSecond * (performance.now() - began)) / 1000)
  const sockets = Array.from({ length: hosts }, (_, i) =>
    openSocket({ host: '127.0.0.1', port, localAddress: `127.77.${i >> 8}.${i & 255}` }).on('error', () => undefined),
  )
  t.after(() => {
    for (const socket of sockets) socket.destroy()
  })
  await until(() => bob.node.refusals().refused.too_fast >= hosts - mayCome())
  // Many were refused, so the wait above did not last until all could be let in.
  assert.ok(bob.node.refusals().refused.too_fast > hosts / 4)
}

test('many hosts together open few connections before Noise, and an expected contact still connects', LIMIT, async (t) => {
  const { bob, port } = await startOnAll(t)
  const late = await startPeer(t, { name: 'late', listen: null })
  // Bob expects contacts from the host in alice's card, and late connects from that host. No machine can dial late.
  await introduce(bob, await startPeer(t, { name: 'alice' }), 'unknown')
  await introduce(bob, late, 'trusted')
  await introduce(late, bob, 'unknown')
  await beginFromManyHosts(t, bob, port)
  assert.equal((await late.links.link(bob.agentId, signalOf())).agentId, bob.agentId)
  assert.equal(bob.node.connectionsTo(late.machineId)[0]?.inbound, true)
})

test('a machine that was connected when it became a contact connects again despite very many hosts', LIMIT, async (t) => {
  const { bob, port } = await startOnAll(t)
  const late = await startPeer(t, { name: 'late', listen: null })
  await introduce(late, bob, 'unknown')
  await connect(late, bob)
  await until(() => bob.knownAgents.list().some((seen) => seen.machine_id === late.machineId))
  await introduce(bob, late, 'trusted')
  await until(() => bob.node.isKnown(late.machineId))
  for (const connection of bob.node.connectionsTo(late.machineId)) connection.abort(new Error('lost'))
  await beginFromManyHosts(t, bob, port)
  assert.equal((await late.links.link(bob.agentId, signalOf())).agentId, bob.agentId)
  assert.equal(bob.node.connectionsTo(late.machineId)[0]?.inbound, true)
})

test('if unlisted peers are refused, a contact with a card for a new machine is still accepted', LIMIT, async (t) => {
  const [hub, alice] = [await startPeer(t, { name: 'hub' }), await startPeer(t, { name: 'alice' })]
  const bob = await startPeer(t, { name: 'bob', strangers: false })
  await introduce(bob, hub, 'trusted')
  await introduce(bob, alice, 'trusted')
  await until(() => bob.node.connectionsTo(hub.machineId).length > 0)
  const dataDir = await tempDir(t)
  await cp(join(alice.dataDir, 'agent.key'), join(dataDir, 'agent.key'))
  const moved = await startPeer(t, { name: 'moved', dataDir, listen: null, bootstrap: hub.node.addresses() })
  await introduce(moved, bob, 'trusted')
  assert.deepEqual([moved.agentId, moved.machineId === alice.machineId], [alice.agentId, false])
  await until(() => bob.knownAgents.list().some((seen) => seen.machine_id === moved.machineId))
  // It dials repeatedly, as a daemon does with a contact.
  await until(
    () =>
      bob.links.list().some((link) => link.machine_id === moved.machineId) ||
      (void moved.links.link(bob.agentId, signalOf()).catch(() => null), false),
  )
  assert.equal(bob.node.connectionsTo(moved.machineId)[0]?.inbound, true)
})

/** Begins a handshake, and returns a function that abandons it. */
const begin = async (from: Peer, to: Peer): Promise<() => void> => {
  const stream = await (await connect(from, to)).openStream(LINK_PROTOCOL, signalOf())
  stream.send(firstMessage())
  return () => stream.abort(new Error('left'))
}

test('a peer that abandons a handshake gets a penalty, unless the executor process was slow', LIMIT, async (t) => {
  const [bob, alice] = [await startPeer(t, { name: 'bob' }), await startPeer(t, { name: 'alice' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  const { linkAccept } = bob.executorClient
  let asked = 0
  const answerBy = (accept: typeof linkAccept): object => Object.assign(bob.executorClient, { linkAccept: accept })
  answerBy(async (call) => {
    const answer = await linkAccept(call)
    asked += 1
    await sleep(SLOW_ANSWER_MS + 500)
    return answer
  })
  const leave = await begin(alice, bob)
  await until(() => asked === 1)
  leave()
  await until(() => bob.counters.get('links_failed') === 1)
  assert.deepEqual(bob.node.refusals().penalties, [])
  answerBy(async (call) => {
    asked += 1
    return linkAccept(call)
  })
  const leaveAtOnce = await begin(alice, bob)
  await until(() => asked === 2)
  leaveAtOnce()
  await until(() => bob.counters.get('links_failed') === 2)
  assert.deepEqual(
    bob.node.refusals().penalties.map(({ offence }) => offence),
    ['handshake_failed'],
  )
})

test('a handshake that fails because this machine ends the connection is not a violation of the peer', LIMIT, async (t) => {
  const [bob, mallory, eve] = [
    await startPeer(t, { name: 'bob' }),
    await startPeer(t, { name: 'mallory' }),
    await startPeer(t, { name: 'eve' }),
  ]
  await begin(eve, bob)
  await connect(mallory, bob)
  await until(() => bob.node.connectionsTo(mallory.machineId).length > 0)
  const [connection] = bob.node.connectionsTo(mallory.machineId)
  while (!bob.node.refuses(connection!)) bob.node.penalise(connection!, 'bad_signature')
  await until(() => bob.counters.get('links_failed') === 1)
  assert.deepEqual(
    bob.node.refusals().penalties.map(({ offence }) => offence),
    ['bad_signature'],
  )
})

test('an open but unused stream does not keep the connection of an unlisted peer in use', LIMIT, async (t) => {
  const penaltyClock = new ManualClock()
  const [bob, mallory] = [await startPeer(t, { name: 'bob', penaltyClock }), await startPeer(t, { name: 'mallory' })]
  await introduce(mallory, bob, 'trusted')
  await mallory.links.link(bob.agentId, signalOf())
  const stream = await (await connect(mallory, bob)).openStream(DM_PROTOCOL, signalOf())
  const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
  await frames.read(signalOf())
  const [connection] = bob.node.connectionsTo(mallory.machineId)
  assert.equal(connection?.idle, false)
  await penaltyClock.advance(IDLE_CONNECTION_MS)
  assert.deepEqual([connection?.idle, frames.open], [true, true])
})

test('a gossip flood closes all connections of a machine, and counts once', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const seed = randomBytes(32)
  const unlistedPeer = await UnlistedPeer.start(t, seed)
  const holds = [await unlistedPeer.connect(bob.node.addresses()[0]!), await unlistedPeer.connect(bob.node.addresses()[0]!)]
  await until(() => bob.node.unlistedConnections() === holds.length)
  const gossip = await openGossip(holds.at(-1)!)
  const message = await rightlySigned(seed, 1, new Uint8Array(1))
  while (gossip.status === 'open') if (!gossip.send(message)) await sleep(5)
  await until(() => holds.every(({ connection }) => connection.status !== 'open'))
  // It counts as one flood. If each connection counted as one, the machine would be refused after the second.
  const [penalty, ...others] = bob.node.refusals().penalties
  assert.deepEqual([penalty?.offence, penalty?.refused, others.length], ['flood', false, 0])
})

/** A peer with this trust level completes its handshake and then sends an invalid muxer frame. An exception here would be a crash. */
const endedByNonsense = async (t: TestContext, level: 'known' | 'blocked'): Promise<void> => {
  const [alice, bob] = [await startPeer(t, { name: 'alice', listen: null }), await startPeer(t, { name: 'bob' })]
  await introduce(bob, alice, 'trusted')
  await bob.contacts.setTrust(alice.agentId, level)
  const crashes: unknown[] = []
  const crash = (error: unknown): void => void crashes.push(error)
  process.on('uncaughtException', crash)
  t.after(() => process.off('uncaughtException', crash))
  const hostile = await UnlistedPeer.start(t, alice.machineKey.seed)
  const { connection, wire } = await hostile.connect(bob.node.addresses()[0]!)
  const stream = new MeshStream({ stream: await connection.newStream(LINK_PROTOCOL), connection: { noteHeard() {} } }, { early: false })
  const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
  const parts = { executor: alice.executorClient, machineKey: alice.machineKey, primitives: primitives(), frames }
  await new LinkHandshake(parts, { peer: bob.machineId }).initiate(signalOf())
  await until(() => bob.links.list().length === 1)
  wire.send(muxerHead(9, 0, 0, 0))
  await until(() => bob.links.list().length === 0 && bob.node.connectionsTo(alice.machineId).length === 0)
  await sleep(50)
  assert.deepEqual(crashes, [])
}

test('a known peer that ends its link with an unknown yamux frame causes no crash', LIMIT, async (t) => endedByNonsense(t, 'known'))
test('a blocked peer that ends its link with an unknown yamux frame causes no crash', LIMIT, async (t) => endedByNonsense(t, 'blocked'))
