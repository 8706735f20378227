import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'

import { AppError } from '../../../src/base/errors.ts'
import { ConsoleHost, type Transcript } from '../../../src/doors/console/host.ts'
import { silentScreen } from '../../../src/doors/console/screen/silent-screen.ts'
import type { LocalExecutor, LocalOutcome, LocalRunHandle, LocalRunSink, LocalRunRequest } from '../../../src/executor-api/local.ts'
import {
  MAX_CONSOLE_ATTACHED,
  MAX_CONSOLE_RUNS,
  TRANSCRIPT_WAIT_MS,
  type ConsoleReply,
  type ConsoleRequest,
} from '../../../src/protocol/console/messages.ts'
import { HIDDEN_VALUE } from '../../../src/protocol/console/transcript.ts'
import { NEVER } from '../../../src/base/abort.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/processes.ts'

const request = (whoami: string, exec: readonly string[] = ['true']): ConsoleRequest => ({
  whoami,
  dir: '/',
  envs: {},
  exec,
  stdin: null,
  timeout_ms: null,
  clear_env: false,
})

const OUTCOME: LocalOutcome = {
  code: 0,
  signal: null,
  duration_ms: 1,
  stdout_bytes_total: 0,
  stderr_bytes_total: 0,
  truncated: false,
  denial_reason: null,
  detail: null,
  lost: null,
}

/** Starts no process. The test decides what a command writes and how it ends. */
class FakeExecutor {
  readonly runs: { start: LocalRunRequest; sink: LocalRunSink; signals: string[]; end: (outcome?: Partial<LocalOutcome>) => void }[] = []
  readonly open_sessions = new Set<string>()
  opened = 0
  fails: AppError | null = null
  /** An executor that finds every program. */
  begins: Promise<null> = Promise.resolve(null)

  async open({ client_name }: { client_name: string }) {
    this.opened += 1
    const session = `${client_name} ${this.opened}`
    this.open_sessions.add(session)
    return { session, grant: { limits: { max_processes_per_session: 16 } } as never }
  }

  async close(session: string): Promise<number> {
    this.open_sessions.delete(session)
    return 0
  }

  async start(start: LocalRunRequest, sink: LocalRunSink): Promise<LocalRunHandle> {
    if (this.fails !== null) throw this.fails
    const { promise: ended, resolve } = Promise.withResolvers<LocalOutcome>()
    const signals: string[] = []
    const signal = (name: string): boolean => signals.push(name) > 0
    this.runs.push({ start, sink, signals, end: (outcome = {}) => resolve({ ...OUTCOME, ...outcome }) })
    return { begun: this.begins, ended, signal, input: () => 0 } as unknown as LocalRunHandle
  }
}

const start = ({ transcript }: { transcript?: Transcript } = {}) => {
  const [executor, clock] = [new FakeExecutor(), new ManualClock()]
  let shown = ''
  const kept: { place: number; whoami: string }[] = []
  let places = 0
  const keeps: Transcript = transcript ?? {
    arrive: () => places++,
    end: async (place, { whoami }) => kept.push({ place, whoami }) > 0,
  }
  const host = new ConsoleHost({ executor: executor as unknown as LocalExecutor, clock, transcript: keeps })
  host.show(silentScreen((text) => (shown += text)))
  const run = async (whoami: string, gone: AbortSignal = NEVER): Promise<ConsoleReply> => host.run(request(whoami), gone)
  const started = async (count: number) => {
    await until(() => executor.runs.length >= count)
    return executor.runs[count - 1]!
  }
  return { host, executor, clock, run, started, kept, shown: () => shown }
}

