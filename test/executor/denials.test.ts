import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { rename, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { test } from 'node:test'

import { execFrame, type ExecRequest } from '../../src/protocol/wire/exec.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { newParty, signedFrame, type AskOptions, type FakeLink, type Party } from '../support/fake-network.ts'
import { UNACCEPTED_REQUEST_BURST } from '../../src/executor/links/executor-links.ts'
import { DENIAL_BURST } from '../../src/protocol/limits/wire.ts'
import { ManualClock } from '../support/manual-clock.ts'

const HELLO = { hello: 'echo hi' }

/** Checks a denial. The Exit has the reason, the audit log has its line, the counter is higher, and no program ran. */
const denied = async (host: ExecutorHost, link: FakeLink, reason: string, argv: readonly string[], options?: AskOptions): Promise<void> => {
  const before = host.totals()
  const run = await link.ask(argv, options)
  const exit = await run.exit()
  assert.equal(exit.denial_reason, reason)
  assert.deepEqual([exit.code, exit.signal, exit.stdout_bytes_total], [null, null, 0])
  assert.deepEqual(
    run.frames.map((frame) => frame.type),
    ['exit'],
  )
  const after = host.totals()
  assert.equal(after.requests_denied, before.requests_denied + 1)
  assert.equal(after.sessions_started, before.sessions_started)
  assert.deepEqual(await host.events(run.id), ['denial'])
  const line = (await host.lines()).find((one) => one.request_id === run.id)
  assert.equal(line?.event === 'denial' && line.reason, reason)
}

test('each check of the ACL denies with its own reason', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: HELLO })
  const hello = [host.program('hello')]
  await denied(host, link, 'argv_not_allowed', [...hello, 'more'])
  await denied(host, link, 'argv_not_allowed', [])
  await denied(host, link, 'shell_metachar_in_argv', [...hello, 'a;b'])
  await denied(host, link, 'cwd_not_allowed', hello, { fields: { cwd: '/' } })
  await denied(host, link, 'stdin_too_large', hello, {
    fields: { stdin: { len: 1_048_577, pieces: [new Uint8Array(32), new Uint8Array(32)] } },
  })
  await denied(host, link, 'timeout_too_large', hello, { fields: { timeout_ms: 300_001 } })
})

test('the argv that is matched and run is exactly the signed one, including invisible characters', async (t) => {
  const word = 'x'.repeat(70)
  const marked = `\ufeff${word}`
  const { host, link } = await ExecutorHost.linked(t, {
    commands: [
      ['/bin/echo', word],
      ['/usr/bin/printf', marked],
    ],
  })
  await denied(host, link, 'argv_not_allowed', ['/bin/echo', marked])
  const run = await link.ask(['/usr/bin/printf', marked])
  assert.equal((await run.exit()).code, 0)
  assert.equal(run.output().toString('hex'), Buffer.from(marked).toString('hex'))
})

test('a trusted peer without an ACL entry gets agent_machine_not_in_acl', async (t) => {
  const { host, network } = await ExecutorHost.linked(t, { scripts: HELLO })
  const other = newParty()
  await host.befriend(other)
  await denied(host, await network.link(other), 'agent_machine_not_in_acl', [host.program('hello')])
})

test('without an ACL a request is denied and counted, without a failed log write', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: HELLO, acl: false })
  const run = await link.ask([host.program('hello')])
  assert.equal(await run.denial(), 'exec_disabled')
  assert.equal(host.totals().denial_breakdown.exec_disabled, 1)
  assert.equal(host.totals().audit_write_failures, 0)
})

test('a request above the rate limit of denials gets no answer, and its ID may be used later', async (t) => {
  const clock = new ManualClock()
  const { host, link } = await ExecutorHost.linked(t, { scripts: HELLO, clock })
  const used = randomUUID()
  const isAnswered = async (request_id: string): Promise<boolean> => {
    const run = await link.ask(['not-listed'], { fields: { request_id }, renew: false })
    await run.closed
    return run.frames.length > 0
  }
  for (let n = 0; n < DENIAL_BURST; n += 16)
    assert.ok((await Promise.all(Array.from({ length: 16 }, async () => isAnswered(randomUUID())))).every(Boolean))
  assert.equal(await isAnswered(used), false)
  assert.equal((await (await link.ask([host.program('hello')], { fields: { request_id: used }, renew: false })).exit()).code, 0)
})

