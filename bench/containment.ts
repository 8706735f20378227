import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'

import { silentLogger } from '../src/base/log.ts'
import { UNCONFINED, type Confinement } from '../src/policy/mesh/confinement.ts'
import { ProcessTrees } from '../src/process/process-trees.ts'
import { CleanupProcess } from '../src/process/cleanup-process.ts'
import { spawnPermitted } from '../src/process/spawn.ts'
import type { ContainmentChoice } from '../src/protocol/reasons.ts'
import { permitFor } from '../test/support/permit.ts'
import { tableOf, type Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, summarize, timed, type Summary } from './stats.ts'

const QUIET_ROUNDS = 40
const QUIET_MS = 100

interface Contender {
  readonly what: string
  readonly choice: ContainmentChoice
  readonly confinement: Partial<Confinement>
}

const CONTENDERS: Readonly<Record<string, Contender>> = {
  group: { what: 'process group (weak)', choice: 'group', confinement: {} },
  cgroup: { what: 'cgroup', choice: 'cgroup', confinement: {} },
  processes: { what: 'cgroup, `max_processes`', choice: 'cgroup', confinement: { max_processes: 64 } },
  memory: {
    what: 'cgroup, `max_processes`, `max_memory_bytes`',
    choice: 'cgroup',
    confinement: { max_processes: 64, max_memory_bytes: 64 * 1024 * 1024 },
  },
  cpu: { what: 'cgroup, `max_cpu_secs` (prlimit)', choice: 'cgroup', confinement: { max_cpu_secs: 10 } },
  nice: { what: 'cgroup, `nice`', choice: 'cgroup', confinement: { nice: 5 } },
  namespace: { what: 'PID namespace (bwrap)', choice: 'pid_namespace', confinement: {} },
  closed: {
    what: 'cgroup, `no_network`, `read_only` (bwrap)',
    choice: 'cgroup',
    confinement: { no_network: true, read_only: true },
  },
}

/** Measures from the call until the last process has ended and the group is removed. */
const runner = async ({ choice, confinement }: Contender, cleanup: CleanupProcess) => {
  const trees = await ProcessTrees.open({ cleanup: null, log: silentLogger }, { choice, dataDir: null })
  const problems = await trees.judge({ ...UNCONFINED, ...confinement })
  if (problems.length > 0) throw new Error(problems.map(({ key, why }) => `${key}: ${why}`).join('; '))
  const permit = permitFor(['/bin/true'], { confinement })
  const once = async (): Promise<void> => {
    const result = await spawnPermitted(permit, { trees, cleanup }, { stdin: false })
    if (result.kind !== 'spawned') throw new Error(result.detail)
    result.child.stdout.resume()
    result.child.stderr.resume()
    await result.child.exited
  }
  return { once, trees }
}

const direct = async (): Promise<void> => {
  await once(spawn('/bin/true', { stdio: ['ignore', 'pipe', 'pipe'], detached: true }), 'exit')
}

const afterQuiet = async (call: () => Promise<void>): Promise<Summary> => {
  const samples: number[] = []
  for (let round = 0; round < QUIET_ROUNDS; round++) {
    await sleep(QUIET_MS)
    samples.push(await timed(call))
  }
  return summarize(samples)
}

const lineOf = (what: string, { median, p99 }: Summary, base: Summary): string[] => [
  what,
  median.toFixed(2),
  p99.toFixed(2),
  (median - base.median).toFixed(2),
]

/** Measures the cost of each containment and each limit. */
export const containment = async ({ plan }: Stage): Promise<Omit<Section, 'title'>> => {
  const rounds = plan.rounds
  const cleanup = new CleanupProcess({ log: silentLogger })
  cleanup.start()
  const runners = new Map<string, Awaited<ReturnType<typeof runner>>>()
  try {
    for (const [name, contender] of Object.entries(CONTENDERS)) runners.set(name, await runner(contender, cleanup))
    const calls = Object.fromEntries([...runners].map(([name, { once }]) => [name, once]))
    const results: Record<string, Summary> = await interleaved(rounds, { direct, ...calls })
    const base = results['direct']!
    const lines = [
      lineOf('no containment', base, base),
      ...Object.entries(CONTENDERS).map(([name, { what }]) => lineOf(what, results[name]!, base)),
      lineOf(`no containment, after ${QUIET_MS} ms of quiet`, await afterQuiet(direct), base),
      lineOf(`cgroup, after ${QUIET_MS} ms of quiet`, await afterQuiet(calls['cgroup']!), base),
    ]
    const intro = `\`/bin/true\`, from the call until the last process has ended and its group is removed, ${rounds} rounds in turn. Other work on the same cores makes all times longer, p99 most.`
    return { intro, table: tableOf(['what', 'median, ms', 'p99, ms', 'more than without, ms'], lines) }
  } finally {
    for (const { trees } of runners.values()) await trees.stop()
    await cleanup.stop()
  }
}
