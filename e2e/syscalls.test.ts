import assert from 'node:assert/strict'
import { test } from 'node:test'

import { MeshOfDaemons } from '../test/support/mesh-of-daemons.ts'
import { straceNeeds, systemCalls } from '../test/support/strace.ts'

// What a run asks of the kernel is counted, not timed: what waits for a disk, and what starts a process.

const needs = straceNeeds()
const RUNS = 20
const COUNTED = ['fsync', 'fdatasync', 'sync_file_range', 'fork', 'vfork', 'clone', 'clone3', 'execve']

test(
  'a warm run waits for the disk twice where it runs and once where it is asked for, and starts one process',
  {
    timeout: 120_000,
    skip: needs === null ? false : `needs ${needs}`,
  },
  async (t) => {
    const mesh = await MeshOfDaemons.create()
    t.after(async () => mesh.stop())
    const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
    await Promise.all([alice.start(), bob.start()])
    await bob.writeAcl([{ agent: alice, commands: [['/bin/true']] }])
    await bob.restart()
    await alice.meet(bob, 'known')
    await bob.meet(alice, 'trusted')
    const runs = async (): Promise<void> => {
      for (let run = 0; run < RUNS; run++) assert.equal((await alice.exec(bob, ['/bin/true'])).status, 0)
    }
    await runs()
    const perRun = async (pid: number): Promise<Record<string, number>> =>
      Object.fromEntries([...(await systemCalls(pid, runs, COUNTED))].map(([name, count]) => [name, count / RUNS]))
    assert.deepEqual(await perRun(bob.pid), { fdatasync: 2, clone: 1, execve: 1 }, 'where it runs: its request, its end')
    assert.deepEqual(await perRun(alice.pid), { fdatasync: 1 }, 'where it is asked for: what is signed')
    assert.deepEqual(await perRun(await bob.networkPid()), {}, 'the half that faces the network does neither')
    assert.deepEqual(await perRun(await alice.networkPid()), {})
  },
)
