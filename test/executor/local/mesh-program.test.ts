import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import { aborted } from '../../../src/base/abort.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { AppError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { LocalJournal, LocalReport } from '../../../src/executor/local/journal.ts'
import { LocalRun, MAX_STDIN_UNACKED } from '../../../src/executor/local/run.ts'
import { MeshProgram } from '../../../src/executor/local/mesh-program.ts'
import type { TargetRunner } from '../../../src/executor/local/target-runner.ts'
import type { TerminalSize } from '../../../src/executor-api/local.ts'
import type { RequestId } from '../../../src/protocol/ids.ts'
import { MAX_PORT_CALLS } from '../../../src/protocol/limits/wire.ts'
import { TARGET_SILENCE_MS } from '../../../src/protocol/limits/daemon.ts'
import { refuses } from '../../support/file-permit.ts'
import { LocalHost, soon, startOf, WatchedRun } from '../../support/local-engine.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const NOT_ASKED: Pick<TargetRunner, 'openTerminal' | 'reach' | 'rules' | 'select' | 'files'> = {
  files: () => assert.fail('it is asked to run, and not for files'),
  openTerminal: () => assert.fail('no terminal is asked for'),
  select: async () => assert.fail('it is asked to run, and not whom words mean'),
  reach: async () => assert.fail('it is asked to run, and not whether it answers'),
  rules: async () => assert.fail('it is asked to run, and not what it allows'),
}

const ID = '01890a5d-ac96-774b-bcce-b302099a8057' as RequestId

test('repeated signals to a run on a target cause one cancel at a time and one more afterwards', async () => {
  const asked: PromiseWithResolvers<void>[] = []
  const targets: TargetRunner = {
    ...NOT_ASKED,
    run: async function* () {
      yield { type: 'started', pid: 1 } as never
      await new Promise(() => undefined)
    },
    cancel: async () => {
      asked.push(Promise.withResolvers<void>())
      await asked.at(-1)!.promise
    },
  }
  const grant = { target: 'bob', argv: ['sleep', '600'], timeout_ms: 1_000, max_output_bytes: 1_000 }
  const target = new MeshProgram({ targets, clock: systemClock }, { requestId: ID, grant, stdin: null })
  const journal = new LocalJournal({ journal: null, log: silentLogger })
  const key = { door: 'stdio', session_id: 's_1', client_name: 'a', request_id: ID } as const
  const nothing = (): void => undefined
  const report = new LocalReport(
    { journal },
    { key, request: { argv: grant.argv } as never, target, reporter: null, onStarted: nothing, onCapHit: nothing },
  )
  const run = new LocalRun(
    { log: silentLogger },
    {
      requestId: ID,
      startedAt: new Date(systemClock.now()).toISOString(),
      cwd: null,
      caps: grant,
      sink: { event: nothing },
      stdin: null,
      report,
      slot: { release: nothing },
      start: async (handlers) => target.start(handlers),
      target,
    },
  )
  void run.execute()
  await run.begun
  for (let time = 0; time < 1_000; time++) run.signal('TERM')
  await turn()
  for (let time = 0; time < 1_000; time++) run.signal('TERM')
  assert.equal(asked.length, 1)
  asked[0]!.resolve()
  await turn()
  assert.equal(asked.length, 2)
  asked[1]!.resolve()
  await turn()
  run.end('cancelled')
  await turn()
  assert.equal(asked.length, 3)
  asked[2]!.resolve()
  target.kill()
})

/** Result of a command on a target whose daemon behaves like `run`, and the events in the audit log. */
const become = async (t: TestContext, run: TargetRunner['run']): Promise<readonly [end: string, ...events: string[]]> => {
  const targets = { ...NOT_ASKED, run, cancel: async () => undefined }
  const host = await LocalHost.start(t, { targets, security: 'allow_targets = ["bob"]' })
  const session = await host.open({ target: 'bob' })
  const end = await host.run(session, ['make']).then(
    async (started) => `lost: ${String((await started.outcome()).lost)}`,
    (error: AppError) => `refused: ${error.message}`,
  )
  return [end, ...(await host.lines()).map(({ event }) => event).filter((event) => event !== 'session')]
}

test('a command whose daemon reports no result is lost, and one that was never sent is refused', async (t) => {
  const fails = (asked: boolean): TargetRunner['run'] =>
    // oxlint-disable-next-line require-yield -- it fails first
    async function* () {
      await turn()
      throw new AppError('daemon_unreachable', 'it broke off', { data: { asked } })
    }
  const silent = 'lost: the daemon did not report the result'
  assert.deepEqual(await become(t, async function* () {}), [silent, 'request', 'exit'])
  assert.deepEqual(await become(t, fails(true)), ['lost: it broke off', 'request', 'exit'])
  assert.deepEqual(await become(t, fails(false)), ['refused: it broke off', 'request', 'refused'])
})

