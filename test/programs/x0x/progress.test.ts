import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'

import { Progress } from '../../../src/programs/x0x/progress.ts'
import { fakeDaemon, json, runCli } from '../../support/fake-daemon.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const stderr = (isTTY: boolean, columns = 200) => Object.assign(new PassThrough(), { isTTY, columns })
const textOf = (output: PassThrough): string => String(output.read() ?? '')

test('after one second of waiting, a line shows the reason and the duration until the answer comes', async () => {
  const [output, clock] = [stderr(true), new ManualClock()]
  const progress = new Progress({ stderr: output, clock }, { off: false })
  const over = progress.start('waiting for the\u001b daemon')
  const inner = progress.start('something within')
  await clock.advance(999)
  assert.equal(textOf(output), '')
  await clock.advance(1)
  assert.equal(textOf(output), '\r\u001b[Kx0x: waiting for the\\x1b daemon, 1 s')
  inner()
  inner()
  await clock.advance(1_000)
  assert.match(textOf(output), /, 2 s$/)
  over()
  assert.deepEqual([textOf(output), clock.pending], ['\r\u001b[K', 0])
  await clock.advance(5_000)
  assert.equal(textOf(output), '')
})

test('the progress line is not shown for fast answers, without a terminal, or if switched off', async () => {
  for (const [isTTY, off, ms] of [
    [true, false, 900],
    [false, false, 3_000],
    [true, true, 3_000],
  ] as const) {
    const [output, clock] = [stderr(isTTY), new ManualClock()]
    const over = new Progress({ stderr: output, clock }, { off }).start('it')
    await clock.advance(ms)
    over()
    assert.deepEqual([textOf(output), clock.pending], ['', 0])
  }
})

test('with --quiet, a command prints nothing about changes, but prints errors', async (t) => {
  const contact = {
    name: 'bob',
    agent_id: 'ab'.repeat(32),
    trust: 'known',
    machines: [],
    addresses: [],
    revoked: false,
    revoked_machines: [],
    formerly: [],
    labels: {},
  }
  const { dir } = await fakeDaemon(t, ({ path }, response) =>
    path === '/contacts/trust'
      ? json(response, 200, { ok: true, contact })
      : json(response, 404, { ok: false, error: 'not_found', message: 'no' }),
  )
  const loud = await runCli(['--data-dir', dir, 'contacts', 'trust', 'bob', 'known'])
  assert.match(loud.stdout, /^bob: known/)
  const quiet = await runCli(['--data-dir', dir, '-q', 'contacts', 'trust', 'bob', 'known'])
  assert.deepEqual([quiet.status, quiet.stdout, quiet.stderr], [0, '', ''])
  const failed = await runCli(['--data-dir', dir, 'contacts', 'remove', 'bob', '--quiet'])
  assert.deepEqual([failed.status, failed.stdout, failed.stderr], [1, '', 'x0x: no\n'])
})

test('version prints command, runtime and daemon versions, and succeeds without a daemon', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, version: '9.9.9' }))
  const told = JSON.parse((await runCli(['--data-dir', dir, 'version', '--json'])).stdout) as Record<string, unknown>
  assert.deepEqual([told['ok'], told['daemon_version'], told['runtime']], [true, '9.9.9', `node ${process.versions.node}`])
  assert.match((await runCli(['--data-dir', dir, 'version'])).stdout, /^x0x \S+ \(node .*\)\nx0xd 9\.9\.9: its version differs/)
  const alone = await runCli(['--data-dir', `${dir}/none`, 'version'])
  assert.deepEqual([alone.status, alone.stderr], [0, ''])
  assert.match(alone.stdout, /\nx0xd does not answer\n$/)
})
