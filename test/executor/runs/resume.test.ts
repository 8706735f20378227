import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { test } from 'node:test'

import { sha256 } from '../../../src/identity/hash.ts'
import { execFrame, type ExecExit } from '../../../src/protocol/wire/exec.ts'
import { LEASE_EXPIRES_MS, STDIN_PIECE_BYTES } from '../../../src/protocol/limits/wire.ts'
import { AWAITING_ACK } from '../../../src/executor/runs/runs.ts'
import { RESUME_BURST } from '../../../src/executor/runs/requester-stream.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import { newParty, type ProbeRun } from '../../support/fake-network.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const WAITS = 'trap "echo trapped; exit 9" TERM; echo ready; while :; do sleep 0.05; done'
/** Prints one, waits for the file `go`, and prints two. */
const STEPS = 'echo one; echo err >&2; while [ ! -e "${0%/*}/../go" ]; do sleep 0.02; done; echo two; exit 3'

const go = async (host: ExecutorHost): Promise<void> => writeFile(`${host.dir}/go`, '')
const types = (run: ProbeRun): string[] => run.frames.map(({ type }) => type)
const gone = async (process: number): Promise<void> => {
  while (existsSync(`/proc/${process}`)) await new Promise((resolve) => setTimeout(resolve, 10))
}
const sameHash = (exit: ExecExit, stdout: Uint8Array): void =>
  assert.deepEqual(Buffer.from(exit.stdout_sha256), Buffer.from(sha256(stdout)))

test('a run whose stream is lost continues on another without missing or repeated output', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { steps: STEPS } })
  const first = await link.ask([host.program('steps')])
  const { pid } = await first.frame('started')
  await first.frame('stdout')
  await first.frame('stderr')
  first.lost()
  await first.closed
  assert.equal(existsSync(`/proc/${pid}`), true)
  await go(host)
  const second = await link.resume(first)
  const exit = await second.exit()
  assert.equal(exit.code, 3)
  assert.deepEqual(types(second), ['resumed', 'ack', 'started', 'stdout', 'exit'])
  assert.equal((await second.frame('started')).pid, pid)
  assert.equal(second.output().toString(), 'two\n')
  sameHash(exit, Buffer.concat([first.output(), second.output()]))
  assert.deepEqual(await host.events(first.id), ['request', 'started', 'exit'])
  const { runs_resumed, resumes_refused, malformed_frames, sessions_cancelled } = host.totals()
  assert.deepEqual([runs_resumed, resumes_refused, malformed_frames, sessions_cancelled], [1, 0, 0, 0])
})

test('a run that is lost before its start reports the start after a resume', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { hello: 'echo hi' } })
  const first = await link.ask([host.program('hello')], { ack: false })
  first.lost()
  const second = await link.resume(first, { stdout: 0, stderr: 0 })
  assert.equal((await second.exit()).code, 0)
  assert.equal(second.output().toString(), 'hi\n')
  assert.equal(types(second).filter((type) => type === 'started').length, 1)
})

test('stdin continues at the received offset after a resume, and its acknowledgements are repeated', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { copy: 'cat' }, keys: 'max_stdin_bytes = 8388608' })
  const data = randomBytes(STDIN_PIECE_BYTES + 5)
  const length = STDIN_PIECE_BYTES / 32
  // 32 frames of the first piece, and five of the second.
  const send = (run: ProbeRun, from: number, to: number): void => {
    for (let seq = from; seq < to; seq++) {
      const at = seq < 32 ? seq * length : STDIN_PIECE_BYTES + seq - 32
      run.send({ type: 'stdin', request_id: run.id, seq, data: data.subarray(at, seq < 32 ? at + length : at + 1), eof: seq === 36 })
    }
  }
  const first = await link.ask([host.program('copy')], { stdin: data })
  send(first, 0, 32)
  await first.frame('ack', ({ stdin }) => stdin === 32)
  send(first, 32, 34)
  first.lost()
  await first.closed
  // Bytes that were held back stay held back after a lost stream.
  const second = await link.resume(first)
  assert.equal((await second.frame('resumed')).stdin, 34)
  assert.equal((await second.frame('ack')).stdin, 32)
  send(second, 34, 37)
  const exit = await second.exit()
  assert.equal(exit.code, 0)
  sameHash(exit, data)
  assert.deepEqual(Buffer.concat([first.output(), second.output()]), data)
})

test('the newer of two streams counts, and messages on the older one are ignored', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { steps: STEPS } })
  const first = await link.ask([host.program('steps')])
  await first.frame('stdout')
  await first.frame('stderr')
  const second = await link.resume(first)
  await first.closed
  first.cancel()
  first.lost()
  first.over()
  await second.frame('resumed')
  await go(host)
  assert.deepEqual([(await second.exit()).code, second.warnings()], [3, []])
})

