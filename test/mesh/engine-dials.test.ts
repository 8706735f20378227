import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { test } from 'node:test'

import { multiaddr } from '@multiformats/multiaddr'
import { peerIdFromString } from '@libp2p/peer-id'
import { createLibp2p } from 'libp2p'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/peer-id.ts'
import { RecordJudge } from '../../src/mesh/dht-record.ts'
import { ENGINE_DIALS_OF_MACHINE, ENGINE_DIALS_PER_MINUTE, EngineDials, MAX_ENGINE_STRANGERS } from '../../src/mesh/engine-dials.ts'
import { FOUND_STRANGERS_PER_MINUTE } from '../../src/mesh/found-machines.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'
import type { MachineId } from '../../src/protocol/ids.ts'
import { signalOf } from '../support/hostile-link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const machineOf = (n: number): MachineId => machineKeyOf(Buffer.alloc(32, `machine${n}`)).machineId

const setUp = ({ strangers = true } = {}) => {
  const clock = new ManualClock()
  const mesh = { dialled: 0, known: new Set<MachineId>() }
  const parts = { clock, isKnown: (machineId: MachineId) => mesh.known.has(machineId), strangersDialled: () => mesh.dialled }
  const dials = new EngineDials(parts, { strangers })
  const passed = (count: number): number => Array.from({ length: count }, (_, i) => dials.may(machineOf(i))).filter(Boolean).length
  return { clock, mesh, dials, passed }
}

test('of strangers the hash table may dial so many a minute, and of those we know any number', async () => {
  const { clock, mesh, passed } = setUp()
  assert.equal(passed(2 * ENGINE_DIALS_PER_MINUTE), ENGINE_DIALS_PER_MINUTE)
  mesh.known.add(machineOf(1))
  assert.equal(passed(2 * ENGINE_DIALS_PER_MINUTE), 1)
  await clock.advance(60_000)
  assert.equal(passed(2 * ENGINE_DIALS_PER_MINUTE), ENGINE_DIALS_PER_MINUTE + 1)
})

test('a stranger that hangs up whenever it is reached takes no turns of others', async () => {
  const { dials, passed } = setUp()
  const again = Array.from({ length: 2 * ENGINE_DIALS_PER_MINUTE }, () => dials.may(machineOf(0)))
  assert.equal(again.filter(Boolean).length, ENGINE_DIALS_OF_MACHINE)
  assert.equal(passed(2 * ENGINE_DIALS_PER_MINUTE), ENGINE_DIALS_PER_MINUTE - ENGINE_DIALS_OF_MACHINE)
})

test('where as many strangers are connected as may be, or none may come, the hash table dials none', () => {
  const { dials, mesh } = setUp()
  mesh.dialled = MAX_ENGINE_STRANGERS
  assert.ok(!dials.may(machineOf(1)))
  mesh.dialled -= 1
  assert.ok(dials.may(machineOf(1)))
  assert.equal(setUp({ strangers: false }).passed(8), 0)
})

test('what we dial ourselves is let through as long as any dial of ours lasts', async () => {
  const { dials } = setUp({ strangers: false })
  const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const [one, two] = [first, second].map(async ({ promise }) => dials.ours(machineOf(1), async () => promise))
  assert.deepEqual([dials.may(machineOf(1)), dials.may(machineOf(2))], [true, false])
  first.reject(new Error('not there'))
  await assert.rejects(one!)
  assert.ok(dials.may(machineOf(1)))
  second.resolve()
  await two
  assert.ok(!dials.may(machineOf(1)))
})

type Handlers = {
  rpc: { handlers: Record<string, { handle(peer: unknown, message: { type: string; key: Uint8Array }): Promise<unknown> }> }
}

test('a server of the hash table that names machines without end has us dial a bounded number of them', { timeout: 120_000 }, async (t) => {
  let dialled = 0
  const victim = createServer((socket) => {
    dialled += 1
    socket.destroy()
  })
  victim.listen(0, '127.0.0.1')
  await once(victim, 'listening')
  t.after(() => victim.close())
  const there = multiaddr(`/ip4/127.0.0.1/tcp/${(victim.address() as AddressInfo).port}`).bytes
  const judge = new RecordJudge({ clock: new ManualClock() })
  const options = await libp2pOptions({
    seed: randomBytes(32),
    listen: ['/ip4/127.0.0.1/tcp/0'],
    announce: [],
    mdns: false,
    gater: {},
    dht: { judge, server: true },
  })
  const hostile = await createLibp2p(options)
  let named = 0
  const lie = async (_peer: unknown, { type, key }: { type: string; key: Uint8Array }): Promise<unknown> => {
    const machines = Array.from({ length: 20 }, () => peerIdFromString(peerIdOf(machineOf(named++))).toMultihash().bytes)
    return { type, key, clusterLevel: 0, closer: machines.map((id) => ({ id, multiaddrs: [there] })), providers: [] }
  }
  const { handlers } = (hostile.services.dht as unknown as Handlers).rpc
  for (const type of ['FIND_NODE', 'GET_VALUE']) handlers[type]!.handle = lie
  await hostile.start()
  t.after(() => hostile.stop())
  // Each machine of which libp2p hears is found as well, and those have a bound of their own.
  const most = ENGINE_DIALS_PER_MINUTE + FOUND_STRANGERS_PER_MINUTE
  const begun = performance.now()
  const asker = await startPeer(t, { name: 'asker', dht: 'client', bootstrap: hostile.getMultiaddrs().map(String) })
  await until(async () => {
    await asker.records.find(agentSignerOf(randomBytes(32)).agentId, signalOf()).catch(() => undefined)
    return named > 4 * most
  })
  const minutes = (performance.now() - begun) / 60_000
  assert.ok(dialled > 0, 'nobody was dialled')
  assert.ok(dialled <= most * (1 + minutes), `${dialled} of ${named} were dialled`)
})
