import assert from 'node:assert/strict'
import { mkdir, realpath, rename, symlink } from 'node:fs/promises'
import { constants } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

import { isRequestId } from '../../../src/protocol/ids.ts'
import { DURATION_TERM_LEAD_MS } from '../../../src/protocol/limits/wire.ts'
import { refuses } from '../../support/file-permit.ts'
import { LocalHost } from '../../support/local-engine.ts'
import { ruleText } from '../../support/local-policy.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { hasProc, isAlive, until } from '../../support/processes.ts'

const { SIGTERM, SIGKILL, SIGHUP } = constants.signals

const linuxOnly = { skip: !hasProc && 'needs /proc' }
const WAITS = 'echo "pid $$"; exec sleep 1000'
/** Prints the process IDs of itself, a child, a grandchild in its own session, and a process that ignores SIGTERM. */
const TREE = `sleep 1000 & echo "pid $!"
setsid sh -c 'echo "pid $$"; exec sleep 1000' &
setsid sh -c 'trap "" TERM; echo "pid $$"; while :; do sleep 0.05; done' &
echo "pid $$"; wait`

const pidsIn = (text: string): number[] => [...text.matchAll(/^pid (\d+)$/gm)].map((match) => Number(match[1]))

test('a command runs and reports its start, output and result', async (t) => {
  const host = await LocalHost.start(t, { scripts: { hello: 'echo out; echo err >&2; exit 7' } })
  const run = await host.run(await host.open(), [host.program('hello')])
  assert.ok(isRequestId(run.run.requestId))
  assert.equal(run.run.cwd, host.root)
  assert.equal(new Date(run.run.startedAt).toISOString(), run.run.startedAt)
  assert.equal(await run.run.begun, null)
  const { code, signal, stdout_bytes_total, stderr_bytes_total, truncated, denial_reason, detail } = await run.outcome()
  assert.deepEqual([code, signal, stdout_bytes_total, stderr_bytes_total], [7, null, 4, 4])
  assert.deepEqual([truncated, denial_reason, detail], [false, null, null])
  assert.deepEqual([run.text, run.output('stderr').toString(), run.warnings], ['out\n', 'err\n', []])
})

test('a program gets the environment of policy and the allowed variables of its client, without those of the daemon', async (t) => {
  process.env['X0X_TEST_LEAK'] = 'secret'
  t.after(() => delete process.env['X0X_TEST_LEAK'])
  const host = await LocalHost.start(t, { security: 'allow_env = ["CI", "EMPTY", "MULTI"]' })
  const env = { CI: '1=2', EMPTY: '', MULTI: 'a\nb' }
  const run = await host.run(await host.open(), ['env', '-0'], { env })
  await run.outcome()
  const expected = { ...host.policy.env, ...env }
  // The mark of a run under the containment by process group.
  const { X0X_RUN: mark, ...rest } = Object.fromEntries(
    run.text
      .split('\0')
      .filter(Boolean)
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )
  assert.deepEqual(rest, expected)
  assert.match(mark ?? '', /^[0-9a-f]{16}-[0-9a-f]{16}$/)
})

test('a program runs in the requested directory below the roots, by its real path', async (t) => {
  const host = await LocalHost.start(t)
  await mkdir(join(host.root, 'a/b'), { recursive: true })
  await symlink('a/b', join(host.root, 'link'))
  const session = await host.open()
  for (const [cwd, real] of [
    [null, ''],
    ['.', ''],
    ['a/b', 'a/b'],
    ['link', 'a/b'],
    [join(host.root, 'a/../link/'), 'a/b'],
  ] as const) {
    const run = await host.run(session, ['pwd', '-P'], { cwd })
    await run.outcome()
    assert.deepEqual(
      [run.run.cwd, run.text.trim()],
      [join(host.root, real), join(host.root, real)].map((path) => path.replace(/\/$/, '')),
      String(cwd),
    )
  }
})

