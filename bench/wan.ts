import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

import { CLI } from '../test/support/mesh-of-daemons.ts'
import { acquaint } from '../test/support/proxied-pair.ts'
import { throughput } from './bulk.ts'
import { DelayProxy } from './delay-proxy.ts'
import { TRUE, zeros } from './pair.ts'
import { drain } from './processes.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, summarize, timed } from './stats.ts'

const ROUND_TRIPS_MS = [0, 20, 100, 200]

/** A tenth of what one run's output weighs on loopback: ssh is slow on a long path. */
const BULK_PART = 4

/** The same over paths of several lengths, every call a process of its own on both sides. */
export const wan = async ({ mesh, openSsh, plan, after }: Stage): Promise<Omit<Section, 'title'>> => {
  const sshd = await openSsh()
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  let roundTripMs = 0
  const proxy = await new DelayProxy(
    () => Number(bob.multiaddr.split('/')[4]),
    () => roundTripMs,
  ).listen()
  const sshProxy = await new DelayProxy(
    () => sshd.port,
    () => roundTripMs,
  ).listen()
  after(async () => Promise.all([proxy, sshProxy].map(async (each) => each.close())).then(() => undefined))
  const bytes = plan.bytes / BULK_PART
  await acquaint({ mesh, alice, bob, proxy }, [TRUE, zeros(bytes)], `max_stdout_bytes = ${2 ** 32}`)
  const exec = (argv: readonly string[]): string[] => [CLI, '--data-dir', alice.dir, 'exec', 'bob', '--', ...argv]
  const ours = async (): Promise<unknown> => promisify(execFile)(process.execPath, exec(TRUE))
  /** Neither remembers where the other is: all that alice has is a card. */
  const forget = async (): Promise<void> => {
    await alice.stop()
    await bob.restart()
    await alice.start()
  }
  const rows: Row[] = []
  for (roundTripMs of ROUND_TRIPS_MS) {
    const first: number[] = []
    for (let round = 0; round < Math.max(2, plan.rounds / 40); round++) {
      await forget()
      first.push(await timed(ours))
    }
    const ssh = await sshd.via(sshProxy.port)
    const warm = await interleaved(Math.ceil(plan.rounds / 10), {
      ours,
      master: async () => ssh.master(TRUE),
      cold: async () => ssh.cold(TRUE),
    })
    const at = `${roundTripMs} ms`
    const long = roundTripMs === 100
    rows.push(
      {
        what: `${at}: warm exec, CLI`,
        unit: 'ms',
        ours: warm.ours,
        theirs: warm.master,
        peer: 'ssh ControlMaster',
        ...(long && { target: '≤ 0.65' }),
      },
      {
        what: `${at}: warm exec, CLI`,
        unit: 'ms',
        ours: warm.ours,
        theirs: warm.cold,
        peer: 'ssh, cold',
        ...(long && { target: '≤ 0.15' }),
      },
      {
        what: `${at}: first exec to a peer never dialled, CLI`,
        unit: 'ms',
        ours: summarize(first),
        theirs: warm.cold,
        peer: 'ssh, cold',
        ...(long && { target: '≤ 0.65' }),
      },
    )
    if (roundTripMs > 0) {
      const rates = await throughput(bytes, 2, {
        ours: async () => drain(process.execPath, exec(zeros(bytes))),
        theirs: async () => ssh.drain(zeros(bytes)),
      })
      rows.push({
        what: `${at}: stdout of one run, ${bytes / 1024 / 1024} MiB, CLI`,
        unit: 'MB/s',
        ...rates,
        peer: 'ssh ControlMaster',
        ...(roundTripMs >= 100 && { target: '≥ 1.5' }),
      })
    }
    await ssh.closeMaster()
  }
  return {
    intro:
      'By way of a proxy that delays what passes, and the first bytes of a connection by the round trip that a handshake takes; it has no bandwidth and no congestion window. `/bin/true` where nothing else is said; every call is a process of its own.',
    rows,
  }
}
