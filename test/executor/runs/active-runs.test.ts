import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { PeerLink } from '../../../src/executor/links/executor-links.ts'
import { ActiveRuns } from '../../../src/executor/runs/runs.ts'
import type { Active } from '../../../src/executor/runs/runs.ts'
import { MAX_RUNS_PER_PEER } from '../../../src/protocol/limits/wire.ts'

const never = Promise.withResolvers<void>().promise
const linkOf = (agentId: string, machineId: string): PeerLink =>
  ({ number: 1, agentId, machineId, pair: `${agentId} ${machineId}` }) as unknown as PeerLink

test('open runs of one agent are limited over all its machines and leave room for other agents', () => {
  const runs = new ActiveRuns()
  const open = (link: PeerLink): void => runs.track({ link } as Active, never)
  const [alice, hugo] = [linkOf('alice', 'machine'), linkOf('hugo', 'one more machine')]
  for (let i = 0; i < MAX_RUNS_PER_PEER - 1; i++) open(linkOf('hugo', `machine ${i}`))
  open(alice)
  assert.equal(runs.isFullFor(hugo), false)
  open(hugo)
  assert.deepEqual([runs.isFullFor(hugo), runs.isFullFor(alice)], [true, false])
})
