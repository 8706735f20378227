import assert from 'node:assert/strict'
import { test } from 'node:test'

import { KeyedRuns } from '../../../src/doors/tools/tool-runs.ts'
import { ToolRun } from '../../../src/doors/tools/tool-run.ts'
import { MAX_KEYS } from '../../../src/protocol/limits/tools.ts'

const request = {
  operation: 'exec',
  command: 'true',
  args: [],
  cwd: null,
  target: null,
  env: {},
  stdin: new Uint8Array(0),
  timeout_ms: null,
}

const overRun = (): ToolRun => {
  const run = new ToolRun({ id: 'run_1', request, askedAt: 0 })
  void run.follow({
    startedAt: '2026-01-01T00:00:00.000Z',
    cwd: '/',
    caps: { timeout_ms: 1_000 },
    ended: Promise.resolve(null),
    cancel: () => undefined,
    signal: () => false,
  })
  return run
}

test('the oldest keys of ended runs are dropped, and a key that is stored again becomes the newest', async () => {
  const keyed = new KeyedRuns()
  const runs = Array.from({ length: MAX_KEYS + 2 }, overRun)
  const going = new ToolRun({ id: 'run_2', request, askedAt: 0 })
  await Promise.all(runs.map(async ({ ended }) => ended))
  keyed.keep('goes on', going)
  for (const [at, run] of runs.entries()) keyed.keep(`key ${at}`, run)
  const known = (): boolean[] => ['goes on', 'key 0', 'key 1', 'key 2', 'key 3'].map((key) => keyed.get(key) !== null)
  assert.deepEqual(known(), [true, false, false, false, true])
  keyed.keep('key 0', runs[0]!)
  assert.deepEqual(known(), [true, true, false, false, false])
})
