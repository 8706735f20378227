import { readdirSync, readFileSync } from 'node:fs'
import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { groupsBelow } from '../src/process/cgroup-tree.ts'
import { readContainmentRecord } from '../src/process/process-trees.ts'
import { descendantsOf } from '../src/process/descendant-tracker.ts'
import type { MeshOfDaemons } from '../test/support/mesh-of-daemons.ts'
import { residentOf, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { RestClient } from '../test/support/rest-client.ts'
import { startPair, TRUE, WIDTH } from './pair.ts'
import { sustained } from './rate.ts'
import { tableOf, type Section } from './report.ts'
import type { Stage } from './stage.ts'

const MB = 1e6

const PLANS = {
  full: { warm: 1_000, steps: 4, perStep: 2_500, rounds: 4, batches: 10, perBatch: 100 },
  quick: { warm: 200, steps: 2, perStep: 250, rounds: 2, batches: 2, perBatch: 50 },
} as const

/** Number of memory samples. The lowest one counts, because garbage may be waiting for its collection. */
const LOOKS = 20
const LOOK_MS = 250

/** Allowed growth for connections that are just being replaced. The client's connections are in the first count. */
const FD_NOISE = 4

interface DaemonProcess {
  readonly name: string
  readonly pid: number
}

interface Count {
  readonly after: string
  readonly rss: readonly number[]
  readonly fds: readonly number[]
  readonly zombies: number
  readonly leftovers: number
  /** Entries in the data directories, control groups of runs, and temporary files. */
  readonly files: number
}

interface Runs {
  readonly mesh: MeshOfDaemons
  readonly daemons: readonly TestDaemon[]
  readonly processes: readonly DaemonProcess[]
}

const stateOf = (pid: number): string => {
  try {
    return /^State:\s+(\S)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? ''
  } catch {
    return ''
  }
}

const filesOf = async ({ mesh, daemons }: Runs): Promise<number> => {
  const data = await Promise.all(daemons.map(async ({ dir }) => readdir(dir, { recursive: true })))
  const records = await Promise.all(daemons.map(async ({ dir }) => readContainmentRecord(join(dir, 'containment.json'))))
  const leaves = records.flatMap((record) => record?.parents ?? []).flatMap(groupsBelow)
  return data.flat().length + leaves.length + (await readdir(join(mesh.root, 'tmp'))).length
}

const measure = async (stage: Runs, after: string): Promise<Count> => {
  const { processes, daemons } = stage
  const looks: number[][] = []
  for (let look = 0; look < LOOKS; look++) {
    looks.push(await Promise.all(processes.map(async ({ pid }) => residentOf(pid))))
    await sleep(LOOK_MS)
  }
  const below = daemons.flatMap(({ pid }) => descendantsOf(pid)).map(({ pid }) => pid)
  return {
    after,
    rss: processes.map((_process, index) => Math.min(...looks.map((look) => look[index]!))),
    fds: processes.map(({ pid }) => readdirSync(`/proc/${pid}/fd`).length),
    zombies: below.filter((pid) => stateOf(pid) === 'Z').length,
    // Each daemon has a network process and a cleanup process.
    leftovers: Math.max(0, below.length - 2 * daemons.length),
    files: await filesOf(stage),
  }
}

/** Gives both daemons the same directory for temporary files. */
const runsOf = async (mesh: MeshOfDaemons): Promise<Runs & { client: RestClient; agentId: string }> => {
  const temporary = join(mesh.root, 'tmp')
  await mkdir(temporary, { mode: 0o777 })
  process.env['TMPDIR'] = temporary
  const { alice, bob, client } = await startPair(mesh)
  const daemons = [alice, bob]
  const processes = await Promise.all(
    daemons.map(async (daemon) => [
      { name: `${daemon.name}, executor`, pid: daemon.pid },
      { name: `${daemon.name}, network process`, pid: await until('a network process', async () => daemon.networkPid()) },
    ]),
  )
  return { mesh, daemons, processes: processes.flat(), client, agentId: bob.agentId }
}

const lineOf = ({ after, rss, fds, zombies, leftovers, files }: Count): (string | number)[] => [
  after,
  ...rss.map((bytes) => (bytes / MB).toFixed(1)),
  fds.join(' '),
  zombies,
  leftovers,
  files,
]

const headOf = ({ processes }: Runs): string[] => [
  'after',
  ...processes.map(({ name }) => `${name}, MB`),
  'files open in each',
  'zombies',
  'processes left',
  'files and control groups',
]

/** Everything that remains except memory, which readers judge themselves. */
const left = (first: Count, last: Count): string[] => [
  ...(last.zombies > 0 ? [`${last.zombies} zombies`] : []),
  ...(last.leftovers > 0 ? [`${last.leftovers} processes`] : []),
  ...(last.files > first.files ? [`${last.files - first.files} files`] : []),
  ...(last.fds.some((count, index) => count > first.fds[index]! + FD_NOISE)
    ? [`open files: ${first.fds.join(' ')} → ${last.fds.join(' ')}`]
    : []),
]

/** Measures what thousands of runs leave in the processes of both daemons. Throws if anything except memory remains. */
export const leaks = async ({ mesh, plan }: Stage): Promise<Omit<Section, 'title'>> => {
  const { warm, steps, perStep, rounds, batches, perBatch } = PLANS[plan.mode]
  const stage = await runsOf(mesh)
  const runs = async (count: number, width: number): Promise<unknown> =>
    sustained(count, width, async () => stage.client.run(stage.agentId, TRUE))
  await runs(warm / 2, 1)
  await runs(warm / 2, WIDTH)
  const counts: Count[] = []
  const look = async (after: string): Promise<void> => {
    counts.push(await measure(stage, after))
    process.stderr.write(`${lineOf(counts.at(-1)!).join(' | ')}\n`)
  }
  await look(`${warm} for warm-up`)
  for (let step = 1; step <= steps; step++) {
    await runs(perStep, 1)
    await look(`${step * perStep} one after the other`)
  }
  for (let round = 1; round <= rounds; round++) {
    for (let batch = 0; batch < batches; batch++) await runs(perBatch, WIDTH)
    await look(`${round * batches * perBatch} more, ${WIDTH} at a time, in batches of ${perBatch}`)
  }
  stage.client.close()
  const problems = left(counts[0]!, counts.at(-1)!)
  if (problems.length > 0) throw new Error(`left behind: ${problems.join('; ')}`)
  const intro = `Runs of \`/bin/true\` on bob, requested by REST from alice. The memory is the lowest of ${LOOKS} measurements in ${(LOOKS * LOOK_MS) / 1_000} s after the runs. The two logs grow.`
  return { intro, table: tableOf(headOf(stage), counts.map(lineOf)) }
}