test('a request above the concurrency limit is denied, and each kind of end frees a slot', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, {
    scripts: { waits: 'echo ready; exec sleep 60', hello: 'echo hi' },
    keys: 'max_concurrent_per_agent = 1\nmax_concurrent_total = 1',
  })
  const ends: ((run: Awaited<ReturnType<FakeLink['ask']>>) => void)[] = [
    (run) => run.cancel(),
    (run) => run.over(),
    (run) => run.sendBytes(Buffer.from('nonsense')),
    (run) => run.send({ type: 'ack', request_id: run.id, stdin: 0, stdout: 99, stderr: 0 }),
  ]
  for (const end of ends) {
    const run = await link.ask([host.program('waits')])
    await run.frame('stdout')
    await denied(host, link, 'concurrency_limit_reached', [host.program('hello')])
    end(run)
    // A peer that violates the protocol is disconnected before its program has ended.
    await run.closed
    while (host.counters.activeSessions > 0) await new Promise(setImmediate)
    assert.equal((await (await link.ask([host.program('hello')])).exit()).code, 0)
  }
  assert.equal((await (await link.ask([host.program('waits')], { fields: { timeout_ms: 100 } })).exit()).truncated, true)
  assert.equal((await (await link.ask([host.program('hello')])).exit()).code, 0)
})

test('an audit log that cannot be written denies with audit_unavailable until it can be written again', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: HELLO })
  const directory = dirname(host.journalPath)
  await rename(directory, `${directory}.away`)
  await writeFile(directory, 'a file where the directory was')
  const run = await link.ask([host.program('hello')])
  assert.equal(await run.denial(), 'audit_unavailable')
  const fields = { request_id: run.id }
  assert.deepEqual(run.output().length, 0)
  assert.ok(host.totals().audit_write_failures >= 1)
  assert.equal(host.totals().sessions_started, 0)
  await rm(directory)
  await rename(`${directory}.away`, directory)
  assert.equal((await (await link.ask([host.program('hello')], { fields })).exit()).code, 0, 'under the same ID')
  assert.equal(await (await link.ask([host.program('hello')], { fields })).denial(), 'request_id_used')
})

test('an agent that the trust rules do not accept gets only trust_rejected', async (t) => {
  const peers: Record<string, Party> = { stranger: newParty(), known: newParty(), blocked: newParty(), elsewhere: newParty() }
  const host = await ExecutorHost.start(t, { scripts: HELLO, peers: Object.values(peers) })
  await host.befriend(peers.known!, 'known')
  await host.contacts.unpin('known', peers.known!.machine.machineId)
  await host.befriend(peers.blocked!, 'blocked')
  await host.contacts.setTrust('blocked', 'blocked')
  await host.befriend(peers.elsewhere!, 'elsewhere')
  await host.contacts.pin('elsewhere', newParty().machine.machineId)
  await host.contacts.unpin('elsewhere', peers.elsewhere!.machine.machineId)
  const network = await host.connect()
  const decisions: Record<string, string> = {
    stranger: 'unknown',
    known: 'accept_with_flag',
    blocked: 'reject_blocked',
    elsewhere: 'reject_machine_mismatch',
  }
  for (const [name, peer] of Object.entries(peers)) {
    const link = await network.link(peer)
    assert.equal(link.decision, decisions[name])
    for (const argv of [[host.program('hello')], ['no-such-thing'], ['a;b'], []]) await denied(host, link, 'trust_rejected', argv)
  }
})

test('a peer that is not accepted gets a limited number of answers', async (t) => {
  const host = await ExecutorHost.start(t, { scripts: HELLO })
  const network = await host.connect()
  const link = await network.link(newParty())
  const runs = await Promise.all(Array.from({ length: UNACCEPTED_REQUEST_BURST + 10 }, () => link.ask(['x'])))
  await Promise.all(runs.map((run) => run.closed))
  const { requests_denied, requests_ignored } = host.totals()
  assert.ok(requests_ignored >= 1)
  assert.equal(requests_denied + requests_ignored, runs.length)
})

test('a repeated request is refused as a replay on the same stream, another stream and another link', async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t, { scripts: HELLO })
  const nonce = await link.nonce()
  const request = link.request(nonce, [host.program('hello')])
  const frame = await signedFrame(request, link.peer.signer)
  assert.equal((await link.open(nonce, frame, request).exit()).code, 0)
  assert.equal(await link.open(nonce, frame, request).denial(), 'unverified_sender')
  assert.equal(await link.open(await link.nonce(), frame, request).denial(), 'unverified_sender')
  const second = await network.link(link.peer)
  assert.equal(await second.open(await second.nonce(), frame, request).denial(), 'unverified_sender')
  assert.equal(host.totals().requests_replayed, 3)
  assert.equal(host.totals().sessions_started, 1)
})

test('a request that was signed before a restart is refused after it', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: HELLO })
  const nonce = await link.nonce()
  const request = link.request(nonce, [host.program('hello')])
  const frame = await signedFrame(request, link.peer.signer)
  await host.stop()
  await host.boot()
  const again = await (await host.connect()).link(link.peer)
  assert.equal(await again.open(nonce, frame, request).denial(), 'unverified_sender')
})

