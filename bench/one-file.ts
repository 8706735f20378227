import { CLI, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { acquaint } from '../test/support/proxied-pair.ts'
import { launch } from './launcher.ts'
import type { SshPath } from './openssh.ts'
import { packaged } from './packages.ts'
import { befriend, TRUE } from './pair.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved } from './stats.ts'
import { delayed, forget } from './wan.ts'

/** Round trip times, and the number of samples for each. A cold ssh needs eight round trips. */
const DISTANCES = {
  full: [
    [20, 30],
    [100, 20],
  ],
  quick: [
    [20, 3],
    [100, 3],
  ],
} as const
const LOOPBACK_ROUNDS = { full: 60, quick: 5 }

/** Ratios to ssh ControlMaster for the single file and for Node.js. */
interface Targets {
  readonly file: string
  readonly node?: { readonly target: string }
}

const LOOPBACK_TARGETS: Targets = { file: '≤ 1.8', node: { target: '≤ 3.2' } }
const TARGETS: Readonly<Record<number, Targets>> = { 20: { file: '≤ 0.8', node: { target: '≤ 1.2' } }, 100: { file: '≤ 0.55' } }

interface Path {
  readonly at: string
  readonly peer: TestDaemon
  readonly ssh: SshPath
  readonly targets: Targets
}

/** Measures the contenders in turn, each as a new process. */
const rowsOver = async (alice: TestDaemon, { at, peer, ssh, targets }: Path, rounds: number): Promise<Row[]> => {
  const file = packaged(`x0x-linux-${process.arch}`)
  const words = ['--data-dir', alice.dir, 'exec', peer.name, '--', ...TRUE]
  const { ours, node, master, cold, limit } = await interleaved(rounds, {
    ours: async () => launch(file, words),
    node: async () => launch(process.execPath, [CLI, ...words]),
    master: async () => ssh.master(TRUE),
    cold: async () => ssh.cold(TRUE),
    limit: async () => launch(file, ['--version']),
  })
  const what = `${at}: one run, \`x0x exec\``
  const line = { what: `${what} as a single file`, unit: 'ms', ours, limit, limitOf: 'its `--version`' } as const
  return [
    { ...line, theirs: node, peer: 'the same with Node.js' },
    { ...line, theirs: master, peer: 'ssh ControlMaster', target: targets.file },
    { ...line, theirs: cold, peer: 'a new ssh connection' },
    { what: `${what} (Node.js)`, unit: 'ms', ours: node, theirs: master, peer: 'ssh ControlMaster', ...targets.node },
  ]
}

/** Compares the CLI as a single file with the CLI that Node.js runs, and with ssh. */
export const oneFile = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const { mesh, openSsh, plan } = stage
  const sshd = await openSsh()
  const [alice, bob, near] = [mesh.add('alice'), mesh.add('bob'), mesh.add('carol')]
  let roundTripMs = 0
  const { proxy, sshProxy } = await delayed(stage, { bob, sshd, roundTripMs: () => roundTripMs })
  await acquaint({ mesh, alice, bob, proxy }, [TRUE])
  await befriend(alice, near, [TRUE])
  const rows = await rowsOver(
    alice,
    { at: 'loopback', peer: near, ssh: sshd.direct, targets: LOOPBACK_TARGETS },
    LOOPBACK_ROUNDS[plan.mode],
  )
  for (const [distanceMs, rounds] of DISTANCES[plan.mode]) {
    roundTripMs = distanceMs
    await forget({ alice, bob })
    const ssh = await sshd.via(sshProxy.port)
    rows.push(...(await rowsOver(alice, { at: `${distanceMs} ms`, peer: bob, ssh, targets: TARGETS[distanceMs]! }, rounds)))
    await ssh.closeMaster()
  }
  return {
    intro: '`/bin/true` on a connected peer, from the start of the program to its end. The proxy of *Over a distance* adds the distances.',
    rows,
  }
}
