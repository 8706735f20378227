import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'

import { Semaphore } from '../../../src/base/semaphore.ts'
import { RuleTools } from '../../../src/doors/mcp/rule-tools.ts'
import type { ToolContext } from '../../../src/doors/mcp/tool.ts'
import type { RulesJson } from '../../../src/protocol/api/rules.ts'
import type { ToolResult } from '../../../src/doors/tools/tool-result.ts'
import { Replay } from '../../../src/doors/tools/replay.ts'
import { LineRecorder } from '../../../src/doors/tools/tool-run-recorder.ts'
import type { ToolRequest } from '../../../src/doors/tools/tool-request.ts'
import { ToolRuns, type ToolRunsComponents } from '../../../src/doors/tools/tool-runs.ts'
import type { ToolRun } from '../../../src/doors/tools/tool-run.ts'
import type { LocalRunHandle, LocalRunSink, LocalRunRequest } from '../../../src/executor-api/local.ts'
import { parseRecordLine } from '../../../src/protocol/tool-record.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const STREAM = 64 * 1024
const VIEW = { stdout: 1_024, stderr: 1_024 }
const OUTCOME = { code: 0, signal: null, duration_ms: 1, stdout_bytes_total: STREAM, stderr_bytes_total: STREAM, truncated: false }

const start = async ({ argv }: LocalRunRequest, sink: LocalRunSink, ends: Promise<void>): Promise<LocalRunHandle> => {
  for (const type of ['stdout', 'stderr'] as const) void sink.event({ type, data: Buffer.alloc(STREAM, 'x') })
  const outcome = { ...OUTCOME, denial_reason: null, detail: null, lost: null }
  const ended = argv.includes('long') ? ends.then(() => outcome) : Promise.resolve(outcome)
  return { startedAt: '2026-05-21T09:42:18.000Z', cwd: '/srv', caps: { timeout_ms: 1_000 }, ended } as LocalRunHandle
}

const requestOf = (args: readonly string[] = []): ToolRequest => {
  const request = { operation: 'exec_capture', command: 'make', args, cwd: null, target: null, env: {} }
  return { ...request, stdin: new Uint8Array(0), timeout_ms: 1_000 }
}

const server = () => {
  const ends = Promise.withResolvers<void>()
  const lines: Buffer[] = []
  const clock = new ManualClock()
  const recorder = new LineRecorder({ clock, write: (line) => void lines.push(line) }, { whoami: 'a test' })
  const sessions = {
    use: async (_target: unknown, work: (session: unknown) => unknown) => work({ id: 's', turns: new Semaphore({ limit: 1 }) }),
  }
  const components = {
    executor: { start: async (call: LocalRunRequest, sink: LocalRunSink) => start(call, sink, ends.promise), recall: async () => null },
    sessions,
    clock,
  } as unknown as ToolRunsComponents
  const runs = new ToolRuns(components, { caller: 'a test', ready: async () => undefined, recorder })
  const run = async (key: string, args?: readonly string[]): Promise<ToolRun> => {
    const begun = runs.start(requestOf(args), key)
    await begun.ended
    // The server continues in the next turn after the run has ended.
    await setImmediate()
    return begun
  }
  return { runs, run, lines, ends }
}

test("an idempotency key finds its run long after the run's output was dropped", async () => {
  const { run, runs, lines } = server()
  const all: ToolRun[] = []
  for (let at = 0; at < 200; at++) all.push(await run(`key ${at}`))
  assert.equal(runs.all.length, 64)
  // Each of the 64 remaining runs may hold two streams.
  assert.ok(all.reduce((sum, { size }) => sum + size, 0) <= 64 * 2 * STREAM)
  const again = await run('key 0')
  assert.equal(again, all[0])
  const { success, stdout, stdout_omitted_bytes, run_id } = again.result(VIEW)
  assert.deepEqual({ success, stdout_omitted_bytes, run_id }, { success: true, stdout_omitted_bytes: STREAM, run_id: null })
  assert.match(stdout, /^\n\[… 65536 more bytes were not kept …\]\n$/)
  const replay = new Replay()
  for (const line of lines) {
    const parsed = parseRecordLine(line.subarray(0, -1))
    assert.ok(typeof parsed === 'object', String(parsed))
    assert.equal(await replay.take(parsed), null)
  }
  assert.equal(replay.results, 1)
})

test('a late answer of a rule tool contains the whole output of its command', async () => {
  const { runs, run } = server()
  const rule = {
    description: null,
    argv: ['make'],
    timeout_ms: 1_000,
    max_stdout_bytes: STREAM,
    max_stderr_bytes: STREAM,
    max_stdin_bytes: 0,
    detach: null,
    terminal: false,
    record: false,
    watch: false,
  }
  const clock = new ManualClock()
  const rules = {
    ok: true,
    request_id: 'r',
    agent_id: 'a',
    machine_id: 'm',
    denial_reason: null,
    rules: [rule],
    left_out: 0,
  } as unknown as RulesJson
  const source = new RuleTools({ ask: async () => rules, clock }, 'bob')
  await source.rules.refresh()
  const call = { signal: new AbortController().signal, progress: () => undefined }
  const context = { runs, clock, answerWithinMs: 1_000 } as unknown as ToolContext
  const answer = await source.tools[0]?.call({ max_stdout_bytes: STREAM }, context, call)
  for (let at = 0; at < 100; at++) await run(`key ${at}`)
  const { result } = (await answer?.()) ?? assert.fail('there is a tool')
  assert.equal((result as ToolResult).stdout, 'x'.repeat(STREAM))
})

test('a long run is known after it ends, even if many runs ended before it', async () => {
  const { runs, run, ends } = server()
  const long = runs.start(requestOf(['long']), null)
  for (let at = 0; at < 100; at++) await run(`key ${at}`)
  ends.resolve()
  await long.ended
  await setImmediate()
  assert.equal(runs.get(long.id), long)
  assert.equal(long.result({ ...VIEW, stdout: STREAM }).stdout, 'x'.repeat(STREAM))
})
