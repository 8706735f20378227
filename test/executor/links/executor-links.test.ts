import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import { randomBytes } from '../../../src/identity/hash.ts'
import { initiatorTranscript, responderTranscript } from '../../../src/identity/link-crypto.ts'
import {
  KEM_CIPHERTEXT_BYTES,
  KEM_PUBLIC_KEY_BYTES,
  LINK_HANDSHAKE_MS,
  LINK_VERSION,
  NONCE_BYTES,
} from '../../../src/protocol/limits/wire.ts'
import { LINK_DOMAINS, linkM1, linkM2, linkM2Core, linkM3, type LinkM1, type LinkM2Core } from '../../../src/protocol/wire/link.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import { newParty, type FakeNetwork, type Party } from '../../support/fake-network.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { MAX_HANDSHAKES, MAX_LINKS_PER_AGENT } from '../../../src/executor/links/executor-links.ts'

const rejected = (error: unknown): boolean => isAppError(error, 'peer_rejected')
const flipped = (bytes: Uint8Array): Uint8Array => bytes.map((byte, index) => (index === 7 ? byte ^ 1 : byte))

const setUp = async (t: TestContext): Promise<{ host: ExecutorHost; network: FakeNetwork; peer: Party }> => {
  const host = await ExecutorHost.start(t)
  return { host, network: await host.connect(), peer: newParty() }
}

const m1Of = (peer: Party, fields: Partial<LinkM1> = {}): Uint8Array =>
  linkM1.encode({
    versions: [LINK_VERSION],
    agent_public_key: peer.signer.publicKey,
    kem_public_key: randomBytes(KEM_PUBLIC_KEY_BYTES),
    nonce: randomBytes(NONCE_BYTES),
    ...fields,
  })

interface Tricks {
  /** The machine that the network process names when M1 arrives. */
  machine?: string
  agentSignature?: (right: Uint8Array, executors: Uint8Array) => Uint8Array
  machineSignature?: (right: Uint8Array) => Uint8Array
  /** The bytes that the initiator signs in place of M1. */
  signedM1?: (m1: Uint8Array) => Uint8Array
  m2?: (m2: Uint8Array) => Uint8Array
}

/** A peer starts a link. Returns the answer of link_finish. */
const begin = async (network: FakeNetwork, peer: Party, tricks: Tricks = {}): Promise<unknown> => {
  const machine = tricks.machine ?? peer.machine.machineId
  const m1 = m1Of(peer)
  const { handle, m2_core, agent_signature } = await network.client.linkAccept({
    peer_machine: machine,
    m1,
    kem_ciphertext: randomBytes(KEM_CIPHERTEXT_BYTES),
  })
  const rightM2 = linkM2.encode({ core: m2_core, agent_signature, machine_signature: new Uint8Array(64), mac: new Uint8Array(32) })
  const m2 = tricks.m2?.(rightM2) ?? rightM2
  const machines = { machine_initiator: machine, machine_responder: network.client.identity.machineId }
  const transcript = initiatorTranscript(machines, tricks.signedM1?.(m1) ?? m1, m2)
  const agent = await peer.signer.sign(LINK_DOMAINS.initiator_agent, transcript)
  const machineSignature = peer.machine.sign(LINK_DOMAINS.initiator_machine, transcript)
  const m3 = linkM3.encode({
    agent_signature: tricks.agentSignature?.(agent, agent_signature) ?? agent,
    machine_signature: tricks.machineSignature?.(machineSignature) ?? machineSignature,
    mac: new Uint8Array(32),
  })
  return network.client.linkFinish({ handle, m2, m3 })
}

test('a link can be started by the peer or by this daemon', async (t) => {
  const { host, network, peer } = await setUp(t)
  const first = await network.link(peer)
  const second = await network.linkOut(peer)
  assert.notEqual(first.number, second.number)
  assert.deepEqual([first.decision, second.decision], ['unknown', 'unknown'])
  await host.befriend(peer)
  assert.equal((await network.link(peer)).decision, 'accept')
})

test('a link is refused if the initiator gives a false machine, signature, message or role', async (t) => {
  const { network, peer } = await setUp(t)
  const other = newParty()
  const tricks: Tricks[] = [
    { machine: other.machine.machineId },
    { agentSignature: flipped },
    { machineSignature: flipped },
    { agentSignature: (_right, executors) => executors },
    { signedM1: flipped },
    { m2: (m2) => linkM2.encode({ ...linkM2.decode(m2), core: flipped(linkM2.decode(m2).core) }) },
  ]
  for (const trick of tricks) await assert.rejects(begin(network, peer, trick), rejected)
  await begin(network, peer)
})