test('a command that a target denies after a warning or a wait never ran', async (t) => {
  const ids = { request_id: ID, agent_id: 'a', machine_id: 'b' }
  const denied = { type: 'exit', ...ids, code: null, signal: null, denial_reason: 'approval_denied', incomplete: false }
  const warning = { type: 'warning', ...ids, kind: 'timeout_clamped', message: '' }
  const waiting = { type: 'waiting_for_approval', ...ids, expires_in_ms: 1_000 }
  for (const before of [[warning], [waiting, warning, waiting]]) {
    const run: TargetRunner['run'] = async function* () {
      yield* [...before, denied] as never[]
    }
    const [end, ...events] = await become(t, run)
    assert.match(end, /^refused: bob denied ".*" \(approval_denied\)/)
    assert.deepEqual(events, ['request', 'refused'])
  }
})

test('a client that leaves while its run waits for approval cancels it once, and is notified once', async (t) => {
  const ids = { request_id: ID, agent_id: 'a', machine_id: 'b' }
  const waiting = { type: 'waiting_for_approval', ...ids, expires_in_ms: 1_000 }
  const denied = { type: 'exit', ...ids, code: null, signal: null, denial_reason: 'approval_denied', incomplete: false }
  const cancels: PromiseWithResolvers<void>[] = []
  const targets: TargetRunner = {
    ...NOT_ASKED,
    run: async function* () {
      const cancelled = Promise.withResolvers<void>()
      cancels.push(cancelled)
      yield* [waiting, waiting] as never[]
      await cancelled.promise
      yield denied as never
    },
    cancel: async () => cancels.shift()!.resolve(),
  }
  const host = await LocalHost.start(t, { targets, security: 'allow_targets = ["bob"]' })
  const session = await host.open({ target: 'bob' })
  for (const early of [true, false]) {
    const leaving = new AbortController()
    const leave = (): void => leaving.abort(new AppError('conflict', 'nobody is there'))
    let told = 0
    const waits = (): void => {
      told += 1
      setImmediate(leave)
    }
    if (early) leave()
    const sink = { event: () => undefined, waiting: waits, gone: leaving.signal }
    await refuses(host.executor.start(startOf(session, ['make']), sink), 'conflict')
    assert.deepEqual([told, cancels], [1, []])
  }
})

test('targets that do not answer do not delay other calls of the engine', async (t) => {
  const cancelled = Promise.withResolvers<void>()
  const targets: TargetRunner = {
    ...NOT_ASKED,
    // oxlint-disable-next-line require-yield -- it sends no part
    run: async function* () {
      await cancelled.promise
    },
    cancel: async () => cancelled.resolve(),
  }
  const limits = `max_processes_per_session = ${MAX_PORT_CALLS}`
  const host = await LocalHost.start(t, { targets, security: 'allow_targets = ["bob"]', limits })
  const [session, here] = [await host.open({ target: 'bob' }), await host.open()]
  const starts = Array.from({ length: MAX_PORT_CALLS }, async () => host.executor.start(startOf(session, ['sleep']), new WatchedRun()))
  await refuses(host.executor.start(startOf(session, ['sleep']), new WatchedRun()), 'rate_limited')
  await host.executor.file({ method: 'fs.stat', session: here, path: '.' })
  await host.executor.close(session)
  await Promise.allSettled(starts)
})

test('a command that is aborted before its target answers is ended on the target', async (t) => {
  const [asked, cancelled] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const ended = { type: 'exit', denial_reason: null, code: null, signal: 15, duration_ms: 1, truncated: false, incomplete: false }
  const targets: TargetRunner = {
    ...NOT_ASKED,
    run: async function* () {
      asked.resolve()
      await cancelled.promise
      yield { ...ended, stdout_bytes_total: 0, stderr_bytes_total: 0 } as never
    },
    cancel: async () => cancelled.resolve(),
  }
  const host = await LocalHost.start(t, { targets, security: 'allow_targets = ["bob"]' })
  const givenUp = new AbortController()
  const session = await host.open({ target: 'bob' })
  const started = host.executor.start(startOf(session, ['sleep', '600']), new WatchedRun(), givenUp.signal)
  await asked.promise
  givenUp.abort()
  assert.equal((await (await started).ended)?.signal, 15)
  // A command that is aborted before it was sent is not sent.
  const never = await host.executor.start(startOf(session, ['sleep', '600']), new WatchedRun(), givenUp.signal)
  assert.deepEqual([(await never.ended)?.signal, (await never.ended)?.lost], [null, null])
})

