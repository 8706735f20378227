import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { localMarksOf } from '../../src/journal/running-marks.ts'
import { CLEANUP_NAME } from '../../src/process/cleanup-process.ts'
import { descendantsOf } from '../../src/process/descendant-tracker.ts'
import { needs } from '../../test/support/containment.ts'
import { isAlive, until } from '../../test/support/processes.ts'
import { post } from '../../test/support/rexd-callers.ts'
import { gone, pidIn, startRexd, type RexdServer } from '../../test/support/rexd-server.ts'

// Several rexd servers write to one journal. A killed server cannot record the end of its runs.

const program = (name: string): string => fileURLToPath(new URL(`../../deploy/bin/${name}`, import.meta.url))
const TIMEOUT = { timeout: 60_000 }

const run = async (name: string, ...argv: readonly string[]): Promise<{ status: number; said: string }> => {
  const child = spawn(process.execPath, [program(name), ...argv], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [said, [status]] = (await Promise.all([text(child.stdout), once(child, 'close')])) as [string, [number]]
  return { status, said }
}

test('the next rexd logs runs of a killed rexd as lost, and leaves runs of other servers alone', TIMEOUT, async (t) => {
  const server = await startRexd(t)
  const journal = join(server.dir, 'log', 'audit.log')
  const verify = async (): Promise<{ status: number; said: string }> => run('x0x.cjs', 'audit', 'verify', journal)
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  const { process_id } = await post(server, 'exec.start', {
    session_id,
    argv: ['sh', '-c', 'echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 600'],
  })
  const pid = await pidIn(join(server.root, 'pid'))
  // Another server with the same configuration, which continues to run.
  const other = spawn(process.execPath, [
    program('rexd.mjs'),
    'exec',
    '--config',
    server.config,
    '--',
    'sh',
    '-c',
    'echo $$ > other.tmp; mv other.tmp other; until [ -e go ]; do sleep 0.05; done',
  ])
  t.after(() => other.kill('SIGKILL'))
  const ended = once(other, 'close')
  await pidIn(join(server.root, 'other'))
  await until(async () => (await verify()).said.includes('2 runs active'))
  assert.equal((await verify()).status, 0)
  await server.stop('SIGKILL')
  await gone(pid)
  const before = await verify()
  assert.equal(before.status, 1)
  assert.match(before.said, /the run that starts at this line has no end and is not running/)
  assert.equal((await run('rexd.mjs', 'exec', '--config', server.config, '--', 'touch', 'go')).status, 0)
  assert.deepEqual(await ended, [0, null])
  const after = await verify()
  assert.deepEqual([after.status, after.said.includes('0 runs active')], [0, true], after.said)
  const { said } = await run('x0x.cjs', '--json', 'audit', 'tail', '--lines', '1000', journal)
  const lost = said.split('\n').flatMap((line) => (line.includes('"lost"') ? [JSON.parse(line) as Record<string, unknown>] : []))
  assert.deepEqual(
    lost.map(({ door, session_id: session, client_name, request_id }) => [door, session, client_name, `p_${String(request_id)}`]),
    [['http', session_id, 'a', process_id]],
  )
  assert.deepEqual(await readdir(localMarksOf(journal)), [])
})

/** Starts a program and returns its PID. */
const sleeperOf = async (t: TestContext, server: RexdServer): Promise<number> => {
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  await post(server, 'exec.start', { session_id, argv: ['sh', '-c', 'echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 600'] })
  const pid = await pidIn(join(server.root, 'pid'))
  t.after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'))
  return pid
}

const cleanupProcessOf = (server: RexdServer): number =>
  descendantsOf(server.pid)
    .map(({ pid }) => pid)
    .find((pid) => readFileSync(`/proc/${pid}/cmdline`, 'latin1').endsWith(`${CLEANUP_NAME}\0`)) ?? assert.fail('no cleanup process')

/** Number of attempts, because a rexd of another test that just starts may end the leftovers first. */
const TRIES = 5

/** A program in a control group, whose rexd and cleanup process were killed. */
const leftOver = async (t: TestContext): Promise<number> => {
  for (let tries = 1; tries <= TRIES; tries++) {
    const server = await startRexd(t)
    const pid = await sleeperOf(t, server)
    assert.match(readFileSync(`/proc/${pid}/cgroup`, 'latin1'), new RegExp(`^0::.*/x0x-of-${server.pid}-`, 'm'))
    // Stops the server first, so that it does not start another cleanup process.
    process.kill(server.pid, 'SIGSTOP')
    process.kill(cleanupProcessOf(server), 'SIGKILL')
    await server.stop('SIGKILL')
    if (isAlive(pid)) return pid
  }
  return assert.fail('nothing was ever left')
}

test(
  'the next rexd ends processes in control groups of a dead rexd, and leaves those of a running one alone',
  { ...TIMEOUT, ...needs.cgroup },
  async (t) => {
    const other = await startRexd(t)
    const going = await sleeperOf(t, other)
    const left = await leftOver(t)
    await startRexd(t)
    assert.deepEqual([isAlive(left), isAlive(going)], [false, true])
  },
)
