import { CLI, type MeshOfDaemons, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { acquaint } from '../test/support/proxied-pair.ts'
import type { SshPath } from './openssh.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, summarize } from './stats.ts'
import { Typist } from './typist.ts'
import { delayed } from './wan.ts'

const KEYS = { full: 300, quick: 60 }
const FAR_MS = 100
/** A character that no client prints by itself. */
const KEY = 'q'

/** One path to bob and to sshd. */
interface Typed {
  readonly at: string
  readonly alice: TestDaemon
  readonly ssh: SshPath
  /** The program on the target. It prints `ready`, and its terminal echoes each key. */
  readonly program: string
  readonly keys: number
}

/** Types the keys in turn, each after the echo of the previous one. Both clients use a raw terminal. */
const echoes = async ({ at, alice, ssh, program, keys }: Typed): Promise<Row[]> => {
  const ours = Typist.start(process.execPath, [CLI, '--data-dir', alice.dir, 'exec', '-t', 'bob', '--', program])
  await ours.shows('ready')
  const theirs = Typist.start('/usr/bin/ssh', ssh.terminalWords([program]))
  await theirs.shows('ready')
  const took = await interleaved(keys, { ours: async () => ours.key(KEY), theirs: async () => theirs.key(KEY) })
  await Promise.all([ours.end(), theirs.end()])
  const common = { unit: 'ms', peer: '`ssh -t`', target: '≤ 1' } as const
  return [
    { what: `${at}: echo of a key, \`x0x exec -t\``, ours: took.ours, theirs: took.theirs, ...common },
    { what: `${at}: the same, p99`, ours: summarize([took.ours.p99]), theirs: summarize([took.theirs.p99]), ...common },
  ]
}

/** Alice may run the program on bob, who is on this machine without a proxy. */
const near = async (mesh: MeshOfDaemons, program: string): Promise<TestDaemon> => {
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await alice.start()
  await bob.writeAcl([{ agent: alice, commands: [[program]], terminals: true }])
  await bob.start()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
  return alice
}

/** Measures the time between a key and its echo. */
export const terminal = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const { mesh, openSsh, plan } = stage
  const sshd = await openSsh()
  const keys = KEYS[plan.mode]
  const program = await mesh.program('echoes', 'echo ready; exec cat')
  const rows = await echoes({ at: '0 ms', alice: await near(mesh, program), ssh: sshd.direct, program, keys })
  const [alice, bob] = [mesh.add('far-alice'), mesh.add('far-bob')]
  const { proxy, sshProxy } = await delayed(stage, { bob, sshd, roundTripMs: () => FAR_MS })
  await acquaint({ mesh, alice, bob, proxy }, [[program]], '', true)
  const ssh = await sshd.via(sshProxy.port)
  rows.push(...(await echoes({ at: `${FAR_MS} ms`, alice, ssh, program, keys })))
  return {
    intro:
      'Both clients run on a terminal of the bench, which types one key and waits until it is shown. The terminal of the target echoes it. ssh does not hide the times of keys (`ObscureKeystrokeTiming=no`). At 0 ms there is no proxy, at 100 ms it is that of *Over a distance*.',
    rows,
  }
}