/** A run on a target with a manual clock. The daemon sends these parts, and then waits until the run is aborted. */
const watched = (parts: readonly unknown[], breaks: Error | null = null) => {
  const clock = new ManualClock()
  const cancels: RequestId[] = []
  const targets: TargetRunner = {
    ...NOT_ASKED,
    run: async function* (_request, signal) {
      yield* parts as never[]
      if (breaks !== null) throw breaks
      await aborted(signal)
      throw new Error('aborted')
    },
    cancel: async ({ request_id }) => void cancels.push(request_id),
  }
  const grant = { target: 'bob', argv: ['sleep', '600'], timeout_ms: 1_000, max_output_bytes: 1_000 }
  const target = new MeshProgram({ targets, clock }, { requestId: ID, grant, stdin: null })
  const output: string[] = []
  const handlers = { onOutput: (_stream: string, data: Uint8Array) => void output.push(String(data)), onWarning: () => undefined }
  let isOver = false
  const started = target.start(handlers as never).then(async ({ process }) => process.ended.then(() => void (isOver = true)))
  return { clock, cancels, target, output, started, isOver: () => isOver }
}

const STARTED = { type: 'started', pid: 1 }
const SILENT = 'the daemon did not report the result in time'

test('a daemon that never reports the result of a command is given up after its time limit', async () => {
  const { clock, target, started, isOver } = watched([])
  await clock.advance(1_000 + TARGET_SILENCE_MS - 1)
  assert.equal(isOver(), false)
  await clock.advance(1)
  await started
  assert.deepEqual([target.lost, target.refused, clock.pending], [SILENT, false, 0])
})

test('a run that is ended before its daemon knows it is cancelled when it has started', async () => {
  const [known, cancelled] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let [isKnown, unheard] = [false, 0]
  const ended = { type: 'exit', denial_reason: null, code: null, signal: 15, duration_ms: 1, truncated: false, incomplete: false }
  const targets: TargetRunner = {
    ...NOT_ASKED,
    run: async function* () {
      await known.promise
      yield STARTED as never
      await cancelled.promise
      yield { ...ended, stdout_bytes_total: 0, stderr_bytes_total: 0 } as never
    },
    cancel: async () => (isKnown ? cancelled.resolve() : void (unheard += 1)),
  }
  const grant = { target: 'bob', argv: ['sleep', '600'], timeout_ms: 1_000, max_output_bytes: 1_000, detach: true as const }
  const target = new MeshProgram({ targets, clock: systemClock }, { requestId: ID, grant, stdin: null })
  const started = target.start({ onOutput: () => undefined, onWarning: () => undefined })
  target.resume()
  target.terminate()
  await turn()
  isKnown = true
  known.resolve()
  const { process } = await started
  assert.deepEqual([unheard, (await process.ended).signal], [1, 15])
})

test('a daemon is not given up while its output is not taken', async () => {
  const { clock, output, target, started, isOver } = watched([STARTED, { type: 'stdout', data: Buffer.from('one') }])
  await turn()
  await clock.advance(100 * TARGET_SILENCE_MS)
  assert.deepEqual([isOver(), output], [false, []])
  target.resume()
  await turn()
  await clock.advance(2 * TARGET_SILENCE_MS)
  await started
  assert.deepEqual([target.lost, output, clock.pending], [SILENT, ['one'], 0])
})

test('a lost daemon is reported as stopped, without the system error of its connection', async () => {
  const { target, started } = watched([STARTED], Object.assign(new Error('it ended in the middle of an answer'), { code: 'ECONNRESET' }))
  target.resume()
  await started
  assert.equal(target.lost, 'the daemon stopped before it reported the result')
  const other = watched([STARTED], new Error('an event is longer than 1 bytes'))
  other.target.resume()
  await other.started
  assert.equal(other.target.lost, 'an event is longer than 1 bytes')
})

const OVER = { type: 'exit', denial_reason: null, code: 0, signal: null, duration_ms: 1, truncated: false, incomplete: false }

