import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { succession, SUCCESSION_DOMAIN } from '../../src/protocol/wire/dm.ts'
import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { randomBytes } from '../../src/identity/hash.ts'
import type { AgentSigner } from '../../src/identity/signing.ts'
import { MAX_CARD_BYTES, MAX_FRAME_DATA, MAX_SUCCESSIONS } from '../../src/protocol/limits/wire.ts'
import { signRevocation } from '../../src/trust/revocations.ts'
import { signSuccession } from '../../src/trust/successions.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { newParty, type FakeLink, type FakeNetwork, type Party } from '../support/fake-network.ts'

// Alice is a trusted and pinned contact. Statements about her next key arrive over links of real executor processes.

const LIMIT = { timeout: 60_000 }
const newSigner = (): AgentSigner => agentSignerOf(randomBytes(32))
const on = ({ machine }: Party, signer: AgentSigner): Party => ({ signer, machine })
const said = async (from: AgentSigner, to: AgentSigner, { machine }: Party): Promise<Uint8Array> =>
  signSuccession(from, to, machine.machineId, Date.now())

interface Place {
  readonly host: ExecutorHost
  readonly network: FakeNetwork
  readonly alice: Party
  /** Sends statements over a link of this party. Returns the state of the contact that was alice. */
  tell(
    party: Party,
    ...items: readonly Uint8Array[]
  ): Promise<{ readonly agent_id: string; readonly formerly: readonly string[]; readonly link: FakeLink }>
  refusals(): Promise<string[]>
}

const place = async (t: TestContext): Promise<Place> => {
  const alice = newParty()
  const host = await ExecutorHost.start(t, { peers: [alice] })
  await host.befriend(alice, 'alice')
  const network = await host.connect()
  const tell = async (party: Party, ...items: readonly Uint8Array[]) => {
    const link = await network.link(party)
    await network.client.revocations(link.number, [...items])
    const { agent_id, formerly } = host.contacts.find('alice')
    return { agent_id, formerly, link }
  }
  const refusals = async (): Promise<string[]> =>
    (await readFile(host.journalPath, 'utf8'))
      .split('\n')
      .filter((line) => line.includes('contact_succeed'))
      .map((line) => JSON.parse(line) as { code: string | null; detail: string })
      .flatMap(({ code, detail }) => (code === null ? [] : [detail]))
  return { host, network, alice, tell, refusals }
}

test('a contact follows the successor that its key names, and keeps its name, level and pins', LIMIT, async (t) => {
  const { host, network, alice, tell } = await place(t)
  const [next, after] = [newSigner(), newSigner()]
  const first = await tell(on(alice, next), await said(alice.signer, next, alice))
  assert.deepEqual([first.agent_id, first.formerly], [next.agentId, [alice.signer.agentId]])
  const { trust, machines } = host.contacts.find('alice')
  assert.deepEqual([trust, machines], ['trusted', [alice.machine.machineId]])
  const [shown] = network.client.snapshot.contacts
  assert.deepEqual([shown?.agent_id, shown?.formerly], [next.agentId, [alice.signer.agentId]])
  // The old key has no more access, and the new key is not in the ACL.
  const judged = async (agent: AgentSigner) => network.client.evaluateTrust(agent.agentId, alice.machine.machineId)
  assert.equal((await judged(alice.signer)).cause, 'no_contact')
  const now = await judged(next)
  assert.deepEqual([now.decision, now.in_acl], ['accept', false])
  // Two missed steps, reported in any order.
  const last = newSigner()
  const steps = [await said(after, last, alice), await said(next, after, alice), await said(alice.signer, next, alice)]
  assert.equal((await tell(on(alice, last), ...steps.toReversed())).agent_id, last.agentId)
  await host.contacts.load()
  assert.deepEqual(host.contacts.find('alice').formerly.length, 2)
  assert.match(
    await readFile(host.journalPath, 'utf8'),
    new RegExp(`"contact_succeed","agent":"${next.agentId}".*formerly ${alice.signer.agentId}`),
  )
})

test('a statement that is forged, partly signed, or from another machine or agent changes nothing', LIMIT, async (t) => {
  const { alice, tell } = await place(t)
  const [next, thief, elsewhere] = [newSigner(), newParty(), newParty()]
  const good = succession.decode(await said(alice.signer, next, alice))
  const bad = Uint8Array.from(good.new_signature)
  bad[7]! ^= 1
  const was = alice.signer.agentId
  for (const [party, items] of [
    // Both signatures are of the thief.
    [thief, [succession.encode({ ...good, old_signature: await thief.signer.sign(SUCCESSION_DOMAIN, good.body) })]],
    [on(alice, next), [succession.encode({ ...good, new_signature: bad })]],
    [on(alice, next), [succession.encode({ ...good, old_signature: good.new_signature })]],
    // A genuine statement over the link of another agent.
    [thief, [succession.encode(good)]],
    // The key of the agent on another machine. Pins apply whatever machine the statement names.
    [on(elsewhere, next), [succession.encode(good)]],
    [on(elsewhere, next), [await said(alice.signer, next, elsewhere)]],
    // Bytes that are not a succession.
    [on(alice, next), [Uint8Array.of(0x83, 1, 2, 3)]],
    [on(alice, next), [await said(newSigner(), next, alice)]],
  ] as const)
    assert.equal((await tell(party, ...items)).agent_id, was)
  assert.equal((await tell(on(alice, next), succession.encode(good))).agent_id, next.agentId)
})

