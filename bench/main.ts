import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { systemClock } from '../src/base/clock.ts'
import { silentLogger } from '../src/base/log.ts'
import { randomBytes } from '../src/identity/hash.ts'
import { machineKeyOf } from '../src/identity/machine-key.ts'
import { MeshNode } from '../src/mesh/node.ts'
import { CLI, MeshOfDaemons, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { halves } from './halves.ts'
import { leaks } from './leaks.ts'
import { hasOpenSsh, OpenSsh } from './openssh.ts'
import { report, reportAgain, type Row } from './report.ts'
import { RestClient } from '../test/support/rest-client.ts'
import { interleaved, summarize, timed } from './stats.ts'

const run = promisify(execFile)
const TRUE = ['/bin/true']
const MB = 1e6

interface Pair {
  readonly alice: TestDaemon
  readonly bob: TestDaemon
  readonly client: RestClient
  readonly ssh: OpenSsh
}

interface Plan {
  readonly rounds: number
  readonly runs: number
  readonly bytes: number
  readonly peers: number
}

const PLANS: Record<'full' | 'quick', Plan> = {
  full: { rounds: 200, runs: 1_000, bytes: 256 * 1024 * 1024, peers: 100 },
  quick: { rounds: 30, runs: 200, bytes: 64 * 1024 * 1024, peers: 30 },
}

const zeros = (bytes: number): string[] => ['head', '-c', String(bytes), '/dev/zero']

/** Alice may run on bob what is measured. */
const startPair = async (mesh: MeshOfDaemons, bytes: number): Promise<Omit<Pair, 'ssh'>> => {
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await Promise.all([alice.start(), bob.start()])
  const caps = `max_stdout_bytes = ${2 * bytes}\nmax_concurrent_per_agent = 32\nmax_concurrent_total = 32`
  await bob.writeAcl([{ agent: alice, commands: [TRUE, zeros(bytes)] }], caps)
  await bob.restart()
  await Promise.all([alice.meet(bob, 'known'), bob.meet(alice, 'trusted')])
  const token = (await readFile(join(alice.dir, 'api-token'), 'utf8')).trim()
  return { alice, bob, client: new RestClient({ socketPath: join(alice.dir, 'api.sock'), token }) }
}

const spawnTrue = async (): Promise<void> => {
  await once(spawn('/bin/true', { stdio: 'ignore' }), 'exit')
}

const latency = async ({ alice, bob, client, ssh }: Pair, { rounds }: Plan): Promise<Row[]> => {
  const whole = (argv: string[]): Promise<unknown> => run(process.execPath, argv)
  const warm = await interleaved(rounds, {
    spawn: spawnTrue,
    ours: async () => client.run(bob.agentId, TRUE),
    master: async () => ssh.master(TRUE),
  })
  const slow = await interleaved(Math.ceil(rounds / 10), {
    node: async () => whole(['-e', '0']),
    cli: async () => whole([CLI, '--data-dir', alice.dir, 'exec', 'bob', '--', ...TRUE]),
    master: async () => ssh.master(TRUE),
    cold: async () => ssh.cold(TRUE),
  })
  return [
    {
      what: 'warm exec, REST keep-alive, `/bin/true`',
      unit: 'ms',
      ours: warm.ours,
      theirs: warm.master,
      peer: 'ssh ControlMaster',
      target: '≤ 0.5',
      limit: warm.spawn,
      limitOf: 'spawn alone',
    },
    {
      what: 'warm exec, CLI, whole process',
      unit: 'ms',
      ours: slow.cli,
      theirs: slow.master,
      peer: 'ssh ControlMaster',
      target: '—',
      limit: slow.node,
      limitOf: '`node -e 0`',
    },
    {
      what: 'warm exec, CLI, whole process',
      unit: 'ms',
      ours: slow.cli,
      theirs: slow.cold,
      peer: 'ssh, cold',
      target: '—',
      limit: slow.node,
      limitOf: '`node -e 0`',
    },
  ]
}

const sustained = async ({ bob, client }: Pair, { runs }: Plan, width: number): Promise<Row> => {
  let left = runs
  const lane = async (): Promise<void> => {
    while (left-- > 0) await client.run(bob.agentId, TRUE)
  }
  const ms = await timed(async () => Promise.all(Array.from({ length: width }, lane)))
  const rate = summarize([runs / (ms / 1000)])
  return { what: `runs per second, ${width} at a time`, unit: '1/s', ours: rate, peer: '—', target: width === 32 ? '≥ 500' : '—' }
}

const throughput = async ({ bob, client, ssh }: Pair, { bytes }: Plan): Promise<Row> => {
  const [ours, theirs]: number[][] = [[], []]
  for (let round = 0; round < 3; round++) {
    ours!.push(bytes / MB / ((await timed(async () => client.drain(bob.agentId, zeros(bytes)))) / 1000))
    theirs!.push(bytes / MB / ((await timed(async () => ssh.drain(zeros(bytes)))) / 1000))
  }
  return {
    what: `stdout of one run, ${bytes / 1024 / 1024} MiB, NDJSON`,
    unit: 'MB/s',
    ours: summarize(ours!),
    theirs: summarize(theirs!),
    peer: 'ssh ControlMaster',
    target: '≥ 0.5',
  }
}

/** Other machines that connect and stay: what each costs the daemon that they connect to. */
const memory = async ({ bob }: Pair, { peers }: Plan, idle: number): Promise<Row[]> => {
  const { addresses } = await bob.json<{ addresses: string[] }>('id')
  const before = await bob.memory()
  const nodes: MeshNode[] = []
  for (let count = 0; count < peers; count++) {
    const node = new MeshNode(
      { clock: systemClock, machineKey: machineKeyOf(randomBytes(32)), log: silentLogger },
      { listen: [], mdns: false },
    )
    await node.start()
    // Bob takes so many connections of one host in a second, and no more.
    await until('a peer connects', async () =>
      node.dial(bob.machineId, addresses, AbortSignal.timeout(10_000)).then(
        () => true,
        () => false,
      ),
    )
    nodes.push(node)
  }
  await until(
    'every connection is counted',
    async () => (await bob.json<{ connections: unknown[] }>('diagnostics', 'mesh')).connections.length >= peers,
  )
  const after = await bob.memory()
  await Promise.all(nodes.map(async (node) => node.stop()))
  return [
    { what: 'idle daemon, resident, both halves', unit: 'MB', ours: summarize([idle / MB]), peer: '—', target: '≤ 190' },
    { what: `per connected peer, of ${peers}`, unit: 'MB', ours: summarize([(after - before) / MB / peers]), peer: '—', target: '≤ 0.3' },
  ]
}

const measure = async (mesh: MeshOfDaemons, ssh: OpenSsh, plan: Plan): Promise<Row[]> => {
  const pair: Pair = { ...(await startPair(mesh, plan.bytes)), ssh }
  const idle = await pair.bob.memory()
  try {
    const say = (what: string): void => void process.stderr.write(`measuring ${what}\n`)
    // First, while nothing else has made the heap of the daemon grow.
    say('memory')
    const held = await memory(pair, plan, idle)
    say('latency')
    const rows = await latency(pair, plan)
    for (const width of [1, 8, 32]) {
      say(`${width} at a time`)
      rows.push(await sustained(pair, plan, width))
    }
    say('throughput')
    rows.push(await throughput(pair, plan))
    say('the two halves')
    return [...rows, ...held, ...(await halves(mesh, plan.rounds))]
  } finally {
    pair.client.close()
  }
}

/** These alone, beside the rows that are there. */
const measureHalves = async ({ rounds }: Plan): Promise<number> => {
  const mesh = await MeshOfDaemons.create('x0x-bench-')
  try {
    await reportAgain(await halves(mesh, rounds))
    return 0
  } finally {
    await mesh.stop()
  }
}

const main = async (argv: readonly string[]): Promise<number> => {
  const mode = argv.includes('quick') ? 'quick' : 'full'
  if (argv.includes('halves')) return measureHalves(PLANS[mode])
  if (argv.includes('leaks')) return leaks(mode)
  if (!hasOpenSsh()) throw new Error('OpenSSH is needed as the peer: apt-get install openssh-server openssh-client')
  const mesh = await MeshOfDaemons.create('x0x-bench-')
  const ssh = await OpenSsh.start()
  try {
    const rows = await measure(mesh, ssh, PLANS[mode])
    await report(rows, mode)
    return 0
  } finally {
    await ssh.stop()
    await mesh.stop()
  }
}

process.exitCode = await main(process.argv.slice(2))
