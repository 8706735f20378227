import { setTimeout as sleep } from 'node:timers/promises'

import type { TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { restClientOf, startPair, TRUE } from './pair.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { summarize } from './stats.ts'

const ROUNDS = { full: 20, quick: 3 }
const POLL_MS = 2
const PATIENCE_MS = 30_000

/** Measures from the start of a daemon until it serves a run that is retried. */
const untilServed = async (daemon: TestDaemon, agentId: string): Promise<number> => {
  await daemon.stop()
  const client = await restClientOf(daemon)
  const began = performance.now()
  const started = daemon.start()
  for (;;) {
    const served = await client.run(agentId, TRUE).then(
      () => true,
      () => false,
    )
    if (served) break
    if (performance.now() - began > PATIENCE_MS) throw new Error(`${daemon.name} serves nothing`)
    await sleep(POLL_MS)
  }
  const took = performance.now() - began
  await started
  client.close()
  return took
}

/** Measures from the start of daemons to the first command. */
export const start = async ({ mesh, plan }: Stage): Promise<Omit<Section, 'title'>> => {
  const { alice, bob, client } = await startPair(mesh)
  client.close()
  await alice.writeAcl([{ agent: alice, commands: [TRUE] }])
  const [own, peer]: [number[], number[]] = [[], []]
  for (let round = 0; round < ROUNDS[plan.mode]; round++) {
    own.push(await untilServed(alice, alice.agentId))
    peer.push(await untilServed(alice, bob.agentId))
  }
  const rows: Row[] = [
    { what: 'from the start of a daemon to the end of a run on itself', unit: 'ms', ours: summarize(own), target: '≤ 0.65 × before' },
    {
      what: 'from the start of a daemon to the end of a run on a running peer',
      unit: 'ms',
      ours: summarize(peer),
      target: '≤ 0.65 × before',
    },
  ]
  return { intro: 'Both processes start: they read keys, logs and ACL, test the control groups, listen and connect.', rows }
}
