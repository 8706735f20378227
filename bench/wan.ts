import { CLI, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { acquaint } from '../test/support/proxied-pair.ts'
import { throughput } from './bulk.ts'
import { DelayProxy } from './delay-proxy.ts'
import { launch } from './launcher.ts'
import type { OpenSsh, SshPath } from './openssh.ts'
import { TRUE, zeros } from './pair.ts'
import { drain } from './processes.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, summarize, timed } from './stats.ts'

const ROUND_TRIPS_MS = { full: [0, 20, 100, 200], quick: [0, 100] }

/** Divides the output size of the loopback measurement, because ssh is slow on a long path. */
const BULK_PART = 4

/** Two daemons and an open ssh connection over the same path. */
export interface Over {
  /** Describes the path. */
  readonly at: string
  readonly alice: TestDaemon
  readonly bob: TestDaemon
  readonly ssh: SshPath
}

const execLine = (alice: TestDaemon, argv: readonly string[]): string[] => [CLI, '--data-dir', alice.dir, 'exec', 'bob', '--', ...argv]

/** Two paths with the same delay, to bob and to sshd. They end with the stage. */
export const delayed = async (
  { after }: Stage,
  { bob, sshd, roundTripMs }: { readonly bob: TestDaemon; readonly sshd: OpenSsh; readonly roundTripMs: () => number },
): Promise<{ proxy: DelayProxy; sshProxy: DelayProxy }> => {
  const proxy = await new DelayProxy(() => Number(bob.multiaddr.split('/')[4]), roundTripMs).listen()
  const sshProxy = await new DelayProxy(() => sshd.port, roundTripMs).listen()
  after(async () => Promise.all([proxy, sshProxy].map(async (each) => each.close())).then(() => undefined))
  return { proxy, sshProxy }
}

/** Makes both daemons forget the other's addresses. Only alice's card of bob remains. */
export const forget = async ({ alice, bob }: Pick<Over, 'alice' | 'bob'>): Promise<void> => {
  await alice.stop()
  await bob.restart()
  await alice.start()
}

/** Measures the first run and warm runs, each in a new process. `targets` has the goals of the three rows. */
export const callsOver = async (
  over: Over,
  plan: { readonly rounds: number; readonly firsts: number; readonly targets?: readonly [string, string, string] },
): Promise<Row[]> => {
  const { at, alice, ssh } = over
  const ours = async (): Promise<void> => launch(process.execPath, execLine(alice, TRUE))
  const first: number[] = []
  for (let round = 0; round < plan.firsts; round++) {
    await forget(over)
    first.push(await timed(ours))
  }
  const warm = await interleaved(plan.rounds, { ours, master: async () => ssh.master(TRUE), cold: async () => ssh.cold(TRUE) })
  const warmRow = { what: `${at}: one run, \`x0x exec\` (Node.js)`, unit: 'ms', ours: warm.ours } as const
  const target = (index: 0 | 1 | 2): Pick<Row, 'target'> => (plan.targets === undefined ? {} : { target: plan.targets[index] })
  return [
    { ...warmRow, theirs: warm.master, peer: 'ssh ControlMaster', ...target(0) },
    { ...warmRow, theirs: warm.cold, peer: 'a new ssh connection', ...target(1) },
    {
      what: `${at}: first run on a new peer, \`x0x exec\` (Node.js)`,
      unit: 'ms',
      ours: summarize(first),
      theirs: warm.cold,
      peer: 'a new ssh connection',
      ...target(2),
    },
  ]
}

/** Measures the output of one run. */
export const outputOver = async (
  { at, alice, ssh }: Over,
  plan: { readonly bytes: number; readonly rounds: number; readonly target?: string },
): Promise<Row> => {
  const rates = await throughput(plan.bytes, plan.rounds, {
    ours: async () => drain(process.execPath, execLine(alice, zeros(plan.bytes))),
    theirs: async () => ssh.drain(zeros(plan.bytes)),
  })
  return {
    what: `${at}: stdout of one run, ${plan.bytes / 1024 / 1024} MiB, \`x0x exec\``,
    unit: 'MB/s',
    ...rates,
    peer: 'ssh ControlMaster',
    ...(plan.target === undefined ? {} : { target: plan.target }),
  }
}

/** Measures the same over paths with several delays. Each call is a new process on both sides. */
export const wan = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const { mesh, openSsh, plan } = stage
  const sshd = await openSsh()
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  let roundTripMs = 0
  const { proxy, sshProxy } = await delayed(stage, { bob, sshd, roundTripMs: () => roundTripMs })
  const bytes = plan.bytes / BULK_PART
  await acquaint({ mesh, alice, bob, proxy }, [TRUE, zeros(bytes)], `max_stdout_bytes = ${2 ** 32}`)
  const rows: Row[] = []
  for (roundTripMs of ROUND_TRIPS_MS[plan.mode]) {
    const ssh = await sshd.via(sshProxy.port)
    const over = { at: `${roundTripMs} ms`, alice, bob, ssh }
    const targets = roundTripMs === 100 ? { targets: ['≤ 0.65', '≤ 0.15', '≤ 0.65'] as const } : {}
    const [rounds, firsts] = [Math.ceil(plan.rounds / 10), Math.max(2, plan.rounds / 40)]
    rows.push(...(await callsOver(over, { rounds, firsts, ...targets })))
    const target = roundTripMs >= 100 ? { target: '≥ 1.5' } : {}
    if (roundTripMs > 0) rows.push(await outputOver(over, { bytes, rounds: 5, ...target }))
    await ssh.closeMaster()
  }
  return {
    intro:
      'A proxy delays all bytes, and the first bytes of a connection by one more round trip, as a TCP handshake does. It has no limit of bandwidth and no congestion window. Each call runs `/bin/true` in a new client process.',
    rows,
  }
}
