import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import { multiaddr } from '@multiformats/multiaddr'
import { peerIdFromString } from '@libp2p/peer-id'
import { createLibp2p } from 'libp2p'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { machineIdOfText, peerIdOf } from '../../src/identity/machine-key.ts'
import { relayedAddress } from '../../src/mesh/addresses.ts'
import { RecordValidator } from '../../src/mesh/dht-record.ts'
import {
  ENGINE_ADDRESSES_OF_SERVER,
  ENGINE_ADDRESSES_PER_MINUTE,
  ENGINE_DIALS_AT_ONCE,
  ENGINE_DIALS_OF_MACHINE,
  EngineDials,
  MAX_ENGINE_UNLISTED,
} from '../../src/mesh/library-dials.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'
import type { MachineId } from '../../src/protocol/ids.ts'
import { ADDRESS_DIAL_MS, MAX_DIAL_ADDRESSES } from '../../src/protocol/limits/wire.ts'
import { signalOf } from '../support/hostile-link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const machineOf = (n: number): MachineId => machineKeyOf(Buffer.alloc(32, `machine${n}`)).machineId
const OWN = ['/ip4/192.0.2.1/tcp/1']
const RELAYED = relayedAddress(`${OWN[0]}/p2p/${peerIdOf(machineOf(98))}`, machineOf(99))
const [SERVER, OTHER] = ['server', 'other']

interface Mesh {
  unlistedDialled: number
  readonly known: Set<MachineId>
  readonly dialled: (readonly string[])[]
  /** Result of a dial. */
  answer: () => Promise<void>
}

const setUp = ({ strangers = true } = {}) => {
  const clock = new ManualClock()
  const mesh: Mesh = { unlistedDialled: 0, known: new Set(), dialled: [], answer: async () => undefined }
  const parts = {
    clock,
    addressesOf: () => [RELAYED, ...OWN],
    dial: async (_machineId: MachineId, addresses: readonly string[]) => (mesh.dialled.push(addresses), mesh.answer()),
    isKnown: (machineId: MachineId) => mesh.known.has(machineId),
    onServer: () => undefined,
    sourceOf: (machineId: MachineId) => `host of ${machineId}`,
    unlistedDialled: () => mesh.unlistedDialled,
  }
  const dials = new EngineDials(parts, { acceptsUnlisted: strangers })
  const reaches = async (machineId: MachineId, own: readonly string[] = []): Promise<boolean> =>
    dials.reach(machineId, own, signalOf()).then(
      () => true,
      () => false,
    )
  /** Number of dials for `count` machines that this server names, with one address each. */
  const passed = async (count: number, { server = SERVER, from = 0 } = {}): Promise<number> => {
    let all = 0
    for (let i = from; i < from + count; i++) {
      dials.named(machineOf(i), ['/ip4/203.0.113.1/tcp/1'], server)
      if (await reaches(machineOf(i))) all += 1
    }
    return all
  }
  return { clock, mesh, dials, reaches, passed }
}

test('dials to addresses that DHT servers name are limited per server and in total, each minute', async () => {
  const { clock, passed } = setUp()
  assert.equal(await passed(2 * ENGINE_ADDRESSES_OF_SERVER), ENGINE_ADDRESSES_OF_SERVER)
  // Another server has its own share.
  assert.equal(await passed(1, { server: OTHER, from: ENGINE_ADDRESSES_OF_SERVER }), 1)
  let all = ENGINE_ADDRESSES_OF_SERVER + 1
  for (let i = 0; i < 4; i++) all += await passed(ENGINE_ADDRESSES_OF_SERVER, { server: `server${i}`, from: 1_000 * (i + 1) })
  assert.equal(all, ENGINE_ADDRESSES_PER_MINUTE)
  await clock.advance(60_000)
  assert.equal(await passed(2 * ENGINE_ADDRESSES_OF_SERVER, { from: 10_000 }), ENGINE_ADDRESSES_OF_SERVER)
})

test('each address of a machine counts as a dial', async () => {
  const { dials, mesh, reaches } = setUp()
  const addresses = Array.from({ length: MAX_DIAL_ADDRESSES }, (_, i) => `/ip4/203.0.113.${i}/tcp/1`)
  for (let i = 0; i < ENGINE_ADDRESSES_OF_SERVER; i++) {
    dials.named(machineOf(i), addresses, SERVER)
    await reaches(machineOf(i))
  }
  assert.equal(mesh.dialled.flat().length, ENGINE_ADDRESSES_OF_SERVER)
})

