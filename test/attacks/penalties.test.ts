import assert from 'node:assert/strict'
import { test } from 'node:test'

import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { randomBytes } from '../../src/identity/hash.ts'
import { DENIAL_BURST, LINK_VERSION } from '../../src/protocol/limits/wire.ts'
import { linkM1 } from '../../src/protocol/wire/link.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { execPair } from '../support/exec-pair.ts'
import { newParty } from '../support/fake-network.ts'
import { connect, flip, handshake, signalOf } from '../support/hostile-link.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { introduce, startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { PENALTY_MS, MIN_PENALTY_MS } from '../../src/mesh/penalties.ts'

const LIMIT = { timeout: 60_000 }

test('repeated wrong signatures block all unlisted peers of a host, but not its known peers', LIMIT, async (t) => {
  const [bob, mallory, eve, alice] = [
    await startPeer(t, { name: 'bob' }),
    await startPeer(t, { name: 'mallory' }),
    await startPeer(t, { name: 'eve' }),
    await startPeer(t, { name: 'alice' }),
  ]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  await connect(eve, bob)
  const forged = { machineKey: { ...machineKeyOf(randomBytes(32)), machineId: mallory.machineId } }
  for (let i = 0; i < MIN_PENALTY_MS / PENALTY_MS.bad_signature; i++) {
    const failed = bob.counters.get('links_failed')
    // Mallory sees no failure. Bob detects that the signature of the machine is wrong.
    await handshake(mallory, bob, {}, forged)
    await until(() => bob.counters.get('links_failed') > failed)
  }
  await until(() => bob.node.unlistedConnections() === 0)
  assert.equal(bob.node.refusals().penalties[0]?.refused, true)
  await until(() => eve.node.connections().length === 0)
  await assert.rejects(async () => eve.links.link(bob.agentId, signalOf()))
  assert.equal((await alice.links.link(bob.agentId, signalOf())).agentId, bob.agentId)
})

test('a peer that is refused after its handshake dials less often, and its diagnostics show the reason', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const dave = await startPeer(t, { name: 'dave', bootstrap: bob.node.addresses() })
  await until(() => bob.node.connections().length === 1)
  const [connection] = bob.node.connections()
  while (!bob.node.refuses(connection!)) bob.node.penalise(connection!, 'bad_signature')
  await until(() => (dave.reconnect.status()[0]?.failures ?? 0) >= 3)
  assert.match(dave.reconnect.status()[0]?.last_error ?? '', /^connected, and after \d+ ms (lost|ended by the other machine)/)
})

test('a known machine that misbehaves is refused alone, without its host', LIMIT, async (t) => {
  const [bob, mallory, alice] = [
    await startPeer(t, { name: 'bob' }),
    await startPeer(t, { name: 'mallory' }),
    await startPeer(t, { name: 'alice' }),
  ]
  for (const friend of [mallory, alice]) {
    await introduce(friend, bob, 'trusted')
    await introduce(bob, friend, 'trusted')
  }
  // Until his network process knows her machine, violations count against her host.
  await until(() => bob.node.isKnown(mallory.machineId))
  const isRefused = (): boolean => bob.node.refusals().penalties.some(({ refused }) => refused)
  while (!isRefused()) {
    const failed = bob.counters.get('links_failed')
    await handshake(mallory, bob, { sent: (frame) => flip(frame) }).catch(() => undefined)
    await until(() => bob.counters.get('links_failed') > failed || isRefused())
  }
  // On a busy machine a connection may be closed before it is complete. That counts against the host but does not block it.
  assert.deepEqual(
    bob.node.refusals().penalties.flatMap(({ source, refused }) => (refused ? [source] : [])),
    [mallory.machineId],
  )
  // Bob may dial his contact, but he answers none of her handshakes.
  const opened = bob.counters.get('links_opened')
  await assert.rejects(async () => handshake(mallory, bob))
  assert.equal(bob.counters.get('links_opened'), opened)
  assert.equal((await alice.links.link(bob.agentId, signalOf())).agentId, bob.agentId)
})

