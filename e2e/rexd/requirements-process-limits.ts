import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'

import { until } from '../../test/support/mesh-of-daemons.ts'
import { allGone } from './processes.ts'
import { requirement, type Requirement } from './requirement.ts'

/** Writes exactly this number of bytes to one stream. */
const bytesOn = (count: number, stream = ''): string => `head -c ${count} /dev/zero | tr '\\0' x ${stream}`

export const PROCESS_LIMIT_REQUIREMENTS: readonly Requirement[] = [
  requirement(
    'exec.start/timeout_ms',
    'at its timeout a program and its children get SIGTERM, and its end says so',
    'exec.start.timeout_ms exec.exit:timed_out exec.wait:status',
    async (peer) => {
      const session = await peer.session()
      // Enough time for both to start, even on a busy machine.
      const timeout_ms = 4_000
      const log = await session.shell('sleep 1000 & echo pid $!; wait', { timeout_ms })
      const obeying = await session.shell("trap 'exit 4' TERM; while :; do sleep 0.05; done", { timeout_ms })
      const exit = await log.finished()
      assert.deepEqual([exit['timed_out'], exit['exit_code'], exit['signal']], [true, null, 'SIGTERM'])
      assert.ok(Number(exit['duration_ms']) >= timeout_ms)
      assert.equal((await session.wait(log))['status'], 'timed_out')
      await allGone(log.pids())
      const { timed_out, exit_code } = await obeying.finished()
      assert.deepEqual([timed_out, exit_code], [true, 4])
    },
  ),
  requirement(
    'exec.start/timeout-limit',
    'a timeout above the hard limit is lowered, the answer has the value in force, and 0 means the default',
    'exec.start.timeout_ms exec.start:timeout_ms',
    async (peer) => {
      const session = await peer.session({ limits: { hard_timeout_ms: 60_000 } })
      for (const [asked, counts] of [
        [60_000, 60_000],
        [60_001, 60_000],
        [Number.MAX_SAFE_INTEGER, 60_000],
        [0, 30_000],
      ])
        assert.equal((await session.call('exec.start', { argv: ['true'], timeout_ms: asked }))['timeout_ms'], counts)
      const late = await peer.session({ limits: { hard_timeout_ms: 1_500 } })
      assert.equal((await (await late.start({ argv: ['sleep', '1000'], timeout_ms: 600_000 })).finished())['timed_out'], true)
    },
  ),
  requirement(
    'timeout/no-error',
    'a timeout is reported as a state and not as an error',
    '-32003 exec.wait:status exec.exit:timed_out',
    async (peer) => {
      const session = await peer.session()
      const log = await session.start({ argv: ['sleep', '1000'], timeout_ms: 1_500 })
      const { result } = await peer.ask('exec.wait', { session_id: session.id, process_id: log.id, timeout_ms: 1 })
      assert.equal(result?.['status'], 'running')
      const ended = await peer.ask('exec.wait', { session_id: session.id, process_id: log.id })
      assert.equal(ended.result?.['status'], 'timed_out')
    },
  ),
  requirement(
    'exec.start/max_output_bytes',
    'output up to the limit arrives, the rest is counted and dropped, and the program continues',
    'exec.start.max_output_bytes exec.start:max_output_bytes exec.exit:truncated session.open.limits.max_output_bytes',
    async (peer) => {
      const session = await peer.session({ limits: { max_output_bytes: 2_000 } })
      for (const [bytes, params, kept] of [
        [1_000, { max_output_bytes: 1_000 }, 1_000],
        [1_001, { max_output_bytes: 1_000 }, 1_000],
        [300_000, {}, 2_000],
        [300_000, { max_output_bytes: 2_001 }, 2_000],
      ] as const) {
        const log = await session.shell(`${bytesOn(bytes)}; exit 5`, params)
        const { exit_code, bytes_stdout, truncated } = await log.finished()
        assert.deepEqual([exit_code, bytes_stdout, truncated, log.stdout.length], [5, bytes, bytes > kept, kept])
      }
      const wait = 'while [ ! -e go ]; do sleep 0.05; done'
      const both = await session.shell(`${bytesOn(600)}; ${wait}; ${bytesOn(600, '>&2')}`, { max_output_bytes: 1_000 })
      await both.printed('x'.repeat(600))
      await writeFile(session.path('go'), '')
      const { bytes_stderr, truncated } = await both.finished()
      assert.deepEqual([both.stdout.length, both.stderr.length, bytes_stderr, truncated], [600, 400, 600, true])
      const { max_output_bytes } = await session.call('exec.start', { argv: ['true'], max_output_bytes: 2_001 })
      assert.equal(max_output_bytes, 2_000)
    },
  ),
  requirement(
    'exec.start/fail_on_limit',
    'with fail_on_limit a command that writes too much is ended with an error',
    'exec.start.fail_on_limit -32004 exec.error',
    async (peer) => {
      const session = await peer.session()
      const log = await session.shell('sleep 1000 & echo pid $!; yes', { max_output_bytes: 10_000, fail_on_limit: true })
      const exit = await log.finished()
      assert.deepEqual([exit['truncated'], exit['signal'], exit['timed_out']], [true, 'SIGTERM', false])
      assert.deepEqual((await log.error)['code'], -32004)
      assert.deepEqual(
        log.events.slice(-2).map(({ method }) => method),
        ['exec.error', 'exec.exit'],
      )
      assert.equal((await session.failure(-32004, 'exec.wait', { process_id: log.id })).data['process_id'], log.id)
      await allGone(log.pids())
      const enough = await session.shell(bytesOn(10_000), { max_output_bytes: 10_000, fail_on_limit: true })
      assert.equal((await enough.finished())['truncated'], false)
      assert.equal((await session.wait(enough))['status'], 'exited')
    },
  ),
  requirement(
    'journal/unavailable',
    'a request that cannot be written to the journal is not executed',
    '-32603 exec.start',
    async (peer) => {
      const session = await peer.session()
      const marker = session.path('marker')
      // A line of an earlier request may still be written.
      await until('a directory stands in its place', async () => {
        await rm(peer.home.journalFile, { recursive: true, force: true })
        return mkdir(peer.home.journalFile).then(
          () => true,
          () => false,
        )
      })
      for (const [method, params] of [
        ['exec.start', { argv: ['touch', marker] }],
        ['fs.write', { path: 'marker', content: 'x' }],
        ['fs.read', { path: '.' }],
        ['session.open', { client_name: 'x' }],
      ] as const) {
        const ids = method === 'session.open' ? {} : { session_id: session.id }
        const { error } = await peer.ask(method, { ...ids, ...params })
        assert.deepEqual([error?.code, error?.data['code']], [-32603, 'journal_unavailable'], method)
      }
      assert.equal(existsSync(marker), false)
    },
    { config: {}, alone: true },
  ),
]
