import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { FrameStream } from '../../src/links/frame-stream.ts'
import { OpenLink } from '../../src/links/link.ts'
import type { MeshConnection } from '../../src/mesh/connection.ts'
import { EXEC_PREFIX } from '../../src/protocol/wire/exec.ts'
import { LINK_RENEW_MS, MAX_LINK_FRAME, MAX_WAITING_STREAMS } from '../../src/protocol/limits/wire.ts'
import { DM_PROTOCOL, LINK_PROTOCOL, streamOpen } from '../../src/protocol/wire/link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { newRequestId } from '../../src/identity/request-id.ts'
import type { DmChannel } from '../../src/links/channel.ts'
import { introduce, startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { connect, signalOf } from '../support/hostile-link.ts'
import { MAX_UNLISTED_HANDSHAKES_PER_ADDRESS } from '../../src/links/responder.ts'
import { SPARE_STREAMS } from '../../src/links/stream-pool.ts'

const LIMIT = { timeout: 60_000 }

const pair = async (t: Parameters<typeof startPeer>[0]): Promise<[Peer, Peer]> => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  return [alice, bob]
}

/** Bob echoes every exec body. Returns the list of channels that bob accepted. */
const echo = (bob: Peer): DmChannel[] => {
  const channels: DmChannel[] = []
  bob.dispatcher.route(EXEC_PREFIX, (channel, requestId, body) => {
    if (!channels.includes(channel)) channels.push(channel)
    channel.send(requestId, body)
  })
  return channels
}

const ask = async (channel: DmChannel, text: string): Promise<string> => {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  channel.onBody = (_id, body) => resolve(Buffer.from(body.subarray(EXEC_PREFIX.length)).toString())
  channel.onClosed = (error) => reject(error ?? new Error('closed'))
  channel.send(newRequestId(), Buffer.concat([EXEC_PREFIX, Buffer.from(text)]))
  return promise
}

test('the first channel uses the handshake stream, and later channels use greeted spare streams', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  const channels = echo(bob)
  const first = await alice.links.openChannel(bob.agentId, signalOf())
  assert.equal(alice.counters.get('streams_opened'), 0)
  assert.equal(await ask(first, 'one'), 'one')
  await until(() => alice.counters.get('streams_opened') === SPARE_STREAMS)
  const second = await alice.links.openChannel(bob.agentId, signalOf())
  assert.equal(await ask(second, 'two'), 'two')
  assert.equal(alice.counters.get('links_opened'), 1)
  assert.equal(bob.counters.get('streams_accepted'), 1)
  for (const [ours, theirs] of [
    [first, channels[0]],
    [second, channels[1]],
  ] as const) {
    assert.deepEqual(Buffer.from(ours.streamNonce), Buffer.from(theirs!.streamNonce))
    assert.equal(theirs!.link.agentId, alice.agentId)
    assert.equal(theirs!.link.machineId, alice.machineId)
  }
  assert.notDeepEqual(first.streamNonce, second.streamNonce)
})

test('a channel on a spare stream opens without waiting for the peer', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  echo(bob)
  await alice.links.link(bob.agentId, signalOf())
  await until(() => alice.counters.get('streams_opened') === SPARE_STREAMS)
  // All promises are settled already, so taking a channel needs no turn of the event loop.
  let turned = false
  setImmediate(() => (turned = true))
  for (let i = 0; i <= SPARE_STREAMS; i++) await alice.links.openChannel(bob.agentId, signalOf())
  assert.equal(turned, false)
})

test('a channel in use does not count as a spare stream', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  echo(bob)
  await alice.links.link(bob.agentId, signalOf())
  await until(() => alice.counters.get('streams_opened') === SPARE_STREAMS)
  // The first channel uses the handshake stream.
  const taken = [await alice.links.openChannel(bob.agentId, signalOf()), await alice.links.openChannel(bob.agentId, signalOf())]
  assert.equal(await ask(taken[1]!, 'long'), 'long')
  await until(() => alice.counters.get('streams_opened') === SPARE_STREAMS + 1)
  assert.ok(taken.every(({ closed }) => !closed))
})

