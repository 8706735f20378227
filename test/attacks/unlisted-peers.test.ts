import assert from 'node:assert/strict'
import { test } from 'node:test'

import { FrameStream } from '../../src/links/frame-stream.ts'
import { newRequestId } from '../../src/identity/request-id.ts'
import { MAX_LINK_FRAME, MAX_RUNS_PER_PEER, ALL_UNACCEPTED_REQUEST_BURST } from '../../src/protocol/limits/wire.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../../src/protocol/wire/link.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { newParty, signedFrame } from '../support/fake-network.ts'
import { connect, handshake, signalOf } from '../support/hostile-link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { introduce, startPeer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { MAX_REFUSED_ARGV } from '../../src/journal/refusals.ts'
import { UNACCEPTED_REQUEST_BURST } from '../../src/executor/links/executor-links.ts'
import { MAX_LINKS_PER_CONNECTION } from '../../src/links/link-table.ts'
import { MAX_UNACCEPTED_STREAMS } from '../../src/links/responder.ts'

const LIMIT = { timeout: 60_000 }

test('an unlisted peer with many links gets no more answers than all unlisted peers together', LIMIT, async (t) => {
  const host = await ExecutorHost.start(t, { clock: new ManualClock() })
  const network = await host.connect()
  const unlistedPeer = newParty()
  let answered = 0
  for (let link = 0; link < 6; link++) {
    const fresh = await network.link(unlistedPeer)
    const asked = await Promise.all(Array.from({ length: UNACCEPTED_REQUEST_BURST }, () => fresh.ask(['id'])))
    await Promise.all(asked.map((one) => one.closed))
    answered += asked.filter((one) => one.frames.length > 0).length
  }
  assert.ok(6 * UNACCEPTED_REQUEST_BURST > ALL_UNACCEPTED_REQUEST_BURST)
  assert.equal(answered, ALL_UNACCEPTED_REQUEST_BURST)
  assert.equal((await host.lines()).length, ALL_UNACCEPTED_REQUEST_BURST)
})

test('an unlisted peer cannot fill the audit log with a long argv, because it is cut', LIMIT, async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const link = await network.link(newParty())
  const asked = await link.ask(['id', '\u0001'.repeat(31_000)])
  assert.equal(await asked.denial(), 'trust_rejected')
  const many = await link.ask(Array.from({ length: 1_000 }, () => ''))
  assert.equal(await many.denial(), 'trust_rejected')
  const [line, other] = await host.lines()
  assert.equal(line?.event === 'denial' && line.argv[0], 'id')
  assert.ok(Buffer.byteLength(JSON.stringify(line)) < 6 * MAX_REFUSED_ARGV + 1_024)
  assert.ok(Buffer.byteLength(JSON.stringify(other)) < 6 * MAX_REFUSED_ARGV + 1_024)
})

test('a trusted agent that floods denied requests leaves capacity for others', LIMIT, async (t) => {
  const peers = [newParty(), newParty()] as const
  const host = await ExecutorHost.start(t, { peers })
  for (const peer of peers) await host.befriend(peer)
  const network = await host.connect()
  const [flood, other] = [await network.link(peers[0]), await network.link(peers[1])]
  const nonce = new Uint8Array(32)
  const prepared = await Promise.all(
    Array.from({ length: 2 * MAX_RUNS_PER_PEER }, async () => {
      const request = flood.request(nonce, ['/not/allowed'])
      return { request, frame: await signedFrame(request, flood.peer.signer) }
    }),
  )
  // All requests arrive before the first denial is on disk.
  const runs = prepared.map(({ request, frame }) => flood.open(nonce, frame, request))
  const served = await other.ask([host.program('hello')])
  assert.equal((await served.exit()).code, 0)
  await Promise.all(runs.map((one) => one.closed))
  assert.ok(host.totals().requests_ignored > 0)
})

test('repeated handshakes on one connection leave few links, and a contact can still connect', LIMIT, async (t) => {
  const [bob, mallory, alice] = [
    await startPeer(t, { name: 'bob' }),
    await startPeer(t, { name: 'mallory' }),
    await startPeer(t, { name: 'alice' }),
  ]
  for (let i = 0; i < 3 * MAX_LINKS_PER_CONNECTION; i++) {
    await handshake(mallory, bob)
    await until(() => bob.counters.get('links_opened') === i + 1)
  }
  assert.equal(bob.links.list().length, MAX_LINKS_PER_CONNECTION)
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  assert.equal((await alice.links.link(bob.agentId, signalOf())).agentId, bob.agentId)
  assert.equal(mallory.node.connectionsTo(bob.machineId).length, 1)
})

test('an unlisted peer holds few streams, whether it uses them or not', LIMIT, async (t) => {
  const [bob, mallory] = [await startPeer(t, { name: 'bob' }), await startPeer(t, { name: 'mallory' })]
  await introduce(mallory, bob, 'trusted')
  await mallory.links.link(bob.agentId, signalOf())
  const connection = await connect(mallory, bob)
  const idle: FrameStream[] = []
  for (let i = 0; i < 3 * MAX_UNACCEPTED_STREAMS; i++) {
    const frames = new FrameStream(
      { stream: await connection.openStream(DM_PROTOCOL, signalOf()) },
      { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME },
    )
    await frames.read(signalOf())
    idle.push(frames)
  }
  await until(() => idle.filter((frames) => frames.open).length <= MAX_UNACCEPTED_STREAMS)
  // A route that accepts messages and keeps the channel open.
  bob.dispatcher.route(Buffer.from('x0x-nobody-1'), () => undefined)
  for (let i = 0; i < 3 * MAX_UNACCEPTED_STREAMS; i++) {
    const channel = await mallory.links.openChannel(bob.agentId, signalOf()).catch(() => null)
    channel?.send(newRequestId(), Buffer.from('x0x-nobody-1'))
  }
  await until(() => bob.counters.get('streams_refused') > 0)
  assert.ok(bob.links.list().every((link) => link.channels <= MAX_UNACCEPTED_STREAMS))
  for (const frames of idle) frames.abort(new Error('done'))
})

test('a handshake stream that sends single bytes is ended and opens no link', LIMIT, async (t) => {
  const [bob, mallory] = [await startPeer(t, { name: 'bob' }), await startPeer(t, { name: 'mallory' })]
  const connection = await connect(mallory, bob)
  const stream = await connection.openStream(LINK_PROTOCOL, signalOf())
  const ended = Promise.withResolvers<void>()
  stream.onEnd = () => ended.resolve()
  stream.send(Buffer.from([0, 0, 0x3f, 0xff]))
  for (let i = 0; i < 2_000; i++) stream.send(Buffer.from([i & 0xff]))
  await ended.promise
  assert.equal(bob.links.list().length, 0)
})
