import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { constants } from 'node:os'
import { test } from 'node:test'

import { sha256 } from '../../../src/identity/hash.ts'
import { execFrame, execRequest } from '../../../src/protocol/wire/exec.ts'
import { toHex } from '../../../src/protocol/ids.ts'
import { KILL_GRACE_MS, LEASE_EXPIRES_MS, SHUTDOWN_EXITS_MS } from '../../../src/protocol/limits/wire.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import { FakeLink, type ProbeRun } from '../../support/fake-network.ts'
import { ManualClock } from '../../support/manual-clock.ts'

/** Prints that it runs, and stays. A trap prints when it ends. */
const WAITS = 'trap "echo trapped; exit 9" TERM; echo ready; while :; do sleep 0.05; done'
const DEAF = 'trap "" TERM; echo ready; while :; do sleep 0.05; done'

const ready = async (run: ProbeRun): Promise<number> => {
  const { pid } = await run.frame('started')
  await run.frame('stdout', (frame) => Buffer.from(frame.data).toString().startsWith('ready'))
  return pid
}

test('a permitted request sends Started, output and a signed Exit, and is in the audit log', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { hello: 'echo out; echo err >&2; exit 3' } })
  assert.equal(link.decision, 'accept')
  const run = await link.ask([host.program('hello')])
  const exit = await run.exit()
  assert.equal(run.frames[0]?.type, 'started')
  assert.equal(run.output().toString(), 'out\n')
  assert.equal(run.output('stderr').toString(), 'err\n')
  assert.deepEqual([exit.code, exit.signal, exit.denial_reason, exit.truncated], [3, null, null, false])
  assert.deepEqual([exit.stdout_bytes_total, exit.stderr_bytes_total], [4, 4])
  assert.deepEqual(Buffer.from(exit.stdout_sha256), Buffer.from(sha256(Buffer.from('out\n'))))
  assert.deepEqual([exit.to_agent, exit.to_machine], [host.peer.signer.agentId, host.peer.machine.machineId])
  assert.deepEqual(await host.events(run.id), ['request', 'started', 'exit'])
  // The log lines can be compared with the signed request and with the sent output.
  const [asked, , ended] = (await host.lines()).filter((line) => line.request_id === run.id)
  assert.ok(asked?.event === 'request' && ended?.event === 'exit')
  const { dev, ino } = await stat(host.program('hello'), { bigint: true })
  assert.deepEqual(asked.executable, { path: host.program('hello'), dev: `${dev}`, ino: `${ino}` })
  assert.deepEqual([asked.request_sha256, asked.stdin_sha256, asked.account], [toHex(exit.request_sha256), null, null])
  assert.deepEqual([ended.stdout_sha256, ended.stderr_sha256], [toHex(exit.stdout_sha256), toHex(exit.stderr_sha256)])
  const totals = host.totals()
  assert.deepEqual(
    [totals.requests_received, totals.requests_allowed, totals.requests_denied, totals.sessions_completed, host.counters.activeSessions],
    [1, 1, 0, 1, 0],
  )
})

test('the handshake nonce is valid once, for the first request on its stream', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { hello: 'echo hi' } })
  const nonce = link.handshakeNonce!
  assert.equal((await (await link.ask([host.program('hello')], { nonce })).exit()).code, 0)
  assert.equal(await (await link.ask([host.program('hello')], { nonce })).denial(), 'unverified_sender')
})

for (const [title, sent] of [
  ['different bytes of the same length', 'evil'],
  ['fewer bytes', 'fou'],
  ['more bytes', 'fours'],
] as const)
  test(`stdin with ${title} than announced ends the run with stdin_mismatch`, async (t) => {
    const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS } })
    const run = await link.ask([host.program('waits')], { stdin: Buffer.from('four') })
    await ready(run)
    run.send({ type: 'stdin', request_id: run.id, seq: 0, data: Buffer.from(sent), eof: true })
    const exit = await run.exit()
    assert.equal(exit.code, 9)
    assert.deepEqual(run.warnings(), ['stdin_mismatch'])
    assert.deepEqual(await host.events(run.id), ['request', 'started', 'warning', 'exit'])
  })

test('Cancel ends the child with SIGTERM, and the Exit has the real result', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: 'echo ready; exec sleep 60' } })
  const run = await link.ask([host.program('waits')])
  const pid = await ready(run)
  run.cancel()
  const exit = await run.exit()
  assert.deepEqual([exit.code, exit.signal], [null, constants.signals.SIGTERM])
  assert.deepEqual(run.warnings(), ['cancelled'])
  assert.equal(existsSync(`/proc/${pid}`), false)
  assert.equal(host.totals().sessions_cancelled, 1)
})

test('a Cancel before the start leaves no program', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: 'touch ${0%/*}/../ran; sleep 60' } })
  const run = await link.ask([host.program('waits')])
  run.cancel()
  const exit = await run.exit()
  assert.equal(exit.denial_reason, null)
  assert.ok(exit.code === null)
  assert.deepEqual(run.warnings(), ['cancelled'])
  assert.equal(host.counters.activeSessions, 0)
})

test('a Cancel of another run on the stream of a run affects neither run and is counted', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS } })
  const first = await link.ask([host.program('waits')])
  const second = await link.ask([host.program('waits')])
  await Promise.all([ready(first), ready(second)])
  second.send({ type: 'cancel', request_id: first.id })
  second.cancel()
  assert.equal((await second.exit()).code, 9)
  assert.equal(
    first.frames.some((frame) => frame.type === 'exit'),
    false,
  )
  assert.equal(host.totals().malformed_frames, 1)
  first.cancel()
  assert.equal((await first.exit()).code, 9)
})

