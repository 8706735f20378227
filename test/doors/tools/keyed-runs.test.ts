import assert from 'node:assert/strict'
import { test } from 'node:test'

import { KeyedRuns } from '../../../src/doors/tools/keyed-runs.ts'
import { ToolRun } from '../../../src/doors/tools/tool-run.ts'
import { MAX_KEYS } from '../../../src/protocol/tool-limits.ts'

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

test('the journal is asked again for a key that was dropped, and for no other', async () => {
  const keyed = new KeyedRuns()
  const runs = Array.from({ length: MAX_KEYS + 2 }, overRun)
  await Promise.all(runs.map(async ({ ended }) => ended))
  for (const [at, run] of runs.entries()) keyed.keep(`key ${at}`, run)
  assert.deepEqual(
    ['key 0', 'key 1', 'key 2', 'a new key'].map((key) => [keyed.get(key) !== null, keyed.hasDropped(key)]),
    [
      [false, true],
      [false, true],
      [true, false],
      [false, false],
    ],
  )
  keyed.keep('key 0', runs[0]!)
  assert.deepEqual([keyed.get('key 0') !== null, keyed.hasDropped('key 0')], [true, false])
})