test('the responder uses the same link for its own channels', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  echo(alice)
  await alice.links.link(bob.agentId, signalOf())
  await until(() => bob.links.linkedAgent(alice.machineId) === alice.agentId)
  assert.equal(await ask(await bob.links.openChannel(alice.agentId, signalOf()), 'back'), 'back')
  assert.equal(bob.counters.get('links_opened'), 1)
})

test('many callers at the same time share one handshake', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  echo(bob)
  const answers = await Promise.all(
    Array.from({ length: 100 }, async (_, i) => {
      const channel = await alice.links.openChannel(bob.agentId, signalOf())
      const answer = await ask(channel, String(i))
      void channel.close()
      return answer
    }),
  )
  assert.deepEqual(
    answers,
    Array.from({ length: 100 }, (_, i) => String(i)),
  )
  assert.equal(alice.counters.get('links_opened'), 1)
  await until(() => bob.links.list()[0]?.channels === 0 && alice.links.list()[0]?.channels === 0)
})

test('when bob blocks alice, her channels and links end at once', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  echo(bob)
  const channel = await alice.links.openChannel(bob.agentId, signalOf())
  await ask(channel, 'hello')
  const closed = new Promise<Error | null>((resolve) => (channel.onClosed = resolve))
  await bob.contacts.setTrust(alice.agentId, 'blocked')
  assert.ok((await closed) instanceof Error)
  await until(() => alice.links.list().length === 0 && bob.links.list().length === 0)
  assert.equal(bob.counters.get('links_rejected'), 1)
})

test('a channel to an agent that is blocked in the own contacts is refused', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  await alice.contacts.setTrust(bob.agentId, 'blocked')
  await assert.rejects(alice.links.openChannel(bob.agentId, signalOf()), (error) => {
    assert.ok(isAppError(error, 'peer_rejected'))
    // The error on this machine gives the reason.
    assert.match(error.message, /^agent \w{8} is blocked in your contacts \(reject_blocked\)$/)
    assert.equal(error.data['next'], `Try: x0x contacts trust ${bob.agentId} trusted`)
    return true
  })
  assert.deepEqual(alice.links.list(), [])
})

test('a peer that stopped and started again is linked again', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  echo(bob)
  await ask(await alice.links.openChannel(bob.agentId, signalOf()), 'one')
  const listen = bob.node.addresses()[0]!.replace(/\/p2p\/.*/, '')
  await bob.stop()
  await until(() => alice.links.list().length === 0)
  await assert.rejects(alice.links.openChannel(bob.agentId, signalOf()), (error) => {
    assert.ok(isAppError(error, 'peer_unreachable'))
    const [tried] = error.data['addresses'] as { address: string; error: string }[]
    assert.match(tried!.address, /^\/ip4\/127\.0\.0\.1\/tcp\/\d+\/p2p\//)
    assert.notEqual(tried!.error, '')
    return true
  })
  const again = await startPeer(t, { name: 'bob', dataDir: bob.dataDir, listen })
  echo(again)
  assert.equal(await ask(await alice.links.openChannel(bob.agentId, signalOf()), 'two'), 'two')
})

test('an agent without an address is unreachable, and a link to the own agent is a bad request', LIMIT, async (t) => {
  const alice = await startPeer(t, { name: 'alice' })
  await assert.rejects(alice.links.link('ab'.repeat(32), signalOf()), (error) => isAppError(error, 'peer_unreachable'))
  await assert.rejects(alice.links.link(alice.agentId, signalOf()), (error) => isAppError(error, 'bad_request'))
})

test('a caller that gives up does not end the handshake for other callers', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  const hasty = new AbortController()
  const given = alice.links.link(bob.agentId, hasty.signal)
  const patient = alice.links.link(bob.agentId, signalOf())
  hasty.abort(new Error('enough'))
  await assert.rejects(given, /enough/)
  assert.equal((await patient).agentId, bob.agentId)
})

