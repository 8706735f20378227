import { spawn } from 'node:child_process'
import { once } from 'node:events'

import { silentLogger } from '../src/base/log.ts'
import type { Permit } from '../src/policy/permit.ts'
import { ProcessTrees } from '../src/process/process-trees.ts'
import { CleanupProcess } from '../src/process/cleanup-process.ts'
import { spawnPermitted } from '../src/process/spawn.ts'
import type { ContainmentChoice } from '../src/protocol/reasons.ts'
import { permitFor } from '../test/support/permit.ts'
import { household, sandboxedPermit } from '../test/support/sandboxed.ts'
import { tableOf, type Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, type Summary } from './stats.ts'

const bare = async (): Promise<void> => {
  await once(spawn('/bin/true', { stdio: ['ignore', 'pipe', 'pipe'], detached: true }), 'exit')
}

const WAYS = { group: 'process group', namespace: 'PID namespace (bwrap)', sandbox: 'sandbox (bwrap)' } as const

/** Measures the time that a sandbox adds before and after its program. */
export const sandbox = async ({ plan }: Stage): Promise<Omit<Section, 'title'>> => {
  const ends: (() => Promise<unknown>)[] = []
  const cleanup = new CleanupProcess({ log: silentLogger })
  cleanup.start()
  const runner = async (choice: ContainmentChoice, permit: Permit) => {
    const trees = await ProcessTrees.open({ cleanup: null, log: silentLogger }, { choice, dataDir: null })
    ends.push(() => trees.stop())
    return async (): Promise<void> => {
      const result = await spawnPermitted(permit, { trees, cleanup }, { stdin: false })
      if (result.kind !== 'spawned') throw new Error(result.detail)
      result.child.stdout.resume()
      result.child.stderr.resume()
      await result.child.exited
    }
  }
  const scope = { after: (end: unknown) => void ends.push(end as () => Promise<unknown>) }
  try {
    const house = await household(scope)
    const calls = {
      group: await runner('group', permitFor(['/bin/true'])),
      namespace: await runner('pid_namespace', permitFor(['/bin/true'])),
      sandbox: await runner('group', await sandboxedPermit(scope, house, ['/bin/true'])),
    }
    const results: Record<string, Summary> = await interleaved(plan.rounds, { bare, ...calls })
    const base = results['bare']!
    const line = (what: string, { median, p99 }: Summary): string[] => [
      what,
      median.toFixed(2),
      p99.toFixed(2),
      (median / base.median).toFixed(1),
    ]
    const lines = [line('no containment', base), ...Object.entries(WAYS).map(([name, what]) => line(what, results[name]!))]
    const intro = `\`/bin/true\`, from the call until the last process has ended, ${plan.rounds} rounds in turn. Other work on the same cores makes all times longer, so compare the last column.`
    return { intro, table: tableOf(['what', 'median, ms', 'p99, ms', '× without containment'], lines) }
  } finally {
    for (const end of ends.reverse()) await end()
    await cleanup.stop()
  }
}