test('a known machine is dialled only at its own and stored addresses, directly and at a limited rate', async () => {
  const { clock, dials, mesh, reaches } = setUp()
  const [known, said] = [machineOf(1), ['/ip4/192.0.2.2/tcp/2', ...OWN]]
  mesh.known.add(known)
  const dialled = async (): Promise<number> => {
    for (let i = 0; i < 2 * ENGINE_DIALS_OF_MACHINE; i++) {
      dials.named(known, ['/ip4/203.0.113.1/tcp/1'], SERVER)
      await reaches(known, said.slice(0, 1))
    }
    return mesh.dialled.length
  }
  assert.equal(await dialled(), ENGINE_DIALS_OF_MACHINE)
  await clock.advance(60_000)
  assert.equal(await dialled(), 2 * ENGINE_DIALS_OF_MACHINE)
  for (const addresses of mesh.dialled) assert.deepEqual(addresses, said)
  // A machine that is not known any more is not dialled either.
  mesh.known.delete(known)
  await clock.advance(60_000)
  assert.ok(!(await reaches(known)))
})

test('an unlisted machine is dialled at the address that it gave itself and not where a server says', async () => {
  const { dials, mesh, reaches } = setUp()
  dials.named(machineOf(1), ['/ip4/203.0.113.1/tcp/1'], SERVER)
  assert.ok(await reaches(machineOf(1), OWN))
  assert.deepEqual(mesh.dialled, [OWN])
  assert.ok(!(await reaches(machineOf(2))), 'no address is known')
})

test('an unlisted machine that hangs up after each dial uses up no dials of others', async () => {
  const { reaches, passed } = setUp()
  let again = 0
  for (let i = 0; i < 2 * ENGINE_ADDRESSES_OF_SERVER; i++) {
    if ((await passed(1)) > 0) again += 1
  }
  assert.equal(again, ENGINE_DIALS_OF_MACHINE)
  assert.ok(!(await reaches(machineOf(0), OWN)))
  assert.equal(await passed(2 * ENGINE_ADDRESSES_OF_SERVER, { from: 1 }), ENGINE_ADDRESSES_OF_SERVER - ENGINE_DIALS_OF_MACHINE)
})

test('named machines that never answer do not delay dials to known machines or own addresses', async () => {
  const { dials, mesh, reaches } = setUp()
  const left = new AbortController()
  mesh.answer = async () => new Promise((_resolve, reject) => left.signal.addEventListener('abort', () => reject(new Error('left'))))
  const waiting = Array.from({ length: 2 * ENGINE_DIALS_AT_ONCE }, async (_, i) => {
    dials.named(machineOf(i), ['/ip4/203.0.113.1/tcp/1'], SERVER)
    return reaches(machineOf(i))
  })
  await turn()
  assert.equal(mesh.dialled.length, ENGINE_DIALS_AT_ONCE)
  mesh.answer = async () => undefined
  mesh.known.add(machineOf(100))
  assert.deepEqual(await Promise.all([reaches(machineOf(100)), reaches(machineOf(101), OWN)]), [true, true])
  left.abort()
  await Promise.all(waiting)
})

test('the DHT dials no unlisted machine if their places are taken or if they are not admitted', async () => {
  const { mesh, passed } = setUp()
  mesh.unlistedDialled = MAX_ENGINE_UNLISTED
  assert.equal(await passed(1), 0)
  mesh.unlistedDialled -= 1
  assert.equal(await passed(1), 1)
  assert.equal(await setUp({ strangers: false }).passed(8), 0)
})

test('a connection is allowed while one of our own dials to it lasts, or if the machine is known', async () => {
  const { dials, mesh } = setUp()
  const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const [one, two] = [first, second].map(async ({ promise }) => dials.ours(machineOf(1), async () => promise))
  assert.deepEqual([dials.may(machineOf(1)), dials.may(machineOf(2))], [true, false])
  first.reject(new Error('not there'))
  await assert.rejects(one!)
  assert.ok(dials.may(machineOf(1)))
  second.resolve()
  await two
  assert.ok(!dials.may(machineOf(1)))
  mesh.known.add(machineOf(1))
  assert.ok(dials.may(machineOf(1)))
})

type Handlers = {
  rpc: { handlers: Record<string, { handle(peer: unknown, message: { type: string; key: Uint8Array }): Promise<unknown> }> }
}

