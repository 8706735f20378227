import { readdirSync, readFileSync } from 'node:fs'
import { mkdir, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { groupsBelow } from '../src/process/cgroup-files.ts'
import { readContainmentRecord } from '../src/process/containment-record.ts'
import { descendantsOf } from '../src/process/process-tree.ts'
import { MeshOfDaemons, residentOf, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { RestClient } from '../test/support/rest-client.ts'
import { putSection } from './report.ts'

const TRUE = ['/bin/true']
const MB = 1e6
/** How many of the runs of a batch are under way at once. */
const WIDTH = 32

const PLANS = {
  full: { warm: 1_000, steps: 4, perStep: 2_500, rounds: 4, batches: 10, perBatch: 100 },
  quick: { warm: 200, steps: 2, perStep: 250, rounds: 2, batches: 2, perBatch: 50 },
} as const

/** The least of a few looks, so that what a collection of garbage is about to take does not count. */
const LOOKS = 20
const LOOK_MS = 250

/** A connection that is being replaced, and its like. The client's own were there at the first count. */
const FD_NOISE = 4

interface Half {
  readonly name: string
  readonly pid: number
}

interface Count {
  readonly after: string
  readonly rss: readonly number[]
  readonly fds: readonly number[]
  readonly zombies: number
  readonly strangers: number
  /** Names in the data directories, of control groups of runs, and of temporary files. */
  readonly files: number
}

interface Stage {
  readonly mesh: MeshOfDaemons
  readonly daemons: readonly TestDaemon[]
  readonly halves: readonly Half[]
}

const stateOf = (pid: number): string => {
  try {
    return /^State:\s+(\S)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? ''
  } catch {
    return ''
  }
}

const filesOf = async ({ mesh, daemons }: Stage): Promise<number> => {
  const data = await Promise.all(daemons.map(async ({ dir }) => readdir(dir, { recursive: true })))
  const records = await Promise.all(daemons.map(async ({ dir }) => readContainmentRecord(join(dir, 'containment.json'))))
  const leaves = records.flatMap((record) => record?.parents ?? []).flatMap(groupsBelow)
  return data.flat().length + leaves.length + (await readdir(join(mesh.root, 'tmp'))).length
}

const measure = async (stage: Stage, after: string): Promise<Count> => {
  const { halves, daemons } = stage
  const looks: number[][] = []
  for (let look = 0; look < LOOKS; look++) {
    looks.push(await Promise.all(halves.map(async ({ pid }) => residentOf(pid))))
    await sleep(LOOK_MS)
  }
  const below = daemons.flatMap(({ pid }) => descendantsOf(pid)).map(({ pid }) => pid)
  return {
    after,
    rss: halves.map((_half, index) => Math.min(...looks.map((look) => look[index]!))),
    fds: halves.map(({ pid }) => readdirSync(`/proc/${pid}/fd`).length),
    zombies: below.filter((pid) => stateOf(pid) === 'Z').length,
    // Beside a network half and a guardian each.
    strangers: Math.max(0, below.length - 2 * daemons.length),
    files: await filesOf(stage),
  }
}

/** Alice may run the program on bob; temporary files of both would be in one directory of ours. */
const stageOf = async (mesh: MeshOfDaemons): Promise<Stage & { client: RestClient; agentId: string }> => {
  const temporary = join(mesh.root, 'tmp')
  await mkdir(temporary, { mode: 0o777 })
  process.env['TMPDIR'] = temporary
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await Promise.all([alice.start(), bob.start()])
  await bob.writeAcl([{ agent: alice, commands: [TRUE] }], `max_concurrent_per_agent = ${WIDTH}\nmax_concurrent_total = ${WIDTH}`)
  await bob.restart()
  await Promise.all([alice.meet(bob, 'known'), bob.meet(alice, 'trusted')])
  const daemons = [alice, bob]
  const halves = await Promise.all(
    daemons.map(async (daemon) => [
      { name: `${daemon.name}, executor`, pid: daemon.pid },
      { name: `${daemon.name}, network half`, pid: await until('a network half', async () => daemon.networkPid()) },
    ]),
  )
  const token = (await readFile(join(alice.dir, 'api-token'), 'utf8')).trim()
  const client = new RestClient({ socketPath: join(alice.dir, 'api.sock'), token })
  return { mesh, daemons, halves: halves.flat(), client, agentId: bob.agentId }
}

const cells = (after: string, values: readonly (string | number)[]): string => `| ${[after, ...values].join(' | ')} |`
const countRow = ({ after, rss, fds, zombies, strangers, files }: Count): string =>
  cells(after, [...rss.map((bytes) => (bytes / MB).toFixed(1)), fds.join(' '), zombies, strangers, files])

const text = (stage: Stage, counts: readonly Count[]): string => {
  const names = stage.halves.map(({ name }) => `${name}, MB`)
  const head = cells('after', [...names, `files open in each`, 'zombies', 'processes left', 'files and control groups'])
  return `Written by \`npm run bench -- leaks\` on ${new Date().toISOString().slice(0, 10)}, on the machine above: runs of \`/bin/true\` on bob, asked for
through alice's REST door. Resident memory is the least of ${LOOKS} looks in ${(LOOKS * LOOK_MS) / 1_000} s after the runs. The two journals grow, as they must.

${head}
|${'---|'.repeat(names.length + 5)}
${counts.map(countRow).join('\n')}
`
}

/** Leaves behind: anything but memory, which is for the reader to judge. */
const left = (first: Count, last: Count): string[] => [
  ...(last.zombies > 0 ? [`${last.zombies} zombies`] : []),
  ...(last.strangers > 0 ? [`${last.strangers} processes`] : []),
  ...(last.files > first.files ? [`${last.files - first.files} files`] : []),
  ...(last.fds.some((count, index) => count > first.fds[index]! + FD_NOISE)
    ? [`open files: ${first.fds.join(' ')} → ${last.fds.join(' ')}`]
    : []),
]

/** What thousands of runs leave behind in both halves of both daemons. Fails when it is anything but memory. */
export const leaks = async (mode: 'full' | 'quick'): Promise<number> => {
  const { warm, steps, perStep, rounds, batches, perBatch } = PLANS[mode]
  const mesh = await MeshOfDaemons.create('x0x-bench-')
  try {
    const stage = await stageOf(mesh)
    const { client, agentId } = stage
    const runs = async (count: number, width: number): Promise<void> => {
      let ahead = count
      const lane = async (): Promise<void> => {
        while (ahead-- > 0) await client.run(agentId, TRUE)
      }
      await Promise.all(Array.from({ length: width }, lane))
    }
    await runs(warm / 2, 1)
    await runs(warm / 2, WIDTH)
    const counts = [await measure(stage, `${warm} to warm up`)]
    const say = (count: Count): void => void process.stderr.write(`${countRow(count)}\n`)
    say(counts[0]!)
    for (let step = 1; step <= steps; step++) {
      await runs(perStep, 1)
      counts.push(await measure(stage, `${step * perStep} one after the other`))
      say(counts.at(-1)!)
    }
    for (let round = 1; round <= rounds; round++) {
      for (let batch = 0; batch < batches; batch++) await runs(perBatch, WIDTH)
      counts.push(await measure(stage, `${round * batches * perBatch} more, ${WIDTH} at a time, in batches of ${perBatch}`))
      say(counts.at(-1)!)
    }
    client.close()
    const section = text(stage, counts)
    process.stdout.write(section)
    if (mode === 'full') await putSection('What runs leave behind', section)
    const problems = left(counts[0]!, counts.at(-1)!)
    for (const problem of problems) process.stderr.write(`left behind: ${problem}\n`)
    return problems.length === 0 ? 0 : 1
  } finally {
    await mesh.stop()
  }
}