test('a link is refused if the responder gives a false machine, signature, message or role', async (t) => {
  const { network, peer } = await setUp(t)
  const { machineId: machine_initiator } = network.client.identity
  const answer = async (change: {
    machine?: string
    core?: Partial<LinkM2Core>
    signedM1?: (m1: Uint8Array) => Uint8Array
    agentDomain?: string
    machineSigner?: Party
    agentSigner?: Party
  }): Promise<unknown> => {
    const machine = change.machine ?? peer.machine.machineId
    const { handle, m1 } = await network.client.linkOpen({ peer_machine: machine, kem_public_key: randomBytes(KEM_PUBLIC_KEY_BYTES) })
    const core = linkM2Core.encode({
      versions: [LINK_VERSION],
      agent_public_key: peer.signer.publicKey,
      kem_ciphertext: randomBytes(KEM_CIPHERTEXT_BYTES),
      nonce: randomBytes(NONCE_BYTES),
      ...change.core,
    })
    const transcript = responderTranscript({ machine_initiator, machine_responder: machine }, change.signedM1?.(m1) ?? m1, core)
    const m2 = linkM2.encode({
      core,
      agent_signature: await (change.agentSigner ?? peer).signer.sign(change.agentDomain ?? LINK_DOMAINS.responder_agent, transcript),
      machine_signature: (change.machineSigner ?? peer).machine.sign(LINK_DOMAINS.responder_machine, transcript),
      mac: new Uint8Array(32),
    })
    return network.client.linkConfirm({ handle, m2 })
  }
  const other = newParty()
  for (const change of [
    { machine: other.machine.machineId },
    { machineSigner: other },
    { agentSigner: other },
    { core: { agent_public_key: other.signer.publicKey } },
    { signedM1: flipped },
    { agentDomain: LINK_DOMAINS.initiator_agent },
  ])
    await assert.rejects(answer(change), rejected)
  await assert.rejects(answer({ core: { versions: [LINK_VERSION - 1] } }), (error) => isAppError(error, 'upgrade'))
  await answer({})
})

test('a handshake with the machine ID of this daemon or without a valid first message is refused', async (t) => {
  const { host, network, peer } = await setUp(t)
  const kem_ciphertext = randomBytes(KEM_CIPHERTEXT_BYTES)
  const peer_machine = peer.machine.machineId
  await assert.rejects(network.client.linkAccept({ peer_machine: host.own.machine.machineId, m1: m1Of(peer), kem_ciphertext }), rejected)
  await assert.rejects(network.client.linkAccept({ peer_machine, m1: Buffer.from('no'), kem_ciphertext }), (error) =>
    isAppError(error, 'malformed'),
  )
})

test('a handshake has one attempt, in its own role', async (t) => {
  const { network, peer } = await setUp(t)
  const conflict = (error: unknown): boolean => isAppError(error, 'conflict')
  const { handle } = await network.client.linkOpen({
    peer_machine: peer.machine.machineId,
    kem_public_key: randomBytes(KEM_PUBLIC_KEY_BYTES),
  })
  const some = Buffer.from('x')
  await assert.rejects(network.client.linkFinish({ handle, m2: some, m3: some }), conflict)
  await assert.rejects(network.client.linkConfirm({ handle, m2: some }), (error) => isAppError(error, 'malformed'))
  await assert.rejects(network.client.linkConfirm({ handle, m2: some }), conflict)
  const second = await network.client.linkOpen({
    peer_machine: peer.machine.machineId,
    kem_public_key: randomBytes(KEM_PUBLIC_KEY_BYTES),
  })
  network.client.linkDropped(second.handle)
  await assert.rejects(network.client.linkConfirm({ handle: second.handle, m2: some }), conflict)
})

test('handshakes are limited, and expired ones make room', async (t) => {
  const clock = new ManualClock()
  const host = await ExecutorHost.start(t, { clock })
  const network = await host.connect()
  const open = async (): Promise<unknown> =>
    network.client.linkOpen({ peer_machine: newParty().machine.machineId, kem_public_key: new Uint8Array(KEM_PUBLIC_KEY_BYTES) })
  for (let i = 0; i < MAX_HANDSHAKES; i++) await open()
  await assert.rejects(open(), (error) => isAppError(error, 'rate_limited'))
  await clock.advance(LINK_HANDSHAKE_MS)
  await open()
})

test('a trust change is reported at once, after the affected runs were ended', async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t, { scripts: { waits: 'echo ready; exec sleep 60' } })
  const other = await network.link(newParty())
  const run = await link.ask([host.program('waits')])
  await run.frame('stdout')
  const told = Promise.withResolvers<void>()
  network.client.onSnapshot(() => told.resolve())
  await host.contacts.setTrust(host.contacts.list()[0]!.name, 'blocked')
  await told.promise
  assert.deepEqual(network.decisions, [{ link: link.number, decision: 'reject_blocked' }])
  assert.ok(network.decisions.every((decision) => decision.link !== other.number))
  const exit = await run.exit()
  assert.deepEqual([exit.code, exit.denial_reason], [null, null])
  assert.deepEqual(run.warnings(), ['access_revoked'])
  assert.equal(await (await link.ask([host.program('waits')])).denial(), 'trust_rejected')
})

test('the removal of the last pin of a trusted contact ends its runs', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { waits: 'echo ready; exec sleep 60' } })
  const run = await link.ask([host.program('waits')])
  await run.frame('stdout')
  await host.contacts.unpin(host.contacts.list()[0]!.name, link.peer.machine.machineId)
  await run.exit()
  assert.deepEqual(run.warnings(), ['access_revoked'])
})

test('links of one agent are limited over all its machines and leave room for other agents', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const { signer } = newParty()
  const machines = Array.from({ length: 3 }, () => ({ ...newParty(), signer }))
  for (let i = 0; i < MAX_LINKS_PER_AGENT; i++) await network.link(machines[i % 3]!)
  await assert.rejects(network.link(machines[0]!), (error) => isAppError(error, 'rate_limited'))
  await network.link(newParty())
})