/** A session on bob with a terminal that takes no input before `take`. It sends these parts, and its exit on `end`. */
const onTerminal = async (t: TestContext, parts: readonly unknown[]) => {
  const [typed, sizes, cancels]: [string[], TerminalSize[], RequestId[]] = [[], [], []]
  const [taking, ending] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let isLeft = false
  const targets: TargetRunner = {
    ...NOT_ASKED,
    run: () => assert.fail('a terminal is asked for'),
    openTerminal: ({ terminal }) => {
      sizes.push(terminal)
      return {
        parts: (async function* () {
          try {
            yield* parts as never[]
            await ending.promise
            yield { ...OVER, stdout_bytes_total: 0, stderr_bytes_total: 0 } as never
          } finally {
            isLeft = true
          }
        })(),
        type: async (data) => {
          typed.push(Buffer.from(data).toString())
          await taking.promise
        },
        endOfFile: () => typed.push('EOF'),
        resize: (size) => sizes.push(size),
      }
    },
    cancel: async ({ request_id }) => {
      cancels.push(request_id)
      ending.resolve()
    },
  }
  const host = await LocalHost.start(t, { targets, security: 'allow_targets = ["bob"]\nallow_pty = true' })
  const session = await host.open({ target: 'bob' })
  const start = async () => host.run(session, ['sh'], { terminal: { cols: 80, rows: 24 }, input: true })
  return { start, typed, sizes, cancels, take: taking.resolve, end: ending.resolve, isLeft: () => isLeft, host, session }
}

test('terminal input for a target waits in bounded memory, and size and exit are passed on', async (t) => {
  const { start, typed, sizes, take, end, isLeft } = await onTerminal(t, [STARTED, { type: 'disconnected' }, { type: 'resumed' }])
  const watched = await start()
  const { run } = watched
  assert.equal(run.input(Buffer.from('first'), false), 5)
  let taken = 0
  for (let accepted = 1; accepted > 0; taken += accepted) accepted = run.input(Buffer.alloc(100_000, 'x'), false)
  assert.ok(taken + 5 <= MAX_STDIN_UNACKED, String(taken))
  run.resize({ cols: 100, rows: 30 })
  assert.deepEqual([typed, sizes.map(({ cols }) => cols)], [['first'], [80, 100]])
  take()
  await soon(() => typed.join('').length === taken + 5)
  end()
  assert.deepEqual([(await run.ended)?.code, isLeft()], [0, true])
  assert.deepEqual(watched.events, [])
})

test('a terminal of a target that hangs up, or whose session closes, cancels the run', async (t) => {
  const hung = await onTerminal(t, [STARTED])
  const { run } = await hung.start()
  run.hangUp()
  assert.equal((await run.ended)?.code, 0)
  assert.equal(hung.cancels.length, 1)
  const closed = await onTerminal(t, [STARTED])
  const other = await closed.start()
  assert.equal(await closed.host.close(closed.session), 1)
  assert.equal((await other.run.ended)?.code, 0)
})

test('without the pty capability no terminal of a target is opened, but commands still run', async (t) => {
  for (const [security, capabilities] of [
    ['allow_targets = ["bob"]', null],
    ['allow_targets = ["bob"]\nallow_pty = true', ['exec']],
  ] as const) {
    const targets: TargetRunner = {
      ...NOT_ASKED,
      run: async function* () {
        yield* [STARTED, { ...OVER, stdout_bytes_total: 0, stderr_bytes_total: 0 }] as never[]
      },
      cancel: async () => undefined,
    }
    const host = await LocalHost.start(t, { targets, security })
    const session = await host.open({ target: 'bob', capabilities })
    const terminal = { terminal: { cols: 80, rows: 24 }, input: true }
    await refuses(host.run(session, ['sh'], terminal), 'unsupported_capability', { capability: 'pty' })
    assert.equal((await (await host.run(session, ['true'])).outcome()).code, 0)
  }
})

test('a target that allows no terminal denies it with its reason, and the session stays usable', async (t) => {
  const denied = { ...OVER, code: null, denial_reason: 'terminal_not_allowed' }
  const { host, session, start, isLeft } = await onTerminal(t, [denied])
  await refuses(start(), 'command_denied', { reason: 'terminal_not_allowed', target: 'bob' })
  assert.equal(await soon(isLeft), true)
  assert.equal(await host.close(session), 0, 'no run is left')
})

test('a denial after a lost connection is still a denial, and the request is closed', async (t) => {
  const denied = { ...OVER, code: null, denial_reason: 'terminal_not_allowed' }
  const { start, isLeft } = await onTerminal(t, [{ type: 'disconnected' }, { type: 'resumed' }, denied])
  await refuses(start(), 'command_denied')
  assert.equal(await soon(isLeft), true)
})
