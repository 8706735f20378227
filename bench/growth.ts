import { randomUUID } from 'node:crypto'
import { writeFile } from 'node:fs/promises'

import { Chain, prepareLine } from '../src/journal/line.ts'
import { toHex } from '../src/protocol/ids.ts'
import { randomBytes } from '../src/identity/hash.ts'
import type { TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { BarePeers, entryFor } from './bare-peers.ts'
import { startPair, TRUE } from './pair.ts'
import { tableOf, type Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, timed, type Summary } from './stats.ts'

const MB = 1e6
const STEPS = {
  full: { peers: [1, 10, 100, 500], lines: 1_000_000, entries: 10_000 },
  quick: { peers: [1, 20], lines: 10_000, entries: 100 },
}

const runsOf = async (call: () => Promise<unknown>, rounds: number): Promise<Summary> => (await interleaved(rounds, { call })).call

const lineOf = (what: string, { median, p99 }: Summary, bytes: number, startMs: number | null = null): string[] => [
  what,
  median.toFixed(2),
  p99.toFixed(2),
  (bytes / MB).toFixed(0),
  startMs === null ? '' : startMs.toFixed(0),
]

/** An audit log with runs of other agents. */
const journalOf = (lines: number): Buffer => {
  const chain = new Chain({ id: randomUUID() })
  const [agent_id, machine_id] = [toHex(randomBytes(32)), toHex(randomBytes(32))]
  const parts: Buffer[] = []
  for (let line = 0; line < lines; line++) {
    const prepared = prepareLine(
      { event: 'warning', request_id: randomUUID(), agent_id, machine_id, kind: 'duration_approaching_cap', bytes: null },
      Date.now(),
    )
    const encoded = chain.encode([prepared])
    chain.commit(encoded)
    parts.push(...encoded.map(({ bytes }) => bytes), Buffer.from('\n'))
  }
  return Buffer.concat(parts)
}

/** Measures the cost of many peers, a long audit log and a long ACL, in run time, memory and start time. */
export const growth = async ({ mesh, plan, after }: Stage): Promise<Omit<Section, 'title'>> => {
  const { peers, lines, entries } = STEPS[plan.mode]
  const { alice, bob, client } = await startPair(mesh)
  const call = async (): Promise<void> => client.run(bob.agentId, TRUE)
  const rows: string[][] = []
  const restarted = async (daemon: TestDaemon): Promise<number> => {
    await daemon.stop()
    return timed(async () => daemon.start())
  }
  const ours = { agent: alice, commands: [TRUE] }
  const others = new BarePeers(bob, Math.max(...peers) - 1)
  after(async () => others.stop())
  await bob.writeAcl([ours, ...others.aclEntries])
  await bob.restart()
  await runsOf(call, plan.rounds)
  for (const count of peers) {
    // Alice is one of them.
    await others.grow(count - 1)
    const summary = await runsOf(call, plan.rounds)
    rows.push(lineOf(`${count} connected peers`, summary, await bob.memory()))
  }
  await others.stop()
  const look = async (what: string): Promise<void> => {
    const startMs = await restarted(bob)
    await runsOf(call, plan.rounds / 4)
    rows.push(lineOf(what, await runsOf(call, plan.rounds), await bob.memory(), startMs))
  }
  await writeFile(bob.journalFile, '')
  await bob.writeAcl([ours])
  await look('an empty audit log, an ACL of 1 entry')
  await writeFile(bob.journalFile, journalOf(lines))
  await look(`an audit log of ${lines} lines`)
  await writeFile(bob.journalFile, '')
  await bob.writeAcl([...Array.from({ length: entries - 1 }, () => entryFor(toHex(randomBytes(32)))), ours])
  await look(`an ACL of ${entries} entries, the requester's last`)
  client.close()
  const intro =
    'Runs of `/bin/true` on bob. The memory is that of both processes of bob. The start ends when the daemon reports that it is ready. The ACL of bob lists the peers.'
  return { intro, table: tableOf(['bob has', 'run, median ms', 'p99, ms', 'bob resident, MB', 'start, ms'], rows) }
}
