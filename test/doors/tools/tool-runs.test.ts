import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { NEVER } from '../../../src/base/abort.ts'
import { systemClock } from '../../../src/base/clock.ts'
import type { ToolRequest } from '../../../src/doors/tools/tool-request.ts'
import { MAX_ENDED, MAX_UNDER_WAY, ToolRuns } from '../../../src/doors/tools/tool-runs.ts'
import { ExecutorSessions } from '../../../src/doors/executor-sessions.ts'
import { CAPABILITY_NAMES } from '../../../src/protocol/rexd/fields.ts'
import { LocalHost, type LocalHostOptions } from '../../support/local-engine.ts'

const VIEW = { stdout: 100, stderr: 100 }

const requestOf = (command: string, args: readonly string[] = [], more: Partial<ToolRequest> = {}): ToolRequest => ({
  operation: 'exec_capture',
  command,
  args,
  cwd: null,
  target: null,
  env: {},
  stdin: new Uint8Array(0),
  timeout_ms: null,
  ...more,
})

/** The tools of one client, with an executor in this process. */
const runsOn = async (t: TestContext, options: LocalHostOptions = {}): Promise<{ runs: ToolRuns; host: LocalHost }> => {
  const host = await LocalHost.start(t, options)
  const { executor } = host
  const sessions = new ExecutorSessions(
    { executor },
    { opening: (target) => ({ door: 'mcp', client_name: 'a test', available: CAPABILITY_NAMES, target }), maxIdle: 4 },
  )
  const init = { caller: 'a test', ready: async () => NEVER.throwIfAborted() }
  return { runs: new ToolRuns({ executor, sessions, clock: systemClock }, init), host }
}

test('the latest ended runs are known, and a key still finds a run whose text was dropped', async (t) => {
  const { runs } = await runsOn(t)
  const first = runs.start(requestOf('echo', ['42']), 'a key')
  await first.ended
  assert.equal(first.result(VIEW).stdout, '42\n')
  for (let at = 0; at < MAX_ENDED; at++) await runs.start(requestOf('no-such-program-x0x'), null).ended
  await runs.start(requestOf('true'), null).ended
  assert.throws(() => runs.get(first.id), { code: 'unknown_run' })
  assert.ok(runs.all.length <= MAX_ENDED + 1)
  const again = runs.start(requestOf('echo', ['42']), 'a key')
  assert.equal(again, first)
  const { success, stdout, stdout_omitted_bytes, run_id } = again.result(VIEW)
  assert.deepEqual([success, stdout_omitted_bytes, run_id], [true, 3, null])
  assert.equal(stdout, '\n[… 3 more bytes were not kept …]\n')
  await runs.close()
})

test('a result has at most the requested bytes and counts the omitted ones', async (t) => {
  const { runs } = await runsOn(t, { limits: 'max_output_bytes = 100000' })
  // The command writes 108894 bytes of numbers, and the limit keeps 100000 of them.
  const run = runs.start(requestOf('seq', ['20000']), null)
  await run.ended
  const wide = runs.start(requestOf('printf', ['%s', '漢'.repeat(2_000)]), null)
  await wide.ended
  for (const one of [run, wide]) {
    const { total } = one.text.stdout.kept
    for (const max of [0, 1, 2, 16, 41, 42, 43, 80, 90, 100, 1_000, 5_999, 6_000, 65_536, total - 1, total, total + 100]) {
      const { stdout, stdout_omitted_bytes, stdout_truncated } = one.result({ stdout: max, stderr: max })
      assert.ok(Buffer.byteLength(stdout) <= max, `${max}: ${Buffer.byteLength(stdout)}`)
      const own = stdout.replaceAll(/\n\[… \d+ (bytes are left out|more bytes were not kept) …\]\n/g, '')
      assert.equal(Buffer.byteLength(own) + stdout_omitted_bytes, total + one.dropped('stdout'), String(max))
      assert.equal(stdout_truncated, stdout_omitted_bytes > 0)
    }
  }
  assert.equal(run.result({ stdout: 4, stderr: 0 }).stdout, '1\n2\n')
  assert.equal(wide.result({ stdout: 6_000, stderr: 0 }).stdout, '漢'.repeat(2_000))
  await runs.close()
})

test('runs over the limit of waiting runs are refused, and closing the server ends all waiting runs', async (t) => {
  const { runs } = await runsOn(t, { limits: 'max_processes_per_session = 1' })
  const all = Array.from({ length: MAX_UNDER_WAY }, () => runs.start(requestOf('sleep', ['300']), null))
  assert.throws(() => runs.start(requestOf('true'), null), { code: 'rate_limited' })
  assert.equal(runs.waitingBefore(all.at(-1)!), MAX_UNDER_WAY - 1)
  await runs.close()
  await Promise.all(all.map(async (run) => run.ended))
  assert.ok(all.every((run) => run.over && !run.result(VIEW).success))
  const late = runs.start(requestOf('true'), null)
  await late.ended
  assert.equal(late.result(VIEW).launch_error?.kind, 'spawn')
})

test('waiting stdin has a limit of bytes, and cancelled runs free their share', async (t) => {
  const { runs } = await runsOn(t, { limits: 'max_processes_per_session = 1' })
  const holding = runs.start(requestOf('sleep', ['300']), null)
  const stdin = new Uint8Array(16 * 1024 * 1024)
  const waiting = Array.from({ length: 4 }, () => runs.start(requestOf('cat', [], { stdin }), null))
  assert.throws(() => runs.start(requestOf('cat', [], { stdin: new Uint8Array(1) }), null), { code: 'rate_limited' })
  for (const run of [...waiting, holding]) run.cancel()
  await Promise.all([...waiting, holding].map(async (run) => run.ended))
  const next = runs.start(requestOf('true', [], { stdin: new Uint8Array(1) }), null)
  await next.ended
  assert.equal(next.result(VIEW).success, true)
  await runs.close()
})
