import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { signRevocation } from '../../src/trust/revocations.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { signedFrame } from '../support/fake-network.ts'
import { hasProc, isAlive, start, temporaryDirectory, until } from '../support/processes.ts'
import { patient } from '../support/wait-limits.ts'

const LIMIT = { timeout: 60_000 }
const linuxOnly = { ...LIMIT, skip: !hasProc }

test('a key that is revoked between the decision and the start of a run prevents the start', LIMIT, async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t)
  const nonce = await link.nonce()
  const request = link.request(nonce, [host.program('hello')])
  const frame = await signedFrame(request, link.peer.signer)
  const revoked = await signRevocation(link.peer.signer, null, Date.now())
  // Both messages arrive together. The run is permitted and its log line is being written when the key is revoked.
  const run = link.open(nonce, frame, request)
  const told = network.client.revocations(link.number, [revoked])
  const exit = await run.exit()
  await told
  assert.deepEqual([exit.code, exit.signal], [null, null])
  assert.deepEqual(run.warnings(), ['access_revoked'])
  assert.deepEqual(await host.events(run.id), ['request', 'warning', 'exit'])
  assert.equal(host.totals().sessions_started, 0)
  assert.equal(await (await link.ask([host.program('hello')])).denial(), 'trust_rejected')
})

test('a clock that jumps by a year neither ends a run nor prolongs it', LIMIT, async (t) => {
  let offset = 0
  const clock = { ...systemClock, now: () => systemClock.now() + offset }
  const { host, link } = await ExecutorHost.linked(t, { clock, scripts: { waits: 'echo ready; exec cat' } })
  const year = 365 * 24 * 3_600_000
  const [kept, silent] = [
    await link.ask([host.program('waits')], { stdin: Buffer.from('x') }),
    await link.ask([host.program('waits')], { stdin: Buffer.from('x'), renew: false }),
  ]
  await Promise.all([kept.frame('stdout'), silent.frame('stdout')])
  for (offset of [year, -year, 0, -year]) await new Promise(setImmediate)
  // The run without renewals loses its lease at the normal time. The other run lasts until it is cancelled.
  assert.ok((await silent.exit()).duration_ms < 60_000)
  assert.deepEqual(silent.warnings(), ['lease_expired'])
  kept.cancel()
  const exit = await kept.exit()
  assert.deepEqual(kept.warnings(), ['cancelled'])
  assert.ok(exit.duration_ms >= 3_000 && exit.duration_ms < 60_000)
})

test('frames for another run on the stream of a run reach neither of the two runs', LIMIT, async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: 'echo ready; exec cat' } })
  const [one, two] = [
    await link.ask([host.program('waits')], { stdin: Buffer.from('x') }),
    await link.ask([host.program('waits')], { stdin: Buffer.from('x') }),
  ]
  await Promise.all([one.frame('stdout'), two.frame('stdout')])
  one.send({ type: 'cancel', request_id: two.id })
  one.send({ type: 'stdin', request_id: two.id, seq: 0, data: Buffer.from('x'), eof: true })
  one.send({ type: 'ack', request_id: two.id, stdin: 0, stdout: 9, stderr: 9 })
  one.cancel()
  assert.equal((await one.exit()).signal, 15)
  assert.equal(host.totals().malformed_frames, 3)
  two.send({ type: 'stdin', request_id: two.id, seq: 0, data: Buffer.from('x'), eof: true })
  assert.equal((await two.exit()).code, 0)
  assert.equal(two.output().toString(), 'ready\nx')
})

test('a program with 1,100 children is killed with all of them without blocking the daemon', linuxOnly, async (t) => {
  const dir = await temporaryDirectory(t)
  const path = `${dir}/forks.sh`
  await writeFile(path, '#!/bin/sh\ni=0\nwhile [ $i -lt 1100 ]; do sleep 60 & i=$((i+1)); done\necho $! ready\nwait\n', { mode: 0o755 })
  const { process: run, printed, output } = await start(t, [path])
  await printed('ready')
  const last = Number(Buffer.concat(output.stdout).toString().split(' ')[0])
  assert.ok(isAlive(last))
  const began = performance.now()
  run.kill()
  assert.ok(performance.now() - began < patient(5_000))
  await run.ended
  await until(() => !isAlive(last))
})
