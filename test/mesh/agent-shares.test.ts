import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { signCard, verifyCard } from '../../src/identity/card.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { MAX_CONNECTIONS_PER_MACHINE, MAX_CONNECTIONS_PER_UNLISTED } from '../../src/mesh/gater.ts'
import { CARD_DOMAIN } from '../../src/protocol/wire/card.ts'
import { MAX_CONNECTIONS_PER_AGENT, MAX_MACHINES_PER_AGENT } from '../../src/protocol/limits/mesh.ts'
import { signalOf } from '../support/hostile-link.ts'
import { LinkedMachine } from '../support/linked-machine.ts'
import { introduce, startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

type AgentSigner = ReturnType<typeof agentSignerOf>

const LIMIT = { timeout: 120_000 }

/** Bob has alice as a trusted and pinned contact, and hugo as a `known` contact without pins. */
const setUp = async (t: TestContext, init: { connections?: number } = {}): Promise<{ alice: Peer; bob: Peer; hugo: AgentSigner }> => {
  const [alice, bob] = [await startPeer(t, { name: 'alice', passive: true }), await startPeer(t, { name: 'bob', passive: true, ...init })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted', true)
  const hugo = agentSignerOf(randomBytes(32))
  await befriend(bob, hugo)
  return { alice, bob, hugo }
}

const befriend = async (bob: Peer, signer: AgentSigner): Promise<void> => {
  const now = Date.now()
  const body = {
    version: 1 as const,
    agent_public_key: signer.publicKey,
    machine_id: machineKeyOf(randomBytes(32)).machineId,
    name: 'hugo',
    addresses: [],
    issued_at_ms: now,
    expires_at_ms: now + 60_000,
  }
  await bob.contacts.importCard(verifyCard(await signCard(signer, body, CARD_DOMAIN), CARD_DOMAIN, now), { trust: 'known' })
  await until(() => bob.executorClient.snapshot.contacts.some((one) => one.agent_id === signer.agentId))
}

test('an agent with one machine above its share loses its oldest machine, and other agents keep theirs', LIMIT, async (t) => {
  const { alice, bob, hugo } = await setUp(t)
  await alice.links.link(bob.agentId, signalOf())
  const machines: LinkedMachine[] = []
  for (let i = 0; i <= MAX_MACHINES_PER_AGENT; i++) {
    const machine = await LinkedMachine.start(t, hugo)
    machines.push(machine)
    await machine.link(await machine.connect(bob), bob)
    await until(() => bob.links.list().some((one) => one.machine_id === machine.key.machineId))
  }
  await until(() => bob.node.connectionsTo(machines[0]!.key.machineId).length === 0)
  assert.ok(machines.slice(1).every(({ key }) => bob.node.connectionsTo(key.machineId).length === 1))
  assert.equal(bob.node.refusals().refused.agent_full, 1)
  assert.equal(bob.links.isLinked(alice.agentId), true)
})

test('the connections of an agent are limited over all its machines, even after a machine ends its links', LIMIT, async (t) => {
  const { alice, bob, hugo } = await setUp(t)
  const linked = await LinkedMachine.start(t, hugo)
  const machines = [linked, await LinkedMachine.start(t, hugo), await LinkedMachine.start(t, hugo)]
  const count = (): number => machines.reduce((sum, { key }) => sum + bob.node.connectionsTo(key.machineId).length, 0)
  for (const machine of machines) {
    const first = await machine.connect(bob)
    await machine.link(first, bob)
    await until(() => bob.links.list().some((one) => one.machine_id === machine.key.machineId))
    for (let i = 1; i < MAX_CONNECTIONS_PER_MACHINE - 2; i++) await machine.connect(bob)
    // Without its link, the machine is unlisted again, but its connections still count for the agent.
    first.abort(new Error('only the link was of use'))
    await until(() => !bob.links.list().some((one) => one.machine_id === machine.key.machineId))
  }
  for (let i = 0; i < 3; i++) await linked.connect(bob)
  await until(() => count() === MAX_CONNECTIONS_PER_AGENT)
  assert.equal(bob.node.connectionsTo(linked.key.machineId).length, MAX_CONNECTIONS_PER_AGENT - 2 * (MAX_CONNECTIONS_PER_MACHINE - 3))
  assert.ok(bob.node.refusals().refused.agent_full > 0)
  assert.equal((await alice.links.link(bob.agentId, signalOf())).agentId, bob.agentId)
})

test('a machine of class accepted holds few connections until it has proven its agent', LIMIT, async (t) => {
  const { bob, hugo } = await setUp(t)
  const machine = await LinkedMachine.start(t, hugo)
  const { classOf: standing } = bob.node
  bob.node.classOf = (machineId) => (machineId === machine.key.machineId ? 'accepted' : standing(machineId))
  for (let i = 0; i < 3 * MAX_CONNECTIONS_PER_UNLISTED; i++) await machine.connect(bob).catch(() => undefined)
  await until(() => bob.node.connectionsTo(machine.key.machineId).length === MAX_CONNECTIONS_PER_UNLISTED)
})

test('when all places are taken, a pinned machine takes one from the agent with the most connections', LIMIT, async (t) => {
  const connections = 24
  const { alice, bob, hugo } = await setUp(t, { connections })
  const other = agentSignerOf(randomBytes(32))
  await befriend(bob, other)
  const [many, few] = [await LinkedMachine.start(t, hugo), await LinkedMachine.start(t, other)]
  const count = ({ key }: LinkedMachine): number => bob.node.connectionsTo(key.machineId).length
  for (const [machine, all] of [
    [few, 8],
    [many, connections - 8],
  ] as const) {
    await machine.link(await machine.connect(bob), bob)
    await until(() => bob.links.list().some((one) => one.machine_id === machine.key.machineId))
    for (let i = 1; i < all; i++) await machine.connect(bob)
  }
  await until(() => count(many) + count(few) === connections)
  await alice.links.link(bob.agentId, signalOf())
  await until(() => count(many) === connections - 9)
  assert.equal(count(few), 8)
  assert.equal(bob.node.refusals().refused.all_full, 1)
  // The agent with the most connections gets no place, and the others keep theirs.
  await many
    .connect(bob)
    .then(async (one) => until(() => one.status !== 'open'))
    .catch(() => undefined)
  assert.deepEqual([count(many), count(few)], [connections - 9, 8])
  assert.equal(bob.links.isLinked(alice.agentId), true)
})