test('a revoked key cannot name a successor', LIMIT, async (t) => {
  const { alice, tell, refusals } = await place(t)
  const thief = newSigner()
  const stolen = await said(alice.signer, thief, alice)
  assert.equal((await tell(alice, await signRevocation(alice.signer, null, Date.now()))).agent_id, alice.signer.agentId)
  assert.equal((await tell(on(alice, thief), stolen)).agent_id, alice.signer.agentId)
  assert.match((await refusals()).at(-1) ?? '', /one of its keys is revoked/)
})

test('a contact follows the first successor, and refuses a second one, a loop and another contact', LIMIT, async (t) => {
  const { host, alice, tell, refusals } = await place(t)
  const [one, two, bob] = [newSigner(), newSigner(), newParty()]
  await host.befriend(bob, 'bob')
  // The contact bob, on the machine of alice, would take over alice.
  assert.equal((await tell(on(alice, bob.signer), await said(alice.signer, bob.signer, alice))).agent_id, alice.signer.agentId)
  assert.match((await refusals()).at(-1) ?? '', /the contact bob already/)
  assert.equal((await tell(on(alice, one), await said(alice.signer, one, alice))).agent_id, one.agentId)
  assert.equal((await tell(on(alice, two), await said(alice.signer, two, alice))).agent_id, one.agentId)
  assert.match((await refusals()).at(-1) ?? '', /its earlier keys also names/)
  // A replay, and a statement back to the first key, which is not a valid successor.
  const back = [await said(one, alice.signer, alice), await said(alice.signer, one, alice)]
  assert.equal((await tell(alice, ...back)).agent_id, one.agentId)
  assert.match((await refusals()).at(-1) ?? '', /had that key before/)
  assert.equal((await tell(on(alice, one), ...back)).agent_id, one.agentId)
})

test('a contact without a pin follows no successor until it is pinned', LIMIT, async (t) => {
  const { host, alice, tell, refusals } = await place(t)
  await host.contacts.unpin('alice', alice.machine.machineId)
  const thief = on(newParty(), newSigner())
  const [own, next] = [newSigner(), newSigner()]
  const steps = [await said(alice.signer, own, thief), await said(own, thief.signer, thief)]
  assert.equal((await tell(thief, ...steps)).agent_id, alice.signer.agentId)
  assert.equal((await tell(on(alice, next), await said(alice.signer, next, alice))).agent_id, alice.signer.agentId)
  const told = await refusals()
  assert.equal(told.length, 2)
  for (const line of told) assert.match(line, /pinned to no machine/)
  await host.contacts.pin('alice', alice.machine.machineId)
  assert.equal((await tell(thief, ...steps)).agent_id, alice.signer.agentId)
  assert.equal((await tell(on(alice, next), await said(alice.signer, next, alice))).agent_id, next.agentId)
})

test('the successor of a blocked contact is blocked, and a flood of statements changes no contact', LIMIT, async (t) => {
  const { host, network, alice, tell } = await place(t)
  const next = newSigner()
  await host.contacts.setTrust('alice', 'blocked')
  await tell(on(alice, next), await said(alice.signer, next, alice))
  assert.equal((await network.client.evaluateTrust(next.agentId, alice.machine.machineId)).decision, 'reject_blocked')
  const unlistedPeer = newParty()
  const keys = Array.from({ length: MAX_SUCCESSIONS + 1 }, newSigner)
  const flood = await Promise.all(
    keys.map(async (key, at) => said(keys[at + 1] ?? key, at === keys.length - 1 ? unlistedPeer.signer : key, unlistedPeer)),
  )
  const files = await readFile(join(host.dir, 'contacts.json'), 'utf8')
  const { link } = await tell(unlistedPeer, ...flood)
  const asSent = flood.slice(0, MAX_SUCCESSIONS).reduce((sum, { length }) => sum + length + 8, 0)
  assert.ok(flood.every(({ length }) => length < MAX_CARD_BYTES) && asSent < MAX_FRAME_DATA - 1024, 'one list holds them')
  // The statement now names a contact, on the same link.
  await network.client.revocations(link.number, [await said(next, unlistedPeer.signer, unlistedPeer)])
  assert.equal(await readFile(join(host.dir, 'contacts.json'), 'utf8'), files)
})
