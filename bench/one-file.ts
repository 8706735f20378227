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

/** Round trips, and how often each is measured: a cold ssh takes eight of them. */
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

interface Path {
  readonly at: string
  readonly peer: TestDaemon
  readonly ssh: SshPath
  readonly target?: string
}

/** Every contender a process of its own, in turn. */
const rowsOver = async (alice: TestDaemon, { at, peer, ssh, target }: Path, rounds: number): Promise<Row[]> => {
  const file = packaged(`x0x-linux-${process.arch}`)
  const words = ['--data-dir', alice.dir, 'exec', peer.name, '--', ...TRUE]
  const { ours, node, master, cold, limit } = await interleaved(rounds, {
    ours: async () => launch(file, words),
    node: async () => launch(process.execPath, [CLI, ...words]),
    master: async () => ssh.master(TRUE),
    cold: async () => ssh.cold(TRUE),
    limit: async () => launch(file, ['--version']),
  })
  const what = `${at}: warm exec, CLI`
  const line = { what: `${what} as one file`, unit: 'ms', ours, limit, limitOf: 'its `--version`' } as const
  return [
    { ...line, theirs: node, peer: 'the same under Node', ...(target === undefined ? {} : { target }) },
    { ...line, theirs: master, peer: 'ssh ControlMaster' },
    { ...line, theirs: cold, peer: 'ssh, cold' },
    { what: `${what} under Node`, unit: 'ms', ours: node, theirs: master, peer: 'ssh ControlMaster' },
  ]
}

/** The command line as one file beside the one that Node runs, and beside ssh. */
export const oneFile = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const { mesh, openSsh, plan } = stage
  const sshd = await openSsh()
  const [alice, bob, near] = [mesh.add('alice'), mesh.add('bob'), mesh.add('carol')]
  let roundTripMs = 0
  const { proxy, sshProxy } = await delayed(stage, { bob, sshd, roundTripMs: () => roundTripMs })
  await acquaint({ mesh, alice, bob, proxy }, [TRUE])
  await befriend(alice, near, [TRUE])
  const rows = await rowsOver(alice, { at: 'loopback', peer: near, ssh: sshd.direct, target: '≤ 0.5' }, LOOPBACK_ROUNDS[plan.mode])
  for (const [distanceMs, rounds] of DISTANCES[plan.mode]) {
    roundTripMs = distanceMs
    await forget({ alice, bob })
    const ssh = await sshd.via(sshProxy.port)
    rows.push(...(await rowsOver(alice, { at: `${distanceMs} ms`, peer: bob, ssh }, rounds)))
    await ssh.closeMaster()
  }
  return { intro: '`/bin/true` on a linked peer; the whole process. Distances by the proxy of *Over a distance*.', rows }
}
