import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { constants } from 'node:os'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { sha256 } from '../../../src/identity/hash.ts'
import { FIRST_UNACKED_PER_RUN, FRAME_COST, MAX_FRAME_DATA } from '../../../src/protocol/limits/wire.ts'
import { MAX_LEFT_IN_PIPES } from '../../../src/protocol/limits/daemon.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import type { ProbeRun } from '../../support/fake-network.ts'

const SIZE = 20 * 1024 * 1024
const BIG = { big: `head -c ${SIZE} /dev/urandom` }
const KEYS = `max_stdout_bytes = ${SIZE}`

const unacked = (run: ProbeRun): number =>
  run.frames.reduce((sum, frame) => sum + (frame.type === 'stdout' ? frame.data.length + FRAME_COST : 0), 0)

const received = async (run: ProbeRun, bytes: number): Promise<void> => {
  await run.frame('stdout', () => unacked(run) >= bytes)
}

test('a reader that does not acknowledge pauses the child at the window until it acknowledges', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: BIG, keys: KEYS })
  const run = await link.ask([host.program('big')], { ack: false })
  const { pid } = await run.frame('started')
  await received(run, FIRST_UNACKED_PER_RUN)
  await sleep(300)
  assert.ok(unacked(run) < FIRST_UNACKED_PER_RUN + MAX_FRAME_DATA + FRAME_COST)
  assert.equal(existsSync(`/proc/${pid}`), true)
  assert.equal(
    run.frames.some((frame) => frame.type === 'exit'),
    false,
  )
  const acking = setInterval(() => run.ack(), 5)
  const exit = await run.exit()
  clearInterval(acking)
  assert.equal(run.output().length, SIZE)
  assert.deepEqual(Buffer.from(exit.stdout_sha256), Buffer.from(sha256(run.output())))
  assert.equal(exit.truncated, false)
})

test('output of a descendant without a reader is bounded, and its loss is reported', async (t) => {
  const scripts = { ends: "setsid env -i sh -c 'echo $$ >&2; exec cat /dev/zero' &\nsleep 0.3" }
  const { host, link } = await ExecutorHost.linked(t, { scripts, keys: 'max_stdout_bytes = 1000000000000' })
  const run = await link.ask([host.program('ends')], { ack: false })
  t.after(() => process.kill(Number(run.output('stderr')), 'SIGKILL'))
  const exit = await run.exit()
  assert.deepEqual([exit.code, exit.truncated], [0, true])
  assert.deepEqual(
    run.warnings().filter((kind) => kind !== 'stdout_approaching_cap'),
    ['descendant_held_output', 'output_lost', 'descendants_may_survive'],
  )
  assert.ok(unacked(run) <= FIRST_UNACKED_PER_RUN + MAX_LEFT_IN_PIPES + 2 * (MAX_FRAME_DATA + FRAME_COST), `${unacked(run)} bytes`)
  assert.equal(host.counters.activeSessions, 0)
})

test('a silent peer with a full window holds neither the program nor its slot', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, {
    scripts: { flood: 'exec cat /dev/zero' },
    keys: 'max_stdout_bytes = 1000000000000',
  })
  const run = await link.ask([host.program('flood')], { ack: false, renew: false })
  const exit = await run.exit()
  assert.equal(exit.signal, constants.signals.SIGTERM)
  assert.deepEqual(
    run.warnings().filter((kind) => kind !== 'stdout_approaching_cap'),
    ['lease_expired'],
  )
  assert.equal(host.counters.activeSessions, 0)
})

for (const [title, ack] of [
  ['of unsent stdout', { stdin: 0, stdout: 999, stderr: 0 }],
  ['of unsent stderr', { stdin: 0, stdout: 1, stderr: 1 }],
  ['below an earlier one', { stdin: 0, stdout: 0, stderr: 0 }],
] as const)
  test(`an Ack ${title} closes the stream and ends the program`, async (t) => {
    const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: 'echo ready; exec sleep 60' } })
    const run = await link.ask([host.program('waits')])
    const { pid } = await run.frame('started')
    await run.frame('stdout')
    run.send({ type: 'ack', request_id: run.id, ...ack })
    await run.closed
    assert.equal(
      run.frames.some((frame) => frame.type === 'exit'),
      false,
    )
    await host.executor.endRuns()
    assert.equal(existsSync(`/proc/${pid}`), false)
    assert.deepEqual(await host.events(run.id), ['request', 'started', 'warning', 'exit'])
    assert.equal(host.totals().malformed_frames, 1)
  })

test('unannounced stdin, or a frame that only an executor process sends, ends the run', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: 'echo ready; exec sleep 60' } })
  for (const bad of [
    (run: ProbeRun) => run.send({ type: 'stdin', request_id: run.id, seq: 0, data: Buffer.from('x'), eof: true }),
    (run: ProbeRun) => run.send({ type: 'started', request_id: run.id, pid: 1 }),
    (run: ProbeRun) => run.sendBytes(new Uint8Array(0)),
  ]) {
    const run = await link.ask([host.program('waits')])
    await run.frame('stdout')
    bad(run)
    await run.closed
    assert.equal(run.frames.at(-1)?.type, 'warning')
  }
  await host.executor.endRuns()
  assert.equal(host.totals().malformed_frames, 3)
})
