import { acquaint } from '../test/support/proxied-pair.ts'
import { LossyPath, lossyPathNeeds } from './lossy-path.ts'
import { TRUE, zeros } from './pair.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { callsOver, outputOver } from './wan.ts'

const LOSS = 0.01
const ROUND_TRIPS_MS = [20, 100]
const BYTES = 1024 * 1024

/** Measures the same over a path with packet loss, where the kernel's TCP retransmits. */
export const loss = async ({ mesh, openSsh, plan, after }: Stage): Promise<Omit<Section, 'title'>> => {
  const missing = lossyPathNeeds()
  if (missing !== null) return { intro: `Not measured: it needs ${missing}.`, rows: [] }
  const sshd = await openSsh()
  let roundTripMs = 0
  const path = await LossyPath.open({ roundTripMs: () => roundTripMs, loss: LOSS })
  after(async () => path.close())
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  const proxy = await path.proxyTo(() => Number(bob.multiaddr.split('/')[4]))
  const sshProxy = await path.proxyTo(() => sshd.port)
  await acquaint({ mesh, alice, bob, proxy }, [TRUE, zeros(BYTES)], `max_stdout_bytes = ${2 * BYTES}`)
  const rows: Row[] = []
  for (roundTripMs of ROUND_TRIPS_MS) {
    const ssh = await sshd.via(sshProxy.port)
    const over = { at: `${roundTripMs} ms, 1 % lost`, alice, bob, ssh }
    rows.push(...(await callsOver(over, { rounds: Math.ceil(plan.rounds / 4), firsts: Math.ceil(plan.rounds / 20) })))
    rows.push(await outputOver(over, { bytes: BYTES, rounds: Math.ceil(plan.rounds / 20) }))
    await ssh.closeMaster()
  }
  return {
    intro:
      'The TCP of the kernel over a link through a network namespace. The link delays each packet and loses one in a hundred in each direction. It needs three more processes on the same cores, and a request of x0x has three packets. So the times are longer than above, for x0x more than for ssh. Each call runs `/bin/true` in a new client process.',
    rows,
  }
}
