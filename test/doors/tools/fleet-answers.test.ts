import assert from 'node:assert/strict'
import { test } from 'node:test'

import { FleetAnswers } from '../../../src/doors/tools/fleet-answers.ts'
import { INERT, ToolRun } from '../../../src/doors/tools/tool-run.ts'

const ranOn = async (target: string, text: string): Promise<ToolRun> => {
  const request = { operation: 'exec', command: 'id', args: [], cwd: null, target, env: {}, stdin: new Uint8Array(0), timeout_ms: null }
  const run = new ToolRun({ id: `run_${target}`, request, askedAt: 0 })
  const totals = { duration_ms: 1, stdout_bytes_total: text.length, stderr_bytes_total: 0, truncated: false }
  const outcome = { code: 0, signal: null, ...totals, denial_reason: null, detail: null, lost: null }
  const { promise: ended, resolve: end } = Promise.withResolvers<typeof outcome>()
  const followed = run.follow({ ...INERT, startedAt: '2026-01-01T00:00:00.000Z', cwd: null, caps: { timeout_ms: 1 }, ended })
  run.event({ type: 'stdout', data: Buffer.from(text) })
  end(outcome)
  await followed
  return run
}

test('after the last answer, text that no result shows is dropped, but still counted', async () => {
  const hosts = ['one', 'two', 'three']
  const answers = new FleetAnswers({ view: { stdout: 100, stderr: 100 }, hosts })
  for (const host of hosts) answers.add(host, await ranOn(host, `${host} ${'x'.repeat(50)}`), false)
  const before = answers.list(120, () => true)
  assert.deepEqual(
    before.map(({ stdout, stdout_omitted_bytes }) => [stdout.length, stdout_omitted_bytes]),
    [
      [54, 0],
      [54, 0],
      [0, 56],
    ],
  )
  answers.settle(120)
  assert.deepEqual(
    answers.list(120, () => true),
    before,
  )
  assert.deepEqual(
    answers.list(10_000, () => true),
    before,
  )
})
