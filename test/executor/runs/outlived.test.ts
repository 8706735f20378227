import assert from 'node:assert/strict'
import { test } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { TimeSlicer } from '../../../src/base/time-slices.ts'
import { ProcessTree } from '../../../src/process/process-tree.ts'
import type { CgroupLeaf } from '../../../src/process/cgroups.ts'
import type { ProcessTrees } from '../../../src/process/process-trees.ts'
import { spawnPermitted } from '../../../src/process/spawn.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import { LocalHost } from '../../support/local-engine.ts'
import { permitFor } from '../../support/permit.ts'
import { groupCells, isAlive, script, startGuardian, until } from '../../support/processes.ts'

const sharing = new TimeSlicer({ clock: systemClock })
const GROUP = { containment: 'group', leaf: null, mark: null, sharing, onStuck: () => undefined } as const

/** A process tree like that of a program that changed its user, so that the kernel refuses signals to it. */
class DeafTree extends ProcessTree {
  override signal(): void {}
  override get refusesSignals(): boolean {
    return true
  }
}

/** Process trees that are all created by `make`. */
const treesOf = async (make: () => ProcessTree): Promise<ProcessTrees> => {
  const trees = await groupCells()
  trees.open = () => ({ kind: 'open', tree: make(), inNamespace: false })
  return trees
}

/** Parts of a control group. The other parts do nothing. */
const leafOf = (parts: Partial<CgroupLeaf>): CgroupLeaf =>
  ({
    isStuck: false,
    enter: (spawn: () => unknown) => spawn(),
    confine: () => undefined,
    kill: () => undefined,
    end: async () => true,
    ...parts,
  }) as unknown as CgroupLeaf

test('a program that cannot be killed occupies its concurrency slot until it is dead, even after its run', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, {
    scripts: { waits: 'echo up; exec sleep 1000', hello: 'echo hi' },
    keys: 'max_concurrent_per_agent = 1\nmax_concurrent_total = 1',
    trees: await treesOf(() => new DeafTree(GROUP)),
  })
  const run = await link.ask([host.program('waits')])
  const { pid } = await run.frame('started')
  t.after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'))
  await run.frame('stdout')
  run.cancel()
  const { code, signal, truncated } = await run.exit()
  assert.deepEqual([code, signal, truncated, isAlive(pid)], [null, null, true, true])
  for (let count = 0; count < 3; count++)
    assert.equal(await (await link.ask([host.program('hello')])).denial(), 'concurrency_limit_reached')
  process.kill(pid, 'SIGKILL')
  let outcome: string | null = 'concurrency_limit_reached'
  await until(async () => {
    outcome = (await (await link.ask([host.program('hello')])).exit()).denial_reason
    return outcome !== 'concurrency_limit_reached'
  })
  assert.equal(outcome, null)
})

test('a program that cannot be killed also keeps the place of its session', async (t) => {
  const host = await LocalHost.start(t, {
    scripts: { waits: 'echo $$; exec sleep 1000' },
    amend: (policy) => ({ ...policy, limits: { ...policy.limits, max_concurrent_sessions: 1 } }),
    trees: await treesOf(() => new DeafTree(GROUP)),
  })
  const session = await host.open()
  const run = await host.run(session, [host.program('waits')])
  const pid = Number((await run.printed(/\d+\n/)).trim())
  t.after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'))
  await host.close(session)
  assert.ok(isAlive(pid))
  await assert.rejects(host.open(), { code: 'resource_limit' })
  process.kill(pid, 'SIGKILL')
  await until(async () => (await host.open().catch(() => null)) !== null)
})

test('the run of a program that cannot be killed ends after a SIGKILL of a REXD client', async (t) => {
  const host = await LocalHost.start(t, {
    scripts: { waits: 'echo $$; exec sleep 1000' },
    trees: await treesOf(() => new DeafTree(GROUP)),
  })
  const run = await host.run(await host.open(), [host.program('waits')])
  const pid = Number((await run.printed(/\d+\n/)).trim())
  t.after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'))
  run.run.signal('KILL')
  const { code, signal, truncated } = await run.outcome()
  assert.deepEqual([code, signal, truncated, isAlive(pid)], [null, null, true, true])
})

test('a program that was killed because its limits could not be set is in the audit log as started', async (t) => {
  const confine = (): never => {
    throw new Error('no limits today')
  }
  const trees = await treesOf(() => new ProcessTree({ ...GROUP, leaf: leafOf({ confine }) }))
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: 'exec sleep 1000' }, trees })
  const run = await link.ask([host.program('waits')])
  assert.equal(await run.denial(), 'spawn_failed')
  assert.deepEqual(await host.events(run.id), ['request', 'started', 'denial'])
  assert.equal(host.counters.activeSessions, 0)
})

test('a program in a control group that the daemon cannot leave is killed without limits for the daemon', async (t) => {
  const done: string[] = []
  const leaf = leafOf({ isStuck: true, confine: () => void done.push('confined'), end: async () => false })
  const tree = new ProcessTree({ ...GROUP, containment: 'cgroup', leaf, onStuck: () => void done.push('told') })
  const sandboxSupport = async () => ({ kind: 'impossible', problem: 'there is none' }) as const
  const trees = { open: () => ({ kind: 'open', tree, inNamespace: false }) as const, sandboxSupport }
  const permit = permitFor([await script(t, 'exec sleep 1000')])
  const result = await spawnPermitted(permit, { trees, cleanup: startGuardian(t) }, { stdin: false })
  assert.ok(result.kind === 'spawn_failed' && result.ran !== null)
  assert.match(result.detail, /cannot leave its control group/)
  assert.deepEqual([done, isAlive(result.ran.pid)], [['told'], false])
})