/** A DHT server that answers every query with these machines. */
const startHostile = async (t: TestContext, closer: () => { id: Uint8Array; multiaddrs: Uint8Array[] }[]) => {
  const validator = new RecordValidator({ clock: new ManualClock(), isNamed: () => false })
  const wish = { seed: randomBytes(32), listen: ['/ip4/127.0.0.1/tcp/0'], announce: [], mdns: false, gater: {} }
  const hostile = await createLibp2p(await libp2pOptions({ ...wish, dht: { validator, server: true } }))
  const lie = async (_peer: unknown, { type, key }: { type: string; key: Uint8Array }): Promise<unknown> => ({
    type,
    key,
    clusterLevel: 0,
    closer: closer(),
    providers: [],
  })
  const { handlers } = (hostile.services.dht as unknown as Handlers).rpc
  for (const type of ['FIND_NODE', 'GET_VALUE']) handlers[type]!.handle = lie
  await hostile.start()
  t.after(() => hostile.stop())
  return hostile.getMultiaddrs().map(String)
}

const idOf = (machineId: MachineId): Uint8Array => peerIdFromString(peerIdOf(machineId)).toMultihash().bytes

/** An unrelated host that handles incoming connections with `onSocket`. */
const startVictim = async (t: TestContext, onSocket: (socket: Socket) => void) => {
  const sockets = new Set<Socket>()
  const victim = createServer((socket) => {
    socket.on('error', () => undefined)
    sockets.add(socket)
    onSocket(socket)
  })
  victim.listen(0, '127.0.0.1')
  await once(victim, 'listening')
  t.after(() => {
    for (const socket of sockets) socket.destroy()
    victim.close()
  })
  const text = `/ip4/127.0.0.1/tcp/${(victim.address() as AddressInfo).port}`
  return { at: multiaddr(text).bytes, came: () => sockets.size }
}

const LIMIT = { timeout: 120_000 }

test('a DHT server that names machines without end causes a limited number of dials', LIMIT, async (t) => {
  const { at, came } = await startVictim(t, (socket) => socket.destroy())
  let named = 0
  const bootstrap = await startHostile(t, () => Array.from({ length: 20 }, () => ({ id: idOf(machineOf(named++)), multiaddrs: [at] })))
  const begun = performance.now()
  const asker = await startPeer(t, { name: 'asker', dht: 'client', bootstrap })
  await until(async () => {
    await asker.records.find(agentSignerOf(randomBytes(32)).agentId, signalOf()).catch(() => undefined)
    return named > 4 * ENGINE_ADDRESSES_OF_SERVER
  })
  const minutes = (performance.now() - begun) / 60_000
  assert.ok(came() > 0, 'nobody was dialled')
  assert.ok(came() <= ENGINE_ADDRESSES_OF_SERVER * (1 + minutes), `${came()} of ${named} were dialled`)
})

test('a known machine is not dialled at an address that a DHT server names', LIMIT, async (t) => {
  const { at, came } = await startVictim(t, (socket) => socket.destroy())
  const known = await startPeer(t, { name: 'known', dht: 'server' })
  let answered = 0
  const bootstrap = await startHostile(t, () => (answered++, [{ id: idOf(known.machineId), multiaddrs: [at] }]))
  const asker = await startPeer(t, { name: 'asker', dht: 'client' })
  await introduce(asker, known, 'unknown')
  await until(() => asker.node.isKnown(known.machineId))
  await asker.node.dial(machineIdOfText(bootstrap[0]!.split('/p2p/')[1]!)!, bootstrap, signalOf())
  await until(async () => {
    await asker.records.find(agentSignerOf(randomBytes(32)).agentId, signalOf()).catch(() => undefined)
    return answered > 4 && asker.node.connectionsTo(known.machineId).length > 0
  })
  assert.equal(came(), 0)
})

test('an awaited dial does not wait for a dial of the DHT to an invented address', LIMIT, async (t) => {
  // The host accepts data and never answers.
  const { at, came } = await startVictim(t, () => undefined)
  const wanted = await startPeer(t, { name: 'wanted' })
  const bootstrap = await startHostile(t, () => [{ id: idOf(wanted.machineId), multiaddrs: [at] }])
  const asker = await startPeer(t, { name: 'asker', dht: 'client', bootstrap })
  await until(() => came() > 0)
  const before = performance.now()
  await asker.node.dial(wanted.machineId, wanted.node.addresses(), signalOf())
  assert.ok(performance.now() - before < ADDRESS_DIAL_MS / 2)
})
