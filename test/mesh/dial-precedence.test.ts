import assert from 'node:assert/strict'
import { test } from 'node:test'

import { silentLogger } from '../../src/base/log.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import type { MeshConnection } from '../../src/mesh/connection.ts'
import { Dialler, type DialOptions } from '../../src/mesh/dialler.ts'
import { DirectUpgrades } from '../../src/mesh/direct-upgrades.ts'
import { MAX_PARALLEL_DIALS, MAX_UNAWAITED_DIALS } from '../../src/protocol/limits/wire.ts'
import { DIRECT_RETRY_MIN_MS } from '../../src/protocol/limits/mesh.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { fake } from '../support/fake.ts'

const machineOf = (n: number) => {
  const { machineId } = machineKeyOf(Buffer.alloc(32, `machine${n}`))
  return { machineId, address: `/ip4/192.0.2.1/tcp/5483/p2p/${peerIdOf(machineId)}` }
}
const [{ machineId, address }, self, relay] = [machineOf(0), machineOf(1).machineId, machineOf(2).machineId]

/** A node whose addresses never answer. */
const setUp = () => {
  const going: AbortSignal[] = []
  const dialler = new Dialler({
    isKnown: () => true,
    ownAddresses: () => [],
    dialRelayed: async () => Promise.reject(new Error('no relay')),
    dial: async (_machine, _address, { signal }) => {
      going.push(signal)
      return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))
    },
  })
  const node = {
    machineId: self,
    isKnown: () => true,
    connections: () => [{ machineId, relay, open: true } as MeshConnection],
    connectionsTo: (): MeshConnection[] => [],
    handle: () => undefined,
    dial: async (to: string, addresses: readonly string[], signal: AbortSignal, how?: DialOptions): Promise<MeshConnection> => {
      await dialler.dial(to, addresses, signal, how)
      return assert.fail('nobody answers')
    },
  }
  return { dialler, going, node, clock: new ManualClock() }
}

const turns = async (): Promise<void> => {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
}

/** Checks that an awaited dial ends the dial in progress and continues by itself. */
const givesWay = async ({ dialler, going }: ReturnType<typeof setUp>): Promise<void> => {
  await turns()
  assert.equal(going.length, 1)
  const left = new AbortController()
  const awaited = dialler.dial(machineId, [address], left.signal)
  await turns()
  assert.deepEqual(
    going.map(({ aborted }) => aborted),
    [true, false],
  )
  left.abort(new Error('left'))
  await assert.rejects(awaited, { message: 'left' })
}

test('an attempt to upgrade to a direct connection is ended for an awaited dial', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const world = setUp()
  const ways = new DirectUpgrades({ ...world, node: world.node as never, book: fake({ addressesOf: () => [address] }), log: silentLogger })
  ways.start()
  t.after(() => ways.stop())
  t.mock.timers.tick(1_000)
  await world.clock.advance(DIRECT_RETRY_MIN_MS)
  t.mock.timers.tick(1_000)
  await givesWay(world)
})

test('background dials leave places free for awaited dials', async () => {
  const { dialler, going } = setUp()
  const left = new AbortController()
  const dial = async (n: number, background: boolean): Promise<unknown> => {
    const to = machineOf(n)
    return dialler.dial(to.machineId, [to.address], left.signal, { background }).catch(() => undefined)
  }
  const all = Array.from({ length: 2 * MAX_PARALLEL_DIALS }, async (_, i) => dial(i, true))
  await turns()
  assert.equal(going.length, MAX_UNAWAITED_DIALS)
  all.push(dial(100, false))
  await turns()
  assert.equal(going.length, MAX_UNAWAITED_DIALS + 1)
  left.abort(new Error('left'))
  await Promise.all(all)
})
