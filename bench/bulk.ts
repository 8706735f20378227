import { CLI } from '../test/support/mesh-of-daemons.ts'
import { startTrio, zeros } from './pair.ts'
import { drain } from './processes.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { summarize, timed } from './stats.ts'

const MB = 1e6
const ROUNDS = { full: 5, quick: 3 }

/** Megabytes per second of `rounds` calls for each contender, in turn. */
export const throughput = async <K extends string>(bytes: number, rounds: number, contenders: Record<K, () => Promise<unknown>>) => {
  const entries = Object.entries(contenders) as [K, () => Promise<unknown>][]
  const samples = new Map<K, number[]>(entries.map(([name]) => [name, []]))
  for (let round = 0; round < rounds; round++)
    for (const [name, call] of entries) samples.get(name)!.push(bytes / MB / ((await timed(call)) / 1_000))
  return Object.fromEntries([...samples].map(([name, rates]) => [name, summarize(rates)])) as Record<K, ReturnType<typeof summarize>>
}

/** Measures the throughput of large output. */
export const bulk = async ({ mesh, openSsh, plan }: Stage): Promise<Omit<Section, 'title'>> => {
  const ssh = (await openSsh()).direct
  const { bytes } = plan
  const { alice, bob, carol, client } = await startTrio(mesh, [zeros(bytes)])
  const results = await throughput(bytes, ROUNDS[plan.mode], {
    ours: async () => client.drain(bob.agentId, zeros(bytes)),
    ndjson: async () => client.drain(bob.agentId, zeros(bytes), 'application/x-ndjson'),
    uncontained: async () => client.drain(carol.agentId, zeros(bytes)),
    cli: async () => drain(process.execPath, [CLI, '--data-dir', alice.dir, 'exec', 'bob', '--', ...zeros(bytes)]),
    theirs: async () => ssh.drain(zeros(bytes)),
  })
  client.close()
  const size = `${bytes / 1024 / 1024} MiB`
  const { ours, ndjson, uncontained, cli, theirs } = results
  const common = { unit: 'MB/s', theirs, peer: 'ssh ControlMaster', target: '≥ 1.15 × before' } as const
  const rows: Row[] = [
    { what: `stdout of one run, ${size}, REST`, ours, uncontained, ...common },
    { what: `stdout of one run, ${size}, REST, NDJSON`, ours: ndjson, ...common },
    { what: `stdout of one run, ${size}, \`x0x exec\``, ours: cli, ...common },
  ]
  return { intro: 'Zeros from `head`. The client reads and discards them.', rows }
}
