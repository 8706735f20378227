import { CountingProxy } from './counting-proxy.ts'
import type { TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { acquaint } from '../test/support/proxied-pair.ts'
import { straceNeeds, systemCalls } from '../test/support/strace.ts'
import { launcherPid } from './launcher.ts'
import { restClientOf, TRUE } from './pair.ts'
import { cpuOfAll, treeOf } from './processes.ts'
import { sustained } from './rate.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { summarize, type Summary } from './stats.ts'

const one = (value: number): Summary => summarize([value])

/** Processor time per call of some groups of processes, over `count` calls. */
const cpuPerCall = async <K extends string>(
  count: number,
  call: () => Promise<unknown>,
  sides: Record<K, readonly number[]>,
): Promise<Record<K, number>> => {
  const names = Object.keys(sides) as K[]
  const look = async (): Promise<number[]> => Promise.all(names.map(async (name) => cpuOfAll(sides[name])))
  const before = await look()
  await sustained(count, 1, call)
  const after = await look()
  return Object.fromEntries(names.map((name, i) => [name, (after[i]! - before[i]!) / count])) as Record<K, number>
}

/** Number of runs during which system calls are counted. Counting makes them slow. */
const CALLS = 100

/** System calls of a run, by process. Empty without strace. */
const callsPerRun = async (
  pair: { readonly alice: TestDaemon; readonly bob: TestDaemon },
  work: () => Promise<unknown>,
): Promise<Row[]> => {
  const rows: Row[] = []
  for (const [who, name] of [
    ['requester', 'alice'],
    ['target', 'bob'],
  ] as const)
    for (const [half, pid] of [
      ['network process', await pair[name].networkPid()],
      [name === 'bob' ? 'executor, with the command' : 'executor', pair[name].pid],
    ] as const) {
      const calls = await systemCalls(pid, work)
      const all = [...calls.values()].reduce((sum, count) => sum + count, 0)
      rows.push({ what: `${who}: system calls of its ${half}`, unit: 'calls', ours: one(all / CALLS) })
    }
  return rows
}

/** Measures the processor time and network traffic of a warm run. */
export const cost = async ({ mesh, openSsh, plan, after }: Stage): Promise<Omit<Section, 'title'>> => {
  const sshd = await openSsh()
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  const proxy = await new CountingProxy(() => Number(bob.multiaddr.split('/')[4])).listen()
  const sshProxy = await new CountingProxy(() => sshd.port).listen()
  after(async () => Promise.all([proxy, sshProxy].map(async (each) => each.close())).then(() => undefined))
  await acquaint({ mesh, alice, bob, proxy }, [TRUE])
  const client = await restClientOf(alice)
  const ssh = await sshd.via(sshProxy.port)
  const [ours, theirs] = [async () => client.run(bob.agentId, TRUE), async () => ssh.master(TRUE)]
  for (const call of [ours, theirs]) await sustained(plan.runs, 1, call)
  const bytesBefore = [{ ...proxy.bytes }, { ...sshProxy.bytes }]
  const [aliceNetwork, bobNetwork] = [await alice.networkPid(), await bob.networkPid()]
  const cpu = await cpuPerCall(plan.runs, ours, {
    aliceExecutor: [alice.pid],
    aliceNetwork: [aliceNetwork],
    bobExecutor: [bob.pid],
    bobNetwork: [bobNetwork],
  })
  // The launcher starts the client processes.
  const sshCpu = await cpuPerCall(plan.runs, theirs, { client: [launcherPid(), await ssh.masterPid()], server: treeOf(sshd.pid) })
  const bytesAfter = [{ ...proxy.bytes }, { ...sshProxy.bytes }]
  const calls =
    plan.mode === 'full' && straceNeeds() === null ? await callsPerRun({ alice, bob }, async () => sustained(CALLS, 1, ours)) : []
  client.close()
  const wire = (way: 'up' | 'down'): Pick<Row, 'ours' | 'theirs' | 'peer' | 'unit'> => ({
    unit: 'bytes',
    ours: one((bytesAfter[0]![way] - bytesBefore[0]![way]) / plan.runs),
    theirs: one((bytesAfter[1]![way] - bytesBefore[1]![way]) / plan.runs),
    peer: 'ssh ControlMaster',
  })
  const side = (what: string, ours: number, theirs: number): Row => ({
    what,
    unit: 'ms CPU',
    ours: one(ours),
    theirs: one(theirs),
    peer: 'ssh ControlMaster',
  })
  const rows: Row[] = [
    side(
      'requester: both processes of its daemon. ssh: the master, the client process and its start',
      cpu.aliceExecutor + cpu.aliceNetwork,
      sshCpu.client,
    ),
    { what: 'of this, the executor process, which signs', unit: 'ms CPU', ours: one(cpu.aliceExecutor) },
    side(
      'target: both processes and the command. ssh: sshd, the login shell and the command',
      cpu.bobExecutor + cpu.bobNetwork,
      sshCpu.server,
    ),
    { what: 'of this, the executor process and the command', unit: 'ms CPU', ours: one(cpu.bobExecutor) },
    { what: 'bytes to the target', ...wire('up') },
    { what: 'bytes from the target', ...wire('down') },
    ...calls,
  ]
  return {
    intro: `\`/bin/true\` over REST, ${plan.runs} runs one after the other. The bytes include those that keep the link alive.`,
    rows,
  }
}