test("a paused agent's command waits while another agent's command runs, and an abort ends the wait", async () => {
  const { host, run, started, executor, shown } = start()
  host.pause('Slow')
  const waiting = run('Slow')
  const given = new AbortController()
  const left = run('Slow', given.signal)
  const other = run('Fast')
  ;(await started(1)).end()
  assert.deepEqual(await other, { exit: 0, output: '' })
  given.abort()
  assert.deepEqual(await left, { exit: 143, output: '', error: 'aborted' })
  assert.equal(executor.runs.length, 1)
  assert.match(shown(), /Slow is paused/)
  host.resume('Slow')
  ;(await started(2)).end({ code: 5 })
  assert.deepEqual(await waiting, { exit: 5, output: '' })
})

test('if an agent is paused while its command waits for its turn, another agent gets the turn', async () => {
  const { host, run, started, executor } = start()
  const first = Array.from({ length: MAX_CONSOLE_RUNS }, async () => run('Fast'))
  await started(MAX_CONSOLE_RUNS)
  const [waiting, other] = [run('Slow'), run('Other')]
  await until(() => true)
  host.pause('Slow')
  assert.deepEqual([...host.paused], ['Slow'])
  executor.runs[0]!.end()
  ;(await started(MAX_CONSOLE_RUNS + 1)).end()
  assert.deepEqual(await other, { exit: 0, output: '' })
  assert.equal(executor.runs.length, MAX_CONSOLE_RUNS + 1)
  host.resume('Slow')
  ;(await started(MAX_CONSOLE_RUNS + 2)).end({ code: 5 })
  assert.deepEqual(await waiting, { exit: 5, output: '' })
  for (const { end } of executor.runs) end()
  await Promise.all(first)
})

test('the console pauses at most 256 agents and resumes no agent to pause another', () => {
  const { host } = start()
  for (let n = 0; n < 300; n++) host.pause(`agent ${n}`)
  assert.equal(host.paused.size, 256)
  assert.ok(host.paused.has('agent 0'))
})

test('a reply waits at most a fixed time until the transcript is written', async () => {
  const never = new Promise<boolean>(() => undefined)
  const { run, started, clock } = start({ transcript: { arrive: () => 0, end: async () => never } })
  let replied = false
  const reply = run('C').finally(() => (replied = true))
  ;(await started(1)).end()
  while (clock.pending === 0) await nextTurn()
  await clock.advance(TRANSCRIPT_WAIT_MS - 1)
  assert.equal(replied, false)
  await clock.advance(1)
  assert.deepEqual(await reply, { exit: 0, output: '' })
})

test('an abort sends SIGTERM at once and SIGKILL after 200 ms', async () => {
  const { host, run, started, clock } = start()
  const reply = run('C')
  const one = await started(1)
  await clock.advance(0)
  host.abort(1)
  host.abort(1)
  assert.deepEqual(one.signals, ['TERM'])
  await clock.advance(199)
  assert.deepEqual(one.signals, ['TERM'])
  await clock.advance(1)
  assert.deepEqual(one.signals, ['TERM', 'KILL'])
  one.end({ code: null, signal: 9 })
  assert.deepEqual(await reply, { exit: 137, output: '', error: 'aborted' })
  host.abort(1)
  host.abort(99)
})

test("a program that starts after its abort's grace period gets SIGTERM, its own 200 ms and then SIGKILL", async () => {
  const { host, run, started, executor, clock } = start()
  const { promise, resolve } = Promise.withResolvers<null>()
  executor.begins = promise
  const reply = run('C')
  const one = await started(1)
  await clock.advance(0)
  host.abort(1)
  await clock.advance(200)
  one.signals.length = 0
  resolve(null)
  await clock.advance(0)
  assert.deepEqual(one.signals, ['TERM'])
  await clock.advance(200)
  assert.deepEqual(one.signals, ['TERM', 'KILL'])
  one.end({ code: null, signal: 9 })
  assert.deepEqual(await reply, { exit: 137, output: '', error: 'aborted' })
})

