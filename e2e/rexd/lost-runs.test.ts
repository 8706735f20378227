import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { localMarksOf } from '../../src/audit/local-marks.ts'
import { GUARDIAN_NAME } from '../../src/process/guardian.ts'
import { findCgroupPlaces } from '../../src/process/cgroup-places.ts'
import { descendantsOf } from '../../src/process/process-tree.ts'
import { needs } from '../../test/support/containment.ts'
import { isAlive, until } from '../../test/support/processes.ts'
import { post } from '../../test/support/rexd-callers.ts'
import { gone, pidIn, startRexd, type RexdServer } from '../../test/support/rexd-server.ts'

// Several rexd write into one journal; one that is killed can say nothing of what it ran.

const program = (name: string): string => fileURLToPath(new URL(`../../deploy/bin/${name}`, import.meta.url))
const TIMEOUT = { timeout: 60_000 }

const run = async (name: string, ...argv: readonly string[]): Promise<{ status: number; said: string }> => {
  const child = spawn(process.execPath, [program(name), ...argv], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [said, [status]] = (await Promise.all([text(child.stdout), once(child, 'close')])) as [string, [number]]
  return { status, said }
}

test('what a killed rexd ran is called lost by the next, and what another runs is not', TIMEOUT, async (t) => {
  const server = await startRexd(t)
  const journal = join(server.dir, 'log', 'audit.log')
  const verify = async (): Promise<{ status: number; said: string }> => run('x0x.cjs', 'audit', 'verify', journal)
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  const { process_id } = await post(server, 'exec.start', {
    session_id,
    argv: ['sh', '-c', 'echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 600'],
  })
  const pid = await pidIn(join(server.root, 'pid'))
  // Another with the same configuration, that goes on.
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
  await until(async () => (await verify()).said.includes('2 runs going on'))
  assert.equal((await verify()).status, 0)
  await server.stop('SIGKILL')
  await gone(pid)
  const before = await verify()
  assert.equal(before.status, 1)
  assert.match(before.said, /the run that started here has no end and does not run/)
  assert.equal((await run('rexd.mjs', 'exec', '--config', server.config, '--', 'touch', 'go')).status, 0)
  assert.deepEqual(await ended, [0, null])
  const after = await verify()
  assert.deepEqual([after.status, after.said.includes('0 runs going on')], [0, true], after.said)
  const { said } = await run('x0x.cjs', '--json', 'audit', 'tail', '--lines', '1000', journal)
  const lost = said.split('\n').flatMap((line) => (line.includes('"lost"') ? [JSON.parse(line) as Record<string, unknown>] : []))
  assert.deepEqual(
    lost.map(({ door, session_id: session, client_name, request_id }) => [door, session, client_name, `p_${String(request_id)}`]),
    [['http', session_id, 'a', process_id]],
  )
  assert.deepEqual(await readdir(localMarksOf(journal)), [])
})

/** A program of its own; answers its pid. */
const sleeperOf = async (t: TestContext, server: RexdServer): Promise<number> => {
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  await post(server, 'exec.start', { session_id, argv: ['sh', '-c', 'echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 600'] })
  const pid = await pidIn(join(server.root, 'pid'))
  t.after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'))
  return pid
}

const guardianOf = (server: RexdServer): number =>
  descendantsOf(server.pid)
    .map(({ pid }) => pid)
    .find((pid) => readFileSync(`/proc/${pid}/cmdline`, 'latin1').endsWith(`${GUARDIAN_NAME}\0`)) ?? assert.fail('no guardian')

test(
  'what a rexd left in control groups that died with its guardian is ended by the next, and what another runs is not',
  { ...TIMEOUT, ...needs.cgroup },
  async (t) => {
    const [server, other] = [await startRexd(t), await startRexd(t)]
    const [pid, going] = [await sleeperOf(t, server), await sleeperOf(t, other)]
    const [group = ''] = new RegExp(`x0x-of-${server.pid}-[^/]*`).exec(readFileSync(`/proc/${pid}/cgroup`, 'latin1')) ?? []
    const parent = join(findCgroupPlaces().find(({ version }) => version === 2)!.own, group)
    assert.ok(group !== '' && existsSync(parent), parent)
    // It must not start another.
    process.kill(server.pid, 'SIGSTOP')
    process.kill(guardianOf(server), 'SIGKILL')
    await server.stop('SIGKILL')
    // Unless the rexd of another test, which had just begun, was first: whoever ends it takes its group away, too.
    await until(() => isAlive(pid) || !existsSync(parent))
    await startRexd(t)
    assert.deepEqual([isAlive(pid), isAlive(going)], [false, true])
  },
)