test('a peer of another version that repeats its handshake is refused if unlisted, never if known', LIMIT, async (t) => {
  const [bob, dave, mallory] = [
    await startPeer(t, { name: 'bob' }),
    await startPeer(t, { name: 'dave' }),
    await startPeer(t, { name: 'mallory' }),
  ]
  await introduce(dave, bob, 'trusted')
  await introduce(bob, dave, 'trusted')
  const ask = async (peer: Peer): Promise<void> => {
    const failed = bob.counters.get('links_failed')
    const sent = (frame: Uint8Array, at: number): Uint8Array =>
      at === 0 ? linkM1.encode({ ...linkM1.decode(frame), versions: [LINK_VERSION - 1] }) : frame
    await assert.rejects(handshake(peer, bob, { sent }))
    await until(() => bob.counters.get('links_failed') > failed)
  }
  const refused = (): string[] => bob.node.refusals().penalties.flatMap((one) => (one.refused ? [one.source] : []))
  for (let n = 0; n < 2 * (MIN_PENALTY_MS / PENALTY_MS.handshake_failed); n++) await ask(dave)
  assert.deepEqual(
    bob.node.refusals().penalties.filter(({ offence }) => offence !== 'unfinished'),
    [],
  )
  // Violations while bob's event loop is late are forgiven.
  for (let n = 0; n < 30 && refused().length === 0; n++) await ask(mallory)
  assert.deepEqual(refused(), ['127.0.0.1'])
  assert.equal((await dave.links.link(bob.agentId, signalOf())).agentId, bob.agentId)
})

test('a denial counts as a violation only if the trust rules do not accept the agent', LIMIT, async (t) => {
  const pair = await execPair(t, {})
  const sink = { event: () => undefined }
  const spec = {
    agent_id: pair.responder.own.signer.agentId,
    argv: ['/not/allowed'],
    stdin: null,
    timeout_ms: null,
    cwd: null,
    clamp: false,
  }
  assert.equal((await pair.runner.run(spec, sink)).denial_reason, 'argv_not_allowed')
  assert.equal(pair.unlistedDenied.length, 0)
  await pair.responder.contacts.setTrust(pair.requester.own.signer.agentId, 'unknown')
  assert.equal((await pair.runner.run(spec, sink)).denial_reason, 'trust_rejected')
  assert.deepEqual(
    pair.unlistedDenied.map(({ agentId }) => agentId),
    [pair.requester.own.signer.agentId],
  )
})

test('denials of an accepted agent are not violations, however many there are', LIMIT, async (t) => {
  const [bob, alice] = [await startPeer(t, { name: 'bob' }), await startPeer(t, { name: 'alice' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  await alice.links.link(bob.agentId, signalOf())
  const link = await bob.links.link(alice.agentId, signalOf())
  const offend = (): void => bob.links.penalise(link, 'denied')
  for (let count = 0; count < MIN_PENALTY_MS / PENALTY_MS.denied; count++) offend()
  // On a slow machine a connection between the two may be closed while it opens, which is another violation.
  const denials = (): number => bob.node.refusals().penalties.filter(({ offence }) => offence === 'denied').length
  assert.equal(denials(), 0)
  await bob.contacts.setTrust(alice.agentId, 'unknown')
  await until(() => link.decision !== 'accept')
  offend()
  assert.equal(denials(), 1)
})

test('an accepted agent with endless denials gets no more answers, and other agents still do', LIMIT, async (t) => {
  const peers = [newParty(), newParty()] as const
  const host = await ExecutorHost.start(t, { peers, clock: new ManualClock() })
  for (const peer of peers) await host.befriend(peer)
  const network = await host.connect()
  let answered = 0
  for (let sent = 0; sent < DENIAL_BURST + 128; sent += 64) {
    // Uses a new link each time, because the limit applies to the agent.
    const link = await network.link(peers[0])
    const asked = await Promise.all(Array.from({ length: 64 }, () => link.ask(['/not/allowed'])))
    await Promise.all(asked.map((one) => one.closed))
    answered += asked.filter((one) => one.frames.length > 0).length
  }
  assert.equal(answered, DENIAL_BURST)
  assert.equal(host.totals().requests_ignored, 128)
  assert.equal(await (await (await network.link(peers[1])).ask(['/not/allowed'])).denial(), 'argv_not_allowed')
})
