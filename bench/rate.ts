import { startTrio, TRUE } from './pair.ts'
import { spawnTrue } from './processes.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { summarize, timed, type Summary } from './stats.ts'

interface Rate {
  readonly perSecond: Summary
  readonly latency: Summary
}

/** Makes `count` calls, `width` of them concurrently. */
export const sustained = async (count: number, width: number, call: () => Promise<unknown>): Promise<Rate> => {
  const samples: number[] = []
  let left = count
  const lane = async (): Promise<void> => {
    while (left-- > 0) samples.push(await timed(call))
  }
  const ms = await timed(async () => Promise.all(Array.from({ length: width }, lane)))
  return { perSecond: summarize([count / (ms / 1_000)]), latency: summarize(samples) }
}

/** Measures the sustained runs per second between two hosts, and the latency meanwhile. */
export const rate = async ({ mesh, openSsh, plan }: Stage): Promise<Omit<Section, 'title'>> => {
  const ssh = (await openSsh()).direct
  const { bob, carol, client } = await startTrio(mesh, [TRUE])
  // Warms up, so that the runtime has compiled the hot code.
  for (const { agentId } of [bob, carol]) await sustained(plan.runs, 8, async () => client.run(agentId, TRUE))
  const rows: Row[] = []
  for (const width of [1, 8, 32]) {
    const limit = await sustained(plan.runs, width, spawnTrue)
    const ours = await sustained(plan.runs, width, async () => client.run(bob.agentId, TRUE))
    const uncontained = await sustained(plan.runs, width, async () => client.run(carol.agentId, TRUE))
    const theirs = await sustained(plan.runs / 4, width, async () => ssh.master(TRUE))
    const row = (what: string, unit: Row['unit'], of: (rate: Rate) => Summary): Row => ({
      what: `${what}, ${width} at a time`,
      unit,
      ours: of(ours),
      uncontained: of(uncontained),
      theirs: of(theirs),
      peer: 'ssh ControlMaster',
      limit: of(limit),
      limitOf: '`/bin/true` started by Node.js',
      ...(width === 32 && unit === '1/s' ? { target: '≥ 2 × before' } : {}),
    })
    rows.push(
      row('runs per second', '1/s', (one) => one.perSecond),
      row('time of each run', 'ms', (one) => one.latency),
    )
  }
  client.close()
  return { intro: `\`/bin/true\` over REST, ${plan.runs} runs each, after as many for warm-up.`, rows }
}
