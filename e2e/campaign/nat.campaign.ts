import assert from 'node:assert/strict'
import { test } from 'node:test'

import { behindNats } from '../../test/support/behind-nats.ts'
import { until } from '../../test/support/mesh-of-daemons.ts'
import { natProblem, NatNetworks } from '../../test/support/nat-networks.ts'

// Cases that last longer than a short relayed run: a direct path that opens during a run, and a relay that disappears.

const expected = (lines: number): string => Array.from({ length: lines }, (_, number) => `line ${number}\n`).join('')
const writes = (lines: number): string => `i=0; while [ $i -lt ${lines} ]; do echo line $i; i=$((i+1)); sleep 0.05; done`
/** Lasts longer than it takes to find a direct path and drop the relay. */
const OVER_A_MOVE = 500
/** Lasts longer than a lease. */
const OVER_A_LOSS = 200

test('a relayed run moves to a direct path once the NAT forwards a port, without losing a line', { skip: natProblem() }, async (t) => {
  const announced = { X0X_ANNOUNCE: new NatNetworks().worldAddress('right') }
  const { networks, mesh, alice, ray } = await behindNats(t, ({ root }) => [[`${root}/lines`]], announced)
  const program = await mesh.program('lines', writes(OVER_A_MOVE))
  const running = alice.startCli(['exec', 'bob', '--', program])
  await running.printed('line 20\n')
  assert.match(await alice.ok('peers'), /bob .*relayed by ray/)
  await networks.forward('right')
  const began = performance.now()
  await until('bob is reached directly', async () => /bob .*\bdirect\b/.test(await alice.ok('peers')), 60_000)
  console.log(`direct after ${Math.round(performance.now() - began)} ms`)
  const carried = async (): Promise<number> =>
    (await ray.get<{ reach: { carrying: { carried: unknown[] } } }>('/diagnostics/mesh')).reach.carrying.carried.length
  await until('the relay carries nothing any more, while the run goes on', async () => (await carried()) === 0)
  assert.equal(running.child.exitCode, null)
  const result = await running.finished
  assert.equal(result.status, 0, result.stderr)
  assert.equal(result.stdout.toString(), expected(OVER_A_MOVE))
  const { runs_resumed: moved } = await alice
    .get<{ requester: Record<string, number> }>('/diagnostics/exec')
    .then(({ requester }) => requester)
  assert.ok(moved! >= 1)
})

test(
  'a run whose relay is killed and restarted completes or ends as incomplete, and its output is never wrong',
  { skip: natProblem() },
  async (t) => {
    const { mesh, alice, ray } = await behindNats(t, ({ root }) => [[`${root}/lines`]])
    const program = await mesh.program('lines', writes(OVER_A_LOSS))
    const running = alice.startCli(['exec', 'bob', '--', program])
    await running.printed('line 20\n')
    process.kill(await ray.networkPid(), 'SIGKILL')
    const result = await running.finished
    // If the relay is back within the lease, the run is resumed. Otherwise the run must report the loss.
    if (result.status === 0) assert.equal(result.stdout.toString(), expected(OVER_A_LOSS))
    else assert.match(result.stderr, /lost|incomplete/)
    console.log(`status ${result.status}: ${result.stderr.trim().slice(0, 200)}`)
  },
)
