import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { decodeOperatorKey, OPERATOR_KEY_FILE, proveOperation } from '../../src/identity/operator-proof.ts'
import type { MachineId } from '../../src/protocol/ids.ts'
import { signRevocation } from '../../src/trust/revocations.ts'
import { newParty } from '../support/fake-network.ts'
import { handshake, signalOf } from '../support/hostile-link.ts'
import { introduce, startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'

const LIMIT = { timeout: 60_000 }

/** Revokes a machine of this agent with an operator proof, and returns its ID. */
const revokeMachine = async ({ dataDir, executorClient }: Peer): Promise<MachineId> => {
  const { machineId } = newParty().machine
  const key = decodeOperatorKey(await readFile(join(dataDir, OPERATOR_KEY_FILE), 'latin1'))
  assert.ok(key)
  const body = Buffer.from(JSON.stringify({ machine_id: machineId }))
  await executorClient.operate('identity_revoke', body, proveOperation(key, 'identity_revoke', body, Date.now()))
  return machineId
}

const links = (peer: Peer): number => peer.counters.get('links_opened')

const knows = async (peer: Peer, { agentId }: Peer, machine: MachineId): Promise<void> =>
  until(() => peer.revocations.isRevoked(agentId, machine))

/** Waits until the executor has processed this number of revocation lists. */
const heard = async (peer: Peer, lists: number): Promise<void> => {
  await until(() => peer.counters.get('revocations_received') === lists)
  await peer.executorClient.query('acl_status')
}

/** Alice trusts bob, who has not listed her. She has sent him a revocation of one of her machines. */
const linked = async (t: TestContext): Promise<{ alice: Peer; bob: Peer; machine: MachineId }> => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  const machine = await revokeMachine(alice)
  await alice.links.link(bob.agentId, signalOf())
  await heard(bob, 1)
  assert.equal(bob.revocations.isRevoked(alice.agentId, machine), false)
  return { alice, bob, machine }
}

test('an agent that becomes a contact during an open link sends its revocations again', LIMIT, async (t) => {
  const { alice, bob, machine } = await linked(t)
  await introduce(bob, alice, 'known')
  await knows(bob, alice, machine)
  assert.equal(links(bob), 2)
  // At a higher trust level they are not sent again.
  await bob.contacts.setTrust(alice.agentId, 'trusted')
  await until(() => bob.links.list().every(({ decision }) => decision === 'accept'))
  assert.equal(links(bob), 2)
})

test('for a new contact with several open links, one more link is opened for its revocations', LIMIT, async (t) => {
  const { alice, bob, machine } = await linked(t)
  await handshake(alice, bob)
  await until(() => links(bob) === 2)
  await introduce(bob, alice, 'trusted')
  await knows(bob, alice, machine)
  await until(() => bob.links.list().every(({ decision }) => decision === 'accept'))
  assert.deepEqual([links(bob), bob.links.list().length], [3, 3])
})

test('if the connection accepts no further link, revocations of a new contact come over a new connection', LIMIT, async (t) => {
  const { alice, bob, machine } = await linked(t)
  for (const one of [alice, bob]) one.reconnect.stop()
  alice.node.refuses = () => true
  await introduce(bob, alice, 'trusted')
  await until(() => bob.links.list().length === 0 && alice.links.list().length === 0)
  assert.equal(bob.revocations.isRevoked(alice.agentId, machine), false)
  alice.node.refuses = () => false
  await alice.links.link(bob.agentId, signalOf())
  await knows(bob, alice, machine)
})

test('an agent that becomes a contact during an open link receives revocations of other agents', LIMIT, async (t) => {
  const { alice, bob } = await linked(t)
  const { signer, machine } = newParty()
  const { agentId, publicKey } = signer
  await bob.revocations.add(await signRevocation(signer, null, Date.now()), () => true)
  const card = { agentId, machineId: machine.machineId, name: '', addresses: [], issuedAt: 1, expiresAt: Date.now() + 60_000, publicKey }
  await alice.contacts.importCard(card)
  await introduce(bob, alice, 'known')
  await until(() => alice.revocations.of(agentId).revoked)
})

test('revocations that could not be delivered are sent over another connection', LIMIT, async (t) => {
  const [alice, bob] = [await startPeer(t, { name: 'alice' }), await startPeer(t, { name: 'bob' })]
  await introduce(alice, bob, 'trusted')
  await introduce(bob, alice, 'trusted')
  const machine = await revokeMachine(alice)
  const mint = bob.executorClient.mintNonces.bind(bob.executorClient)
  bob.executorClient.mintNonces = async (...args) => {
    // Without nonces, no stream of the first link is greeted.
    if (links(bob) === 1) throw new Error('not now')
    return mint(...args)
  }
  await alice.links.link(bob.agentId, signalOf())
  await until(() => alice.links.list().length === 0)
  await alice.links.link(bob.agentId, signalOf())
  await knows(bob, alice, machine)
})
