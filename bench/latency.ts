import { CLI } from '../test/support/mesh-of-daemons.ts'
import { launch } from './launcher.ts'
import { startTrio, TRUE } from './pair.ts'
import { spawnTrue } from './processes.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, summarize } from './stats.ts'

const whole = async (argv: readonly string[]): Promise<void> => launch(process.execPath, argv)

/** Measures one command over an open connection and in a new process. */
export const latency = async ({ mesh, openSsh, plan }: Stage): Promise<Omit<Section, 'title'>> => {
  const ssh = (await openSsh()).direct
  const { alice, bob, carol, client } = await startTrio(mesh, [TRUE])
  const warm = await interleaved(plan.rounds, {
    spawn: spawnTrue,
    ours: async () => client.run(bob.agentId, TRUE),
    uncontained: async () => client.run(carol.agentId, TRUE),
    master: async () => ssh.master(TRUE),
  })
  const cli = (name: string) => async () => whole([CLI, '--data-dir', alice.dir, 'exec', name, '--', ...TRUE])
  const slow = await interleaved(Math.ceil(plan.rounds / 5), {
    node: async () => whole(['-e', '0']),
    rest: async () => client.run(bob.agentId, TRUE),
    ours: cli('bob'),
    uncontained: cli('carol'),
    master: async () => ssh.master(TRUE),
    cold: async () => ssh.cold(TRUE),
  })
  client.close()
  const line = { what: 'one run, `x0x exec` (Node.js)', unit: 'ms', ours: slow.ours, uncontained: slow.uncontained } as const
  const bare = { limit: slow.node, limitOf: '`node -e 0`' }
  const rows: Row[] = [
    {
      what: 'one run, REST, open connection',
      unit: 'ms',
      ours: warm.ours,
      uncontained: warm.uncontained,
      theirs: warm.master,
      peer: 'ssh ControlMaster',
      target: '≤ 0.6',
      limit: warm.spawn,
      limitOf: '`/bin/true` started by Node.js',
    },
    { ...line, theirs: slow.master, peer: 'ssh ControlMaster', ...bare },
    { ...line, theirs: slow.cold, peer: 'a new ssh connection', ...bare },
    {
      what: '`x0x exec` without the time of the run itself',
      unit: 'ms',
      ours: summarize([slow.ours.median - slow.rest.median]),
      theirs: slow.node,
      peer: '`node -e 0`',
      target: '≤ 1.3',
    },
  ]
  return { intro: '`/bin/true` on a connected peer.', rows }
}