test('a program starts in the permitted directory even if its path was replaced', linuxOnly, async (t) => {
  /** Swaps the directory between the permit and the start, when the time is read for the last time. */
  class Meddler extends ManualClock {
    meddle: (() => void) | null = null
    override now(): number {
      this.meddle?.()
      this.meddle = null
      return super.now()
    }
  }
  const clock = new Meddler()
  const host = await LocalHost.start(t, { clock })
  await mkdir(join(host.root, 'work'))
  await mkdir(join(host.dir, 'elsewhere'))
  const session = await host.open()
  const swapped = Promise.withResolvers<void>()
  clock.meddle = () => {
    const swap = async (): Promise<void> => {
      await rename(join(host.root, 'work'), join(host.root, 'moved'))
      await symlink(join(host.dir, 'elsewhere'), join(host.root, 'work'))
    }
    swapped.resolve(swap())
  }
  const run = await host.run(session, ['sh', '-c', 'while [ ! -L "$1" ]; do :; done; pwd -P', 'sh', join(host.root, 'work')], {
    cwd: 'work',
  })
  await swapped.promise
  await run.outcome()
  assert.equal(run.text, `${await realpath(join(host.root, 'moved'))}\n`)
})

test('a refusal returns its code, and policy refusals are in the audit log', async (t) => {
  const host = await LocalHost.start(t, { rules: ruleText('deny_commands', ['false']) })
  const session = await host.open({ limits: { max_output_bytes: 10 } })
  await refuses(host.run(session, ['false']), 'command_denied', { rule: 'deny_commands[0]' })
  await refuses(host.run(session, ['true'], { shell: true }), 'unsupported_capability', { capability: 'exec.shell' })
  await refuses(host.run(session, ['true'], { detach: true }), 'unsupported_capability', { capability: 'exec.detach' })
  await refuses(host.run(session, ['true'], { terminal: { cols: 1, rows: 1 } }), 'unsupported_capability', { capability: 'pty' })
  await refuses(host.run(session, ['true'], { env: { A: 'b' } }), 'command_denied', { variable: 'A', allow_env: [] })
  assert.equal((await host.run(session, ['true'], { max_output_bytes: 11 })).run.caps.max_output_bytes, 10)
  await refuses(host.run(session, ['true'], { cwd: '/' }), 'forbidden_path')
  await refuses(host.run(session, ['no-such-program-x0x']), 'file_not_found', { argv0: 'no-such-program-x0x', why: 'not_found' })
  await refuses(host.run(session, []), 'bad_request')
  const refusals = (await host.lines()).flatMap((line) => (line.event === 'refused' ? [line] : []))
  const codes = [
    'command_denied',
    'unsupported_capability',
    'unsupported_capability',
    'unsupported_capability',
    'command_denied',
    'forbidden_path',
  ]
  assert.deepEqual(
    refusals.map(({ code }) => code),
    codes,
  )
  assert.ok(refusals.every((line) => line.method === 'exec.start' && line.session_id === session && line.detail.length > 10))
})

test('a shell runs if it is granted, and its real argv is in the audit log', async (t) => {
  const host = await LocalHost.start(t, { security: 'allow_shell = true' })
  const argv = ['/bin/sh', '-c', 'echo $((6 * 7)) | cat; exit 3']
  const run = await host.run(await host.open(), argv, { shell: true })
  assert.deepEqual([(await run.outcome()).code, run.text], [3, '42\n'])
  const request = (await host.lines()).find((line) => line.event === 'request')
  assert.deepEqual(request?.event === 'request' && request.argv, argv)
})

test('a session runs a limited number of programs at once, and other sessions have their own limit', async (t) => {
  const host = await LocalHost.start(t, { limits: 'max_processes_per_session = 3', scripts: { waits: WAITS } })
  const [session, other] = [await host.open(), await host.open()]
  const results = await Promise.allSettled(Array.from({ length: 10 }, () => host.run(session, [host.program('waits')])))
  const runs = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
  assert.equal(runs.length, 3)
  for (const result of results)
    if (result.status === 'rejected')
      assert.deepEqual((result.reason as { data: unknown }).data, { limit: 'max_processes_per_session', max: 3 })
  assert.equal((await (await host.run(other, ['true'])).outcome()).code, 0)
  runs[0]!.run.end('cancelled')
  await runs[0]!.outcome()
  assert.equal((await (await host.run(session, ['true'])).outcome()).code, 0)
  await refuses(Promise.all([host.run(session, ['sleep', '9']), host.run(session, ['sleep', '9'])]), 'resource_limit')
})