test('attached clients see names of variables without values, and get unfiltered output only if they ask for it', async () => {
  const { host, started } = start()
  const told: [string, unknown][] = []
  for (const ansi of [false, true]) host.attach({ ansi, emit: ({ output, envs }) => told.push([output, envs]) })
  const reply = host.run({ ...request('C'), envs: { TOKEN: 'secret' } }, NEVER)
  const one = await started(1)
  await one.sink.event({ type: 'stdout', data: Buffer.from('\u001b[31mred\u001b[m\r\n') })
  one.end()
  assert.deepEqual(await reply, { exit: 0, output: 'red\n' })
  const envs = { TOKEN: HIDDEN_VALUE }
  assert.deepEqual(told, [
    ['red\n', envs],
    ['\u001b[31mred\u001b[m\r\n', envs],
  ])
})

test('the console limits attached clients, and accepts another when one leaves', () => {
  const { host } = start()
  const one = { ansi: false, emit: () => undefined }
  const detach = Array.from({ length: MAX_CONSOLE_ATTACHED }, () => host.attach({ ...one }))
  assert.ok(detach.every((leave) => leave !== null))
  assert.equal(host.attach({ ...one }), null)
  detach[0]?.()
  assert.notEqual(host.attach({ ...one }), null)
})

test('a command that exceeds its timeout gets SIGKILL after 200 ms and exits with 124', async () => {
  const { run, started, clock } = start()
  const reply = run('C')
  const one = await started(1)
  await one.sink.event({ type: 'warning', kind: 'duration_cap_hit' })
  await clock.advance(200)
  assert.deepEqual(one.signals, ['KILL'])
  one.end({ code: null, signal: 9 })
  assert.deepEqual(await reply, { exit: 124, output: '', error: 'timeout' })
})

test('only a missing program is reported as not_found, and a missing directory as spawn_failed', async () => {
  const { run, executor } = start()
  executor.fails = new AppError('file_not_found', 'no such program', { data: { argv0: 'true' } })
  assert.deepEqual(await run('C'), { exit: 127, output: '', error: 'not_found', message: 'no such program' })
  executor.fails = new AppError('file_not_found', 'may not be run', { data: { argv0: 'true', why: 'not_executable' } })
  assert.equal((await run('C')).error, 'spawn_failed')
  executor.fails = new AppError('file_not_found', '/x: no such directory')
  assert.deepEqual(await run('C'), { exit: 127, output: '', error: 'spawn_failed', message: '/x: no such directory' })
  executor.fails = new AppError('journal_unavailable')
  assert.equal((await run('C')).error, 'spawn_failed')
})

test('commands over the concurrency limit wait, and all of them run', async () => {
  const { run, started, executor } = start()
  const replies = Array.from({ length: 1_000 }, async (_one, at) => run(`agent ${at % 40}`))
  await started(MAX_CONSOLE_RUNS)
  assert.equal(executor.runs.length, MAX_CONSOLE_RUNS)
  for (let at = 0; at < 1_000; at++) (await started(at + 1)).end()
  const ended = await Promise.all(replies)
  assert.ok(ended.every(({ exit }) => exit === 0))
  await until(() => executor.open_sessions.size <= 16)
})

test('transcript places follow the order in which commands start, and the console overwrites only REXEC_WHOAMI', async () => {
  const { run, started, kept } = start()
  const [one, two] = [run('one'), run('two')]
  const [first, second] = [await started(1), await started(2)]
  assert.deepEqual(first.start.env, { REXEC_WHOAMI: 'one' })
  second.end()
  await two
  first.end()
  await one
  assert.deepEqual(kept, [
    { place: 1, whoami: 'two' },
    { place: 0, whoami: 'one' },
  ])
})

test('the console host aborts running commands and refuses new ones when it ends', async () => {
  const { host, run, started } = start()
  const reply = run('C')
  const one = await started(1)
  const ending = host.end()
  await until(() => one.signals.length > 0)
  one.end({ code: null, signal: 15 })
  assert.deepEqual(await reply, { exit: 143, output: '', error: 'aborted' })
  await ending
  assert.deepEqual(await run('C'), { exit: 143, output: '', error: 'aborted' })
  assert.equal(host.stopped.aborted, true)
})