test('a nonce is void for another peer, after it was dropped, and after its last link closed', async (t) => {
  const peers = [newParty(), newParty()] as const
  const host = await ExecutorHost.start(t, { scripts: HELLO, peers })
  for (const peer of peers) await host.befriend(peer)
  const network = await host.connect()
  const [first, second] = [await network.link(peers[0]), await network.link(peers[1])]
  const hello = [host.program('hello')]
  assert.equal(await (await second.ask(hello, { nonce: await first.nonce() })).denial(), 'unverified_sender')
  const dropped = await first.nonce()
  network.client.dropNonces(first.number, [dropped])
  assert.equal(await (await first.ask(hello, { nonce: dropped })).denial(), 'unverified_sender')
  const renewed = await network.link(peers[0])
  const kept = await first.nonce()
  network.client.linkClosed(first.number)
  assert.equal((await (await renewed.ask(hello, { nonce: kept })).exit()).code, 0)
  const lost = await renewed.nonce()
  network.client.linkClosed(renewed.number)
  const last = await network.link(peers[0])
  assert.equal(await (await last.ask(hello, { nonce: lost })).denial(), 'unverified_sender')
})

test('a request is refused if its agents, machines, signer or bytes do not match', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: HELLO })
  const hello = [host.program('hello')]
  const other = newParty()
  const wrong: Partial<ExecRequest>[] = [
    { to_agent: other.signer.agentId },
    { to_machine: other.machine.machineId },
    { from_agent: other.signer.agentId },
    { from_machine: other.machine.machineId },
  ]
  for (const fields of wrong) await denied(host, link, 'unverified_sender', hello, { fields })
  await denied(host, link, 'unverified_sender', hello, { signer: other.signer })
  const nonce = await link.nonce()
  const request = link.request(nonce, ['/bin/false', 'x'])
  const frame = await signedFrame(request, link.peer.signer)
  const decoded = execFrame.decode(frame)
  assert.ok(decoded.type === 'request')
  const body = Buffer.from(decoded.body)
  body[body.indexOf('/bin/false') + 1]! ^= 1
  const run = link.open(nonce, execFrame.encode({ ...decoded, body }), request)
  await run.closed
  const last = run.frames.at(-1)
  assert.equal(last?.type, 'exit')
  assert.equal(host.totals().sessions_started, 0)
})

test('a peer can use a request ID once, and another peer can use it as well', async (t) => {
  const peers = [newParty(), newParty()] as const
  const host = await ExecutorHost.start(t, { scripts: { waits: 'echo ready; cat', hello: 'echo hi' }, peers })
  for (const peer of peers) await host.befriend(peer)
  const network = await host.connect()
  const [first, second] = [await network.link(peers[0]), await network.link(peers[1])]
  const used = randomUUID()
  const stdin = Buffer.from('still here')
  const run = await first.ask([host.program('waits')], { stdin, fields: { request_id: used } })
  await run.frame('stdout')
  assert.equal(await (await first.ask([host.program('hello')], { fields: { request_id: used } })).denial(), 'request_id_used')
  assert.equal((await (await second.ask([host.program('hello')], { fields: { request_id: used } })).exit()).code, 0)
  run.send({ type: 'stdin', request_id: used, seq: 0, data: stdin, eof: true })
  assert.equal((await run.exit()).code, 0)
  assert.equal(run.output().toString(), 'ready\nstill here')
})

test('the ID of a run stays used after a restart, but the ID of a denied run does not', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: HELLO })
  const [ran, refused] = [randomUUID(), randomUUID()]
  assert.equal((await (await link.ask([host.program('hello')], { fields: { request_id: ran } })).exit()).code, 0)
  await (await link.ask(['no-such-thing'], { fields: { request_id: refused } })).denial()
  await host.stop()
  await host.boot()
  const again = await (await host.connect()).link(link.peer)
  assert.equal(await (await again.ask([host.program('hello')], { fields: { request_id: ran } })).denial(), 'request_id_used')
  assert.equal((await (await again.ask([host.program('hello')], { fields: { request_id: refused } })).exit()).code, 0)
  assert.deepEqual(await host.events(ran), ['request', 'started', 'exit', 'denial'])
})

test('bytes that are not a request are dropped and counted, and the stream is closed', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: HELLO })
  const nonce = await link.nonce()
  const request = link.request(nonce, ['x'])
  const frames = [
    Buffer.from('nonsense'),
    execFrame.encode({ type: 'lease_renew', request_id: request.request_id }),
    execFrame.encode({ type: 'request', body: Buffer.from('nonsense'), signature: new Uint8Array(3309) }),
  ]
  for (const frame of frames) {
    const run = link.open(nonce, frame, request)
    await run.closed
    assert.deepEqual(run.frames, [])
  }
  assert.equal(host.totals().malformed_frames, frames.length)
})

test('an audit log that fails during a run does not delay its result', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: 'echo ready; cat; exit 6' } })
  const stdin = Buffer.from('x')
  const run = await link.ask([host.program('waits')], { stdin })
  await run.frame('stdout')
  const directory = dirname(host.journalPath)
  await rename(directory, `${directory}.away`)
  await writeFile(directory, 'a file where the directory was')
  run.send({ type: 'stdin', request_id: run.id, seq: 0, data: stdin, eof: true })
  assert.equal((await run.exit()).code, 6)
  assert.ok(host.totals().audit_write_failures >= 1)
  await rm(directory)
  await rename(`${directory}.away`, directory)
})