test('a signal reaches the whole process tree, and reports if no process received it', linuxOnly, async (t) => {
  const host = await LocalHost.start(t, {
    scripts: { tree: TREE, traps: 'trap "echo got; exit 4" USR1; echo ready; while :; do sleep 0.05; done' },
  })
  const session = await host.open()
  const run = await host.run(session, [host.program('traps')])
  await run.printed('ready')
  for (const signal of ['RTMIN', '9', 'term', 'SIGSEGV', '']) assert.throws(() => run.run.signal(signal), { code: 'bad_request' })
  assert.equal(run.run.signal('USR1'), true)
  assert.deepEqual([(await run.outcome()).code, run.text], [4, 'ready\ngot\n'])
  assert.equal(run.run.signal('SIGKILL'), false)
  const tree = await host.run(session, [host.program('tree')])
  await until(() => pidsIn(tree.text).length === 4)
  assert.equal(tree.run.signal('SIGKILL'), true)
  assert.equal((await tree.outcome()).signal, SIGKILL)
  await until(() => pidsIn(tree.text).every((pid) => !isAlive(pid)))
  const hung = await host.run(session, ['sleep', '1000'])
  await hung.run.begun
  hung.run.signal('HUP')
  assert.equal((await hung.outcome()).signal, SIGHUP)
})

test('a program that exceeds its time limit is ended with a warning', async (t) => {
  const clock = new ManualClock()
  const limits = 'default_timeout_ms = 20000\nhard_timeout_ms = 40000'
  const host = await LocalHost.start(t, { clock, limits, scripts: { waits: WAITS } })
  const session = await host.open()
  const times = [1_000, null, 40_000]
  const runs = await Promise.all(times.map((timeout_ms) => host.run(session, [host.program('waits')], { timeout_ms })))
  await Promise.all(runs.map((run) => run.printed(/pid/)))
  let now = 0
  // The hard limit itself is the end, so its SIGTERM comes earlier.
  for (const [at, end] of [1_000, 20_000, 40_000 - DURATION_TERM_LEAD_MS].entries()) {
    await clock.advance(end - 1 - now)
    assert.equal(runs[at]!.warnings.length, 0)
    await clock.advance(1)
    now = end
    const outcome = await runs[at]!.outcome()
    assert.deepEqual([outcome.signal, outcome.truncated], [SIGTERM, true])
    assert.ok(runs[at]!.warnings.includes('duration_cap_hit'))
  }
})

test('output above the limit is dropped and counted, and with fail_on_limit it ends the program', async (t) => {
  const host = await LocalHost.start(t, {
    scripts: { big: 'head -c 900 /dev/zero; head -c 200 /dev/zero >&2; [ -z "$1" ] || exec sleep 1000; exit 5' },
  })
  const session = await host.open({ limits: { max_output_bytes: 1_000 } })
  const whole = await host.run(session, [host.program('big')])
  const outcome = await whole.outcome()
  assert.deepEqual([outcome.code, outcome.truncated, outcome.stdout_bytes_total + outcome.stderr_bytes_total], [5, true, 1_100])
  assert.equal(whole.output().length + whole.output('stderr').length, 1_000)
  const ended = await host.run(session, [host.program('big'), 'on'], { fail_on_limit: true })
  assert.deepEqual([(await ended.outcome()).signal, (await ended.outcome()).truncated], [SIGTERM, true])
  const enough = await host.run(session, ['head', '-c', '1000', '/dev/zero'], { fail_on_limit: true })
  assert.deepEqual([(await enough.outcome()).code, (await enough.outcome()).truncated, enough.warnings], [0, false, []])
})
