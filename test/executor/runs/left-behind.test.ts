import assert from 'node:assert/strict'
import { test } from 'node:test'

import { leftBehindIn, leftBehindText } from '../../../src/protocol/reasons.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import { LocalHost } from '../../support/local-engine.ts'
import { hasProc } from '../../support/processes.ts'

const linuxOnly = { skip: !hasProc && 'needs /proc' }
const SCRIPTS = { leaves: 'setsid sleep 1000 </dev/null >/dev/null 2>&1 & sleep 1000 </dev/null >/dev/null 2>&1 & echo ran' }
const TEXT = '2 processes that the command left running were ended with it'

test('the warning descendants_ended is sent to a requester and is in audit log and diagnostics', linuxOnly, async (t) => {
  const host = await ExecutorHost.start(t, { scripts: SCRIPTS })
  await host.befriend(host.peer)
  const network = await host.connect()
  const run = await (await network.link(host.peer)).ask([host.program('leaves')])
  assert.equal((await run.exit()).code, 0)
  const frames = run.frames.flatMap((frame) => (frame.type === 'warning' ? [[frame.kind, frame.message]] : []))
  assert.deepEqual(frames, [['descendants_ended', TEXT]])
  const lines = (await host.lines()).flatMap((line) => (line.event === 'warning' ? [[line.kind, line.bytes, line.processes]] : []))
  assert.deepEqual(lines, [['descendants_ended', null, 2]])
  const [recent] = host.counters.snapshot({} as never).recent_warnings
  assert.deepEqual([recent?.kind, recent?.bytes_at_warn, recent?.processes], ['descendants_ended', null, 2])
})

test('a local client gets the number of ended processes, which is also in the audit log', linuxOnly, async (t) => {
  const host = await LocalHost.start(t, { scripts: SCRIPTS })
  const run = await host.run(await host.open(), [host.program('leaves')])
  assert.equal((await run.outcome()).code, 0)
  const told = run.events.filter(({ type }) => type === 'warning')
  assert.deepEqual(told, [{ type: 'warning', kind: 'descendants_ended', amount: 2 }])
  const lines = (await host.lines()).flatMap((line) => (line.event === 'warning' ? [[line.kind, line.bytes, line.processes]] : []))
  assert.deepEqual(lines, [['descendants_ended', null, 2]])
})

test('the number of processes is read from the warning text of a target, and is at least one', () => {
  for (const count of [1, 2, 999_999_999]) assert.equal(leftBehindIn(leftBehindText(count)), count)
  for (const text of ['', 'many', '0 processes', '-2 processes', '2', '2.5 processes', '1e9 processes', '9999999999 processes'])
    assert.equal(leftBehindIn(text), 1)
})