test('a run that is not resumed within the lease ends as peer_disconnected, and a later Resume fails', async (t) => {
  const clock = new ManualClock()
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS }, clock })
  const first = await link.ask([host.program('waits')], { renew: false })
  const { pid } = await first.frame('started')
  await first.frame('stdout')
  // Its acknowledgement was the last message, and has been processed.
  await link.client.query('contacts')
  first.lost()
  await first.closed
  await clock.advance(LEASE_EXPIRES_MS - 1)
  assert.equal(existsSync(`/proc/${pid}`), true)
  assert.deepEqual(await host.events(first.id), ['request', 'started'])
  await clock.advance(1)
  await gone(pid)
  const late = await link.resume(first)
  await late.closed
  assert.deepEqual(types(late), ['gone'])
  await host.executor.endRuns()
  const warning = (await host.lines()).find((line) => line.event === 'warning')
  assert.equal(warning?.event === 'warning' && warning.kind, 'peer_disconnected')
  assert.equal(host.totals().sessions_cancelled, 1)
})

test('a Resume renews the lease', async (t) => {
  const clock = new ManualClock()
  const { host, link } = await ExecutorHost.linked(t, { scripts: { steps: STEPS }, clock })
  let run = await link.ask([host.program('steps')], { renew: false })
  const { pid } = await run.frame('started')
  for (let round = 0; round < 3; round++) {
    run.lost()
    await run.closed
    await clock.advance(LEASE_EXPIRES_MS - 1)
    run = await link.resume(run, run.position, { renew: false })
    await run.frame('resumed')
    assert.equal(existsSync(`/proc/${pid}`), true)
  }
  await go(host)
  assert.equal((await run.exit()).code, 3)
})

test('an Exit that is not fetched is dropped when the lease expires', async (t) => {
  const clock = new ManualClock()
  const { host, link } = await ExecutorHost.linked(t, { scripts: { hello: 'echo hi' }, clock })
  for (const lost of [true, false]) {
    const run = await link.ask([host.program('hello')], { over: false, renew: false, ack: false })
    await run.frame('exit')
    if (lost) run.lost()
    await link.client.query('contacts')
    await clock.advance(LEASE_EXPIRES_MS)
    await run.closed
    const late = await link.resume(run, { stdout: 0, stderr: 0 })
    await late.closed
    assert.deepEqual(types(late), ['gone'])
  }
})

test('a Resume for a run of another peer, an unknown run or a used nonce gets the same answer', async (t) => {
  const [peer, other] = [newParty(), newParty()]
  const host = await ExecutorHost.start(t, { scripts: { steps: STEPS }, peers: [peer, other] })
  await host.befriend(peer)
  await host.befriend(other)
  const network = await host.connect()
  const [link, foreign] = [await network.link(peer), await network.link(other)]
  const run = await link.ask([host.program('steps')])
  await run.frame('stdout')
  const nonce = await link.nonce()
  const never = link.open(await link.nonce(), execFrame.encode({ type: 'cancel', request_id: run.id }), link.request(nonce, ['x']))
  await never.closed
  const used = link.handshakeNonce!
  await (
    await link.resume(never, { stdout: 0, stderr: 0 }, { nonce: used })
  ).closed
  const tries = [await foreign.resume(run), await link.resume(never), await link.resume(run, run.position, { nonce: used })]
  for (const one of tries) {
    await one.closed
    assert.deepEqual(types(one), ['gone'])
  }
  assert.equal(host.totals().resumes_refused, 4)
  await go(host)
  assert.equal((await run.exit()).code, 3)
  assert.deepEqual(await host.events(run.id), ['request', 'started', 'exit'])
})

test('the same agent on another machine cannot resume the run', async (t) => {
  const peer = newParty()
  const moved = { signer: peer.signer, machine: newParty().machine }
  const host = await ExecutorHost.start(t, { scripts: { steps: STEPS }, peers: [peer] })
  await host.befriend(peer)
  await host.contacts.pin(host.contacts.list()[0]!.name, moved.machine.machineId)
  const network = await host.connect()
  const [link, elsewhere] = [await network.link(peer), await network.link(moved)]
  const run = await link.ask([host.program('steps')])
  await run.frame('stdout')
  run.lost()
  const stolen = await elsewhere.resume(run)
  await stolen.closed
  assert.deepEqual(types(stolen), ['gone'])
  await go(host)
  assert.equal((await (await link.resume(run)).exit()).code, 3)
})

for (const [title, from] of [
  ['that were never sent', { stdout: 2, stderr: 0 }],
  ['of stderr that were never sent', { stdout: 1, stderr: 1 }],
  ['below the acknowledged ones', { stdout: 0, stderr: 0 }],
] as const)
  test(`a Resume with frame numbers ${title} ends the run`, async (t) => {
    const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS } })
    const run = await link.ask([host.program('waits')])
    const { pid } = await run.frame('started')
    await run.frame('stdout')
    await link.client.query('contacts')
    const bad = await link.resume(run, from)
    await bad.closed
    assert.deepEqual(types(bad), ['gone'])
    await gone(pid)
    await host.executor.endRuns()
    assert.deepEqual(await host.events(run.id), ['request', 'started', 'warning', 'exit'])
    assert.deepEqual([host.totals().malformed_frames, host.totals().resumes_refused], [1, 1])
  })