test('unlisted machines with open handshakes do not keep a known machine out', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  const strangers = await Promise.all(
    Array.from({ length: MAX_UNLISTED_HANDSHAKES_PER_ADDRESS + 2 }, (_, i) => startPeer(t, { name: `s${i}` })),
  )
  const held = await Promise.all(
    strangers.map(async (stranger) => {
      const stream = await (await connect(stranger, bob)).openStream(LINK_PROTOCOL, signalOf())
      return new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    }),
  )
  await until(() => bob.counters.get('handshakes_refused') === 2)
  assert.equal((await alice.links.link(bob.agentId, signalOf())).agentId, bob.agentId)
  for (const frames of held) frames.abort(new Error('done'))
})

test('revocations are sent to the peer when a link opens', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  const { signRevocation } = await import('../../src/trust/revocations.ts')
  const statement = await signRevocation(bob.signer, 'cd'.repeat(32), Date.now())
  await bob.revocations.add(statement, () => true)
  await alice.links.link(bob.agentId, signalOf())
  await until(() => alice.counters.get('revocations_received') === 1 && alice.revocations.list().length === 1)
  assert.equal(alice.links.list().length, 1)
})

test('an old link is renewed by its opener, and ends with its last channel', LIMIT, async (t) => {
  const clock = new ManualClock()
  const [alice, bob] = [await startPeer(t, { name: 'alice', clock }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  echo(bob)
  const old = await alice.links.openChannel(bob.agentId, signalOf())
  assert.equal(await ask(old, 'before'), 'before')
  // The greetings of spare streams have a time limit on the same clock.
  await until(() => alice.counters.get('streams_opened') === SPARE_STREAMS)
  await clock.advance(LINK_RENEW_MS)
  await until(() => alice.counters.get('links_opened') === 2)
  assert.equal(alice.links.list().length, 2)
  assert.equal(await ask(old, 'still'), 'still')
  const fresh = await alice.links.openChannel(bob.agentId, signalOf())
  assert.equal(await ask(fresh, 'after'), 'after')
  assert.notEqual(fresh.link.number, old.link.number)
  await old.close()
  await until(() => alice.links.list().length === 1)
  assert.equal(await ask(await alice.links.openChannel(bob.agentId, signalOf()), 'on'), 'on')
})

/** The connection that carries the link. A stream on another connection would be refused. */
const linkConnection = async (from: Peer, to: Peer): Promise<MeshConnection> => {
  const link = await from.links.link(to.agentId, signalOf())
  assert.ok(link instanceof OpenLink)
  return link.connection
}

test('a stream that names an unknown link of its connection is refused', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  const connection = await linkConnection(alice, bob)
  const stream = await connection.openStream(DM_PROTOCOL, signalOf())
  const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
  await frames.read(signalOf())
  frames.send(streamOpen.encode({ link_id: new Uint8Array(8), nonce: new Uint8Array(32) }))
  await assert.rejects(frames.read(signalOf()))
  assert.equal(bob.counters.get('streams_refused'), 1)
})

test('a stream on a connection without a link gets no greeting', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  const stream = await (await connect(alice, bob)).openStream(DM_PROTOCOL, signalOf())
  const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
  await assert.rejects(frames.read(signalOf()))
  assert.equal(bob.counters.get('streams_refused'), 1)
})

test('unused incoming streams are limited, and the oldest make room', LIMIT, async (t) => {
  const [alice, bob] = await pair(t)
  echo(bob)
  const connection = await linkConnection(alice, bob)
  const idle: FrameStream[] = []
  for (let i = 0; i < MAX_WAITING_STREAMS + 4; i++) {
    const frames = new FrameStream(
      { stream: await connection.openStream(DM_PROTOCOL, signalOf()) },
      { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME },
    )
    await frames.read(signalOf())
    idle.push(frames)
  }
  await until(() => idle.filter((frames) => frames.open).length <= MAX_WAITING_STREAMS)
  assert.equal(idle.at(-1)!.open, true)
  assert.equal(await ask(await alice.links.openChannel(bob.agentId, signalOf()), 'fine'), 'fine')
  for (const frames of idle) frames.abort(new Error('done'))
})
