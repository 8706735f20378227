import assert from 'node:assert/strict'
import { constants } from 'node:os'
import { test, type TestContext } from 'node:test'

import type { JournalLine } from '../../../src/journal/events.ts'
import { verifyJournal } from '../../../src/journal/verify.ts'
import type { LocalPolicy } from '../../../src/policy/local/policy.ts'
import { KILL_GRACE_MS } from '../../../src/protocol/limits/wire.ts'
import { refuses } from '../../support/file-permit.ts'
import { LocalHost, soon, type LocalHostOptions, type WatchedRun, startOf } from '../../support/local-engine.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { hasProc, isAlive, until } from '../../support/processes.ts'
import { NOTE_SYNC_MS } from '../../../src/journal/writer.ts'

const { SIGTERM, SIGKILL } = constants.signals

const linuxOnly = { skip: !hasProc && 'needs /proc' }
const SCRIPTS = {
  waits: 'echo "pid $$"; exec sleep 1000',
  deaf: 'trap "" TERM; echo "pid $$"; while :; do sleep 0.05; done',
  tree: 'setsid sh -c \'echo "pid $$"; exec sleep 1000\' & sleep 1000 & echo "pid $!"; echo "pid $$"; wait',
  floods: 'echo "pid $$"; exec cat /dev/zero',
}

const pidsOf = (run: WatchedRun): number[] => [...run.text.slice(0, 1_000).matchAll(/^pid (\d+)$/gm)].map((match) => Number(match[1]))

const hostWith = async (t: TestContext, options: LocalHostOptions = {}): Promise<{ host: LocalHost; clock: ManualClock }> => {
  const clock = new ManualClock()
  return { host: await LocalHost.start(t, { clock, scripts: SCRIPTS, ...options }), clock }
}

const running = async (host: LocalHost, session: string, name: keyof typeof SCRIPTS): Promise<WatchedRun> => {
  const run = await host.run(session, [host.program(name)])
  await until(() => pidsOf(run).length === (name === 'tree' ? 3 : 1))
  return run
}

const causes = (lines: readonly JournalLine[]): string[] =>
  lines.flatMap((line) => (line.event === 'warning' && line.kind !== 'descendants_may_survive' ? [line.kind] : []))

/** Checks that each run has its log lines, each opened session is closed, and the audit log verifies. */
const isQuiet = async (host: LocalHost): Promise<void> => {
  const lines = await host.lines()
  const count = (event: string): number => lines.filter((line) => line.event === event).length
  assert.equal(count('request'), count('exit'))
  assert.ok(count('started') <= count('exit'), 'a run may end before its program is started')
  const states = lines.flatMap((line) => (line.event === 'session' ? [line.state] : []))
  assert.equal(states.filter((state) => state === 'opened').length, states.filter((state) => state === 'closed').length)
  assert.equal((await verifyJournal([host.journalPath!])).ok, true)
}

test('closing a session ends its process trees and returns the number of its runs', linuxOnly, async (t) => {
  const { host } = await hostWith(t)
  const [session, other] = [await host.open(), await host.open()]
  const [waits, tree, theirs] = [
    await running(host, session, 'waits'),
    await running(host, session, 'tree'),
    await running(host, other, 'waits'),
  ]
  assert.equal(await host.close(session), 2)
  for (const run of [waits, tree]) assert.equal((await run.outcome()).signal, SIGTERM)
  await until(() => [...pidsOf(waits), ...pidsOf(tree)].every((pid) => !isAlive(pid)))
  assert.ok(isAlive(pidsOf(theirs)[0]!))
  assert.deepEqual(causes(await host.lines()), ['cancelled', 'cancelled'])
  assert.equal(await host.close(other), 1)
  await isQuiet(host)
})

test('a session that is closing accepts no command and no file call', async (t) => {
  const { host, clock } = await hostWith(t)
  const session = await host.open()
  const run = await running(host, session, 'deaf')
  const closing = host.close(session)
  await refuses(host.run(session, ['true']), 'unknown_session')
  await refuses(host.executor.file({ method: 'fs.stat', session, path: '.' }), 'unknown_session')
  await until(() => run.warnings.includes('cancelled'))
  await clock.advance(KILL_GRACE_MS)
  await Promise.all([closing, run.outcome()])
  await isQuiet(host)
})

test('a session that closes while its command is being permitted leaves no program', linuxOnly, async (t) => {
  /** Called when policy reads the environment of a command, just before the permit. */
  let onPermit: (() => void) | null = null
  const amend = (policy: LocalPolicy): LocalPolicy =>
    Object.defineProperty({ ...policy }, 'env', {
      get: () => {
        onPermit?.()
        onPermit = null
        return policy.env
      },
    })
  const { host } = await hostWith(t, { amend })
  const session = await host.open()
  const closed = Promise.withResolvers<number>()
  onPermit = () => queueMicrotask(() => closed.resolve(host.close(session)))
  const starting = host.run(session, [host.program('waits')]).catch(() => null)
  await closed.promise
  const run = await starting
  let over = run === null
  void run?.run.ended.then(() => (over = true))
  t.after(() => run?.run.signal('KILL'))
  assert.ok(await soon(() => over), 'its program runs on although the session is closed')
})

test('an engine that stops ends every program of every session with the reason', linuxOnly, async (t) => {
  const { host, clock } = await hostWith(t)
  const runs = [
    await running(host, await host.open(), 'waits'),
    await running(host, await host.open(), 'tree'),
    await running(host, await host.open(), 'deaf'),
  ]
  const stopping = host.engine.stop()
  await clock.advance(KILL_GRACE_MS)
  await stopping
  const outcomes = await Promise.all(runs.map((run) => run.outcome()))
  assert.deepEqual(
    outcomes.map(({ signal }) => signal),
    [SIGTERM, SIGTERM, SIGKILL],
  )
  assert.ok(runs.every((run) => run.warnings[0] === 'daemon_stopping'))
  await until(() => runs.flatMap(pidsOf).every((pid) => !isAlive(pid)))
  await clock.advance(NOTE_SYNC_MS)
  assert.equal(clock.pending, 0)
  await isQuiet(host)
})

test('a command that is cancelled before its start never runs', async (t) => {
  const { host } = await hostWith(t)
  const session = await host.open()
  const run = await host.run(session, [host.program('waits')])
  run.run.end('cancelled')
  const { code, signal, denial_reason } = await run.outcome()
  assert.equal(denial_reason, null)
  assert.ok(signal === SIGTERM || (code === null && signal === null))
  assert.equal(await host.close(session), 0)
})

test('a program whose output is never read ends with the engine', linuxOnly, async (t) => {
  const { host } = await hostWith(t, { limits: 'max_output_bytes = 1000000000' })
  const session = await host.open()
  const seen = Promise.withResolvers<number>()
  const never = new Promise<void>(() => undefined)
  await host.executor.start(startOf(session, [host.program('floods')]), {
    event: (event) => {
      if ('data' in event) seen.resolve(Number(/pid (\d+)/.exec(Buffer.from(event.data).toString())?.[1]))
      return never
    },
  })
  const pid = await seen.promise
  assert.ok(isAlive(pid))
  await host.engine.stop()
  assert.equal(isAlive(pid), false)
  await isQuiet(host)
})