test('a frame other than Resume resumes no run, and a Resume on a running stream is a violation', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS } })
  const run = await link.ask([host.program('waits')])
  const { pid } = await run.frame('started')
  for (const frame of [Buffer.from('x'), execFrame.encode({ type: 'cancel', request_id: run.id })]) {
    const closed = Promise.withResolvers<void>()
    const port = link.client.resumeRun(link.number, await link.nonce(), frame)
    port.onFrame = () => assert.fail('an answer')
    port.onClosed = closed.resolve
    await closed.promise
  }
  assert.equal(host.totals().malformed_frames, 2)
  run.send({ type: 'resume', request_id: run.id, stdout: 0, stderr: 0, request_nonce: run.request.stream_nonce })
  await run.closed
  await gone(pid)
  assert.equal(host.totals().malformed_frames, 3)
})

test('a flood of Resumes ends the run', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS }, clock: new ManualClock() })
  const run = await link.ask([host.program('waits')])
  const { pid } = await run.frame('started')
  await run.frame('stdout')
  const tries: ProbeRun[] = []
  for (let count = 0; count <= RESUME_BURST; count++) tries.push(await link.resume(run))
  await Promise.all(tries.map(async (one) => one.closed))
  assert.deepEqual(types(tries.at(-1)!), ['gone'])
  assert.equal(host.totals().runs_resumed, RESUME_BURST)
  await gone(pid)
})

test('a peer that does not acknowledge its Exits loses the oldest, and holds no slot', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { hello: 'echo hi' }, clock: new ManualClock() })
  const runs: ProbeRun[] = []
  for (let count = 0; count <= AWAITING_ACK.countPerOwner; count++) {
    const run = await link.ask([host.program('hello')], { over: false, ack: false })
    await run.frame('exit')
    runs.push(run)
  }
  await runs[0]!.closed
  assert.equal(host.counters.activeSessions, 0)
  const [oldest, next] = [await link.resume(runs[0]!, { stdout: 0, stderr: 0 }), await link.resume(runs[1]!, { stdout: 0, stderr: 0 })]
  await oldest.closed
  assert.deepEqual(types(oldest), ['gone'])
  assert.equal((await next.exit()).code, 0)
})

test('the limit of kept Exits applies to an agent, not to each of its machines', async (t) => {
  const { signer, machine } = newParty()
  const peers = [machine, newParty().machine].map((own) => ({ signer, machine: own }))
  const host = await ExecutorHost.start(t, { scripts: { hello: 'echo hi' }, clock: new ManualClock(), peers })
  for (const peer of peers) await host.befriend(peer)
  const network = await host.connect()
  const links = await Promise.all(peers.map(async (peer) => network.link(peer)))
  const runs: ProbeRun[] = []
  for (let count = 0; count <= AWAITING_ACK.countPerOwner; count++) {
    const run = await links[count % 2]!.ask([host.program('hello')], { over: false, ack: false })
    await run.frame('exit')
    runs.push(run)
  }
  await runs[0]!.closed
  const gone = await links[0]!.resume(runs[0]!, { stdout: 0, stderr: 0 })
  await gone.closed
  assert.deepEqual(types(gone), ['gone'])
  assert.equal((await (await links[1]!.resume(runs[1]!, { stdout: 0, stderr: 0 })).exit()).code, 0)
})

test('a run continues after its network process ends, and the next network process resumes it', async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t, { scripts: { steps: STEPS } })
  const first = await link.ask([host.program('steps')])
  await first.frame('stdout')
  await first.frame('stderr')
  network.client.stop()
  await host.sessions[0]?.closed
  const again = await (await host.connect()).link(host.peer)
  await go(host)
  const second = await again.resume(first)
  assert.equal((await second.exit()).code, 3)
  assert.equal(second.output().toString(), 'two\n')
})

test('access that is withdrawn while the stream is lost ends the run at once, and no resume works', async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t, { scripts: { waits: WAITS }, clock: new ManualClock() })
  const run = await link.ask([host.program('waits')], { renew: false })
  const { pid } = await run.frame('started')
  await run.frame('stdout')
  run.lost()
  network.client.linkClosed(link.number)
  await network.client.query('contacts')
  await host.contacts.setTrust(host.contacts.list()[0]!.name, 'blocked')
  await gone(pid)
  const back = await (await network.link(host.peer)).resume(run)
  await back.closed
  assert.deepEqual(back.frames, [])
  const warning = (await host.lines()).find((line) => line.event === 'warning')
  assert.equal(warning?.event === 'warning' && warning.kind, 'access_revoked')
})