test('a peer that closes its stream before the Exit ends the child at once', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS } })
  const run = await link.ask([host.program('waits')])
  const pid = await ready(run)
  const clock = performance.now()
  run.over()
  await run.closed
  while (existsSync(`/proc/${pid}`)) await new Promise(setImmediate)
  assert.ok(performance.now() - clock < LEASE_EXPIRES_MS - 1_000, 'before the lease')
  await host.executor.endRuns()
  assert.deepEqual(await host.events(run.id), ['request', 'started', 'warning', 'exit'])
  const warning = (await host.lines()).find((line) => line.event === 'warning')
  assert.equal(warning?.event === 'warning' && warning.kind, 'peer_disconnected')
})

test('a warning about the time limit has the threshold and the end', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { keys: 'warn_duration_secs = 1', scripts: { waits: 'exec sleep 60' } })
  const run = await link.ask([host.program('waits')], { fields: { timeout_ms: 1500 } })
  const { message } = await run.frame('warning', ({ kind }) => kind === 'duration_approaching_cap')
  assert.equal(message, 'the run has taken 1 s; it is ended at 1.5 s')
  await run.exit()
})

test('the time limit ends the run, and the Exit is truncated', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: 'exec sleep 60' } })
  const run = await link.ask([host.program('waits')], { fields: { timeout_ms: 400 } })
  const exit = await run.exit()
  assert.deepEqual([exit.code, exit.signal, exit.truncated], [null, constants.signals.SIGTERM, true])
  assert.ok(run.warnings().includes('duration_cap_hit'))
})

test('output above the limit is counted and dropped with one warning, and the child continues', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, {
    scripts: { big: 'head -c 200000 /dev/zero; exit 5' },
    keys: 'max_stdout_bytes = 100000\nwarn_stdout_bytes = 50000',
  })
  const run = await link.ask([host.program('big')])
  const exit = await run.exit()
  assert.deepEqual([exit.code, exit.stdout_bytes_total, exit.truncated], [5, 200_000, true])
  assert.equal(run.output().length, 100_000)
  assert.deepEqual(Buffer.from(exit.stdout_sha256), Buffer.from(sha256(run.output())))
  assert.deepEqual(run.warnings().toSorted(), ['stdout_approaching_cap', 'stdout_cap_hit'])
})

for (const [listed, outcome] of [
  [true, null],
  [false, 'agent_machine_not_in_acl'],
] as const)
  test(`a Request of the daemon itself on link 0 ${listed ? 'runs if its ACL lists it' : 'is denied if its ACL does not list it'}`, async (t) => {
    const host = await ExecutorHost.start(t, { scripts: { hello: 'echo hi' }, listOwn: listed })
    const network = await host.connect()
    const own = new FakeLink(network.client, host.own, 0, 'accept', null)
    const nonce = await own.nonce()
    const request = own.request(nonce, [host.program('hello')])
    const { argv, request_id, stdin, timeout_ms, cwd, clamp } = request
    const signed = await network.client.signRequest({ link: 0, stream_nonce: nonce, argv, request_id, stdin, timeout_ms, cwd, clamp })
    const run = own.open(nonce, execFrame.encode({ type: 'request', ...signed }), execRequest.decode(signed.body))
    const exit = await run.exit()
    assert.equal(exit.denial_reason, outcome)
    assert.equal(run.output().toString(), listed ? 'hi\n' : '')
  })

test('a stop ends every child before the usual grace period, even one that ignores SIGTERM', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS, deaf: DEAF } })
  const polite = await link.ask([host.program('waits')])
  const deaf = await link.ask([host.program('deaf')])
  const pids = await Promise.all([ready(polite), ready(deaf)])
  const began = performance.now()
  const late = host.executor.endRuns()
  const refused = await link.ask([host.program('waits')])
  assert.equal(await refused.denial(), 'draining')
  await late
  // The grace period of an ordinary Cancel is 5 s. A stop does not wait for it.
  assert.ok(performance.now() - began < KILL_GRACE_MS)
  const [first, second] = [await polite.exit(), await deaf.exit()]
  assert.equal(first.code, 9)
  assert.equal(second.signal, constants.signals.SIGKILL)
  const told = ['daemon_stopping']
  assert.deepEqual([polite.warnings(), deaf.warnings()], [told, told])
  for (const pid of pids) assert.equal(existsSync(`/proc/${pid}`), false)
  assert.deepEqual(await host.events(deaf.id), ['request', 'started', 'warning', 'exit'])
  assert.equal((await readFile(host.journalPath, 'utf8')).endsWith('\n'), true)
})

for (const [title, settle] of [
  ['has received the Exit', async (run: ProbeRun) => run.over()],
  ['is disconnected', async (run: ProbeRun) => run.lost()],
  ['runs out of time', async (_run: ProbeRun, clock: ManualClock) => clock.advance(SHUTDOWN_EXITS_MS)],
] as const)
  test(`a stop waits until the requester ${title}`, async (t) => {
    const clock = new ManualClock()
    const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS }, clock })
    const run = await link.ask([host.program('waits')], { over: false })
    await ready(run)
    let stopped = false
    const stop = host.executor.endRuns().then(() => (stopped = true))
    await run.frame('exit')
    // The executor process answers in order, so a stop that does not wait would be over.
    await link.client.query('contacts')
    assert.equal(stopped, false)
    await settle(run, clock)
    await Promise.race([stop, link.client.closed])
    assert.equal(stopped, true)
  })
