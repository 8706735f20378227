import type { ContactRecord } from '../../src/protocol/api-answers.ts'
import assert from 'node:assert/strict'
import { stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { isAppError, type ErrorCode } from '../../src/base/errors.ts'
import type { Operation } from '../../src/executor-api/messages.ts'
import { agentIdOf } from '../../src/identity/signing.ts'
import { decodeCardLink, encodeCardLink, signCard, verifyCard } from '../../src/identity/card.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { ANNOUNCE_DOMAIN, CARD_DOMAIN } from '../../src/protocol/wire/card.ts'
import { revocation, revocationBody } from '../../src/protocol/wire/dm.ts'
import type { AgentId, MachineId } from '../../src/protocol/ids.ts'
import { CARD_TTL_MS, MAX_PORT_MESSAGE, MAX_REVOCATIONS_PER_LINK, RECORD_TTL_MS } from '../../src/protocol/limits/wire.ts'
import { MAX_REVOKED_MACHINES, signRevocation } from '../../src/trust/revocations.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { newParty, type FakeNetwork, type Party } from '../support/fake-network.ts'

const code =
  (wanted: ErrorCode) =>
  (error: unknown): boolean =>
    isAppError(error, wanted)

const cardOf = async (party: Party, issuedAt = Date.now(), domain = CARD_DOMAIN, addresses: string[] = []): Promise<string> =>
  encodeCardLink(
    await signCard(
      party.signer,
      {
        version: 1,
        agent_public_key: party.signer.publicKey,
        machine_id: party.machine.machineId,
        name: 'calls itself root',
        addresses,
        issued_at_ms: issuedAt,
        expires_at_ms: issuedAt + 60_000,
      },
      domain,
    ),
  )

const bodyOf = (statement: Uint8Array) => revocationBody.decode(revocation.decode(statement).body)
const agentOf = (statement: Uint8Array): AgentId => agentIdOf(bodyOf(statement).agent_public_key)

const setUp = async (
  t: TestContext,
): Promise<{ host: ExecutorHost; network: FakeNetwork; operate: (operation: Operation, body: unknown) => Promise<unknown> }> => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const operate = async (operation: Operation, json: unknown): Promise<unknown> => {
    const body = Buffer.from(typeof json === 'string' ? json : JSON.stringify(json))
    return network.client.operate(operation, body, await host.prove(operation, body))
  }
  return { host, network, operate }
}

test('operator.key is created at the first start, accessible only to its owner', async (t) => {
  const { host } = await setUp(t)
  const info = await stat(join(host.dir, 'operator.key'))
  assert.equal(info.mode & 0o777, 0o600)
  assert.equal(info.size, 65)
})

test('an operation without a valid operator proof changes nothing', async (t) => {
  const { host, network } = await setUp(t)
  const card = await cardOf(newParty())
  const body = Buffer.from(JSON.stringify({ card }))
  const proof = await host.prove('card_import', body)
  const stale = await host.prove('card_import', body, Date.now() - 61_000)
  const altered = Buffer.from(JSON.stringify({ card, trust_level: 'trusted' }))
  for (const [operation, bytes, text] of [
    ['card_import', body, ''],
    ['card_import', body, `${proof.slice(0, -1)}${proof.endsWith('0') ? '1' : '0'}`],
    ['card_import', altered, proof],
    ['contact_remove', body, proof],
    ['card_import', body, stale],
  ] as const)
    await assert.rejects(network.client.operate(operation, bytes, text), code('operator_proof_required'))
  assert.deepEqual(host.contacts.list(), [])
  await network.client.operate('card_import', body, proof)
  await assert.rejects(network.client.operate('card_import', body, proof), code('operator_proof_required'))
  assert.equal(host.contacts.list().length, 1)
})

test('each change of a contact, from its card to its removal, is in the next snapshot', async (t) => {
  const { network, operate } = await setUp(t)
  const party = newParty()
  const machine_id = party.machine.machineId
  const shown = async (change: Promise<unknown>): Promise<unknown> => {
    const { contact } = (await change) as { contact: ContactRecord }
    const [seen] = network.client.snapshot.contacts
    if (seen) assert.deepEqual(contact, seen)
    return [contact.name, contact.trust, contact.machines]
  }
  const card = await cardOf(party)
  assert.deepEqual(await shown(operate('card_import', { card, name: 'laptop', trust_level: 'known' })), ['laptop', 'known', []])
  assert.deepEqual(await shown(operate('contact_trust', { contact: 'laptop', level: 'trusted' })), ['laptop', 'trusted', []])
  assert.deepEqual(await shown(operate('contact_pin', { contact: 'laptop', machine_id })), ['laptop', 'trusted', [machine_id]])
  const newer = await cardOf(party, Date.now() + 1_000)
  assert.deepEqual(await shown(operate('card_import', { card: newer })), ['laptop', 'trusted', [machine_id]])
  assert.deepEqual(await shown(operate('contact_unpin', { contact: 'laptop', machine_id })), ['laptop', 'known', []])
  const labelled = { contact: 'laptop', labels: { site: 'ber', role: 'db' } }
  assert.deepEqual(await shown(operate('contact_label', labelled)), ['laptop', 'known', []])
  assert.deepEqual(network.client.snapshot.contacts[0]?.labels, { role: 'db', site: 'ber' })
  await operate('contact_label', { contact: 'laptop', labels: { role: null } })
  assert.deepEqual(network.client.snapshot.contacts[0]?.labels, { site: 'ber' })
  await operate('contact_remove', { contact: 'laptop' })
  assert.deepEqual(network.client.snapshot.contacts, [])
  assert.deepEqual(await network.client.query('contacts'), [])
})

test('a body that does not match its operation exactly is refused', async (t) => {
  const { host, operate } = await setUp(t)
  const card = await cardOf(newParty())
  const bad: [Operation, unknown][] = [
    ['card_import', 'no json'],
    ['card_import', '[]'],
    ['card_import', 'null'],
    ['card_import', {}],
    ['card_import', { card, trust: 'trusted' }],
    ['card_import', { card, trust_level: 'root' }],
    ['card_import', { card, name: '-x' }],
    ['card_import', { card: 7 }],
    ['contact_trust', { contact: 'x' }],
    ['contact_trust', { contact: 'x', level: 'trusted', force: true }],
    ['contact_remove', { contact: null }],
    ['identity_revoke', {}],
    ['identity_revoke', { machine_id: 'AB' }],
  ]
  for (const [operation, body] of bad)
    await assert.rejects(operate(operation, body), code('bad_request'), JSON.stringify([operation, body]))
  await assert.rejects(operate('contact_trust', { contact: 'nobody', level: 'known' }), code('unknown_agent'))
  assert.deepEqual(host.contacts.list(), [])
})

test('a tampered, expired or own card and an announcement are refused', async (t) => {
  const { host, operate } = await setUp(t)
  const party = newParty()
  const good = await cardOf(party)
  const tampered = `${good.slice(0, 3000)}${good[3000] === 'A' ? 'B' : 'A'}${good.slice(3001)}`
  for (const card of [
    tampered,
    await cardOf(party, Date.now() - 120_000),
    await cardOf(party, Date.now(), ANNOUNCE_DOMAIN),
    'x0x://agent/',
  ])
    await assert.rejects(operate('card_import', { card }), code('bad_card'))
  await assert.rejects(operate('card_import', { card: await cardOf(host.own) }), code('bad_request'))
})

test('addresses that cannot be dialled are dropped from a card, and a card with only those is refused', async (t) => {
  const { host, operate } = await setUp(t)
  const party = newParty()
  const p2p = `/p2p/${peerIdOf(party.machine.machineId)}`
  const never = [`/ip6/fe80::1/tcp/5483${p2p}`, `/ip4/0.0.0.0/tcp/5483${p2p}`, `/ip4/192.0.2.1/tcp/1${p2p}/p2p-circuit${p2p}`]
  const good = `/ip4/169.254.1.2/tcp/5483${p2p}`
  const card = async (addresses: string[]): Promise<string> => cardOf(party, Date.now(), CARD_DOMAIN, addresses)
  for (const [address, says] of [
    [never[0]!, /the address ".*fe80::1.*" is a link-local address without a zone: use an address that is valid beyond one link/],
    [never[1]!, /is the unspecified address/],
    [never[2]!, /uses the machine as its own relay/],
  ] as const) {
    await assert.rejects(
      operate('card_import', { card: await card([address]) }),
      (error: Error) => code('bad_card')(error) && says.test(error.message),
    )
    const met = { name: 'alice', agent_id: party.signer.agentId, machine_id: party.machine.machineId, addresses: [address, good] }
    await assert.rejects(operate('contact_meet', met), (error: Error) => code('bad_request')(error) && says.test(error.message))
  }
  assert.deepEqual(host.contacts.list(), [])
  await operate('card_import', { card: await card([...never, good]) })
  assert.deepEqual(host.contacts.list()[0]?.addresses, [good])
})

test('contact_meet trusts and pins an agent in one step, but refuses conflicts with known contacts', async (t) => {
  const { host, network, operate } = await setUp(t)
  const party = newParty()
  const { machineId: machine_id } = party.machine
  const body = {
    name: 'alice',
    agent_id: party.signer.agentId,
    machine_id,
    addresses: [`/ip4/192.0.2.1/tcp/1/p2p/${peerIdOf(machine_id)}`],
  }
  const refused = async (changed: object, why: ErrorCode): Promise<void> => {
    const before = JSON.stringify(host.contacts.list())
    await assert.rejects(operate('contact_meet', { ...body, ...changed }), code(why), JSON.stringify(changed))
    assert.equal(JSON.stringify(host.contacts.list()), before)
  }
  for (const changed of [
    { agent_id: host.own.signer.agentId },
    { agent_id: 'AB' },
    { machine_id: 'a'.repeat(64) },
    { name: '-x' },
    { name: 'deadbeef' },
    { addresses: ['/ip4/192.0.2.1/tcp/1'] },
    { addresses: Array.from({ length: 100 }, () => body.addresses[0]) },
    { trust_level: 'trusted' },
  ])
    await refused(changed, 'bad_request')
  await operate('contact_meet', body)
  const [met] = network.client.snapshot.contacts
  assert.deepEqual([met?.name, met?.trust, met?.machines, met?.addresses], ['alice', 'trusted', [machine_id], body.addresses])
  await operate('contact_meet', body)
  assert.equal(host.contacts.list().length, 1)
  await refused({ name: 'carol' }, 'conflict')
  await refused({ agent_id: newParty().signer.agentId }, 'conflict')
  await operate('contact_trust', { contact: 'alice', level: 'blocked' })
  await refused({}, 'conflict')
})

test('the executor process signs its card and its announcements, each for its own use and lifetime', async (t) => {
  const { host, network } = await setUp(t)
  const before = Date.now()
  for (const [kind, domain, ttl] of [
    ['card', CARD_DOMAIN, CARD_TTL_MS],
    ['announcement', ANNOUNCE_DOMAIN, RECORD_TTL_MS],
  ] as const) {
    const signed = await network.client.signCard({ kind, name: 'box', addresses: [], ttl_ms: Number.MAX_SAFE_INTEGER })
    const card = verifyCard(decodeCardLink(encodeCardLink(signed)), domain, Date.now())
    assert.deepEqual([card.agentId, card.machineId, card.name], [host.own.signer.agentId, host.own.machine.machineId, 'box'])
    assert.equal(card.expiresAt - card.issuedAt, ttl)
    assert.ok(card.issuedAt >= before)
  }
})

test('the revocation of this machine is sent to every peer and denies its own runs', async (t) => {
  const { host, network, operate } = await setUp(t)
  const peer = newParty()
  await network.link(peer)
  const { machineId } = host.own.machine
  assert.deepEqual(await operate('identity_revoke', { machine_id: machineId }), {
    ok: true,
    agent_id: host.own.signer.agentId,
    machine_id: machineId,
  })
  assert.deepEqual(network.decisions, [{ link: 0, decision: 'reject_revoked' }])
  assert.deepEqual(
    network.revocations.map(({ link, items }) => [link, items.length]),
    [[1, 1]],
  )
  assert.equal(network.client.snapshot.self_revoked, true)
  for (const kind of ['card', 'announcement'] as const)
    await assert.rejects(network.client.signCard({ kind, name: 'box', addresses: [], ttl_ms: 1_000 }), code('conflict'))
  // An unlisted peer that connects later also receives it, because it is a statement of this daemon about itself.
  const late = await network.link(newParty())
  await network.client.query('acl_status')
  assert.equal(network.revocations.at(-1)?.link, late.number)
})

test('a link receives at most its limit of revocations, including that of the agent key of this daemon', async (t) => {
  const { host, network, operate } = await setUp(t)
  const friend = newParty()
  await host.befriend(friend)
  for (let i = 0; i < MAX_REVOCATIONS_PER_LINK; i++)
    await host.revocations.add(await signRevocation(newParty().signer, null, Date.now()), () => true)
  const link = await network.link(friend)
  for (let i = 0; i < MAX_REVOCATIONS_PER_LINK; i++) await operate('identity_revoke', { machine_id: newParty().machine.machineId })
  await operate('identity_revoke', { machine_id: null })
  const sent = network.revocations.filter((one) => one.link === link.number).flatMap(({ items }) => items)
  assert.equal(sent.length, MAX_REVOCATIONS_PER_LINK)
  assert.equal(new Set(sent.map((bytes) => Buffer.from(bytes).toString('hex'))).size, sent.length)
  const last = bodyOf(sent.at(-1)!)
  assert.deepEqual([agentOf(sent.at(-1)!), last.machine_id], [host.own.signer.agentId, null])
})

test('many revoked machines of one agent do not displace the revocations of other agents', async (t) => {
  const { host, network } = await setUp(t)
  const [friend, some, many, key] = [newParty(), newParty(), newParty(), newParty()] as const
  await host.befriend(friend)
  const revoke = async ({ signer }: Party, machine: MachineId | null): Promise<unknown> =>
    host.revocations.add(await signRevocation(signer, machine, Date.now()), () => true)
  await revoke(key, null)
  for (let i = 0; i < 2; i++) await revoke(some, newParty().machine.machineId)
  const machines = Array.from({ length: MAX_REVOKED_MACHINES }, () => newParty().machine.machineId)
  for (const machine of machines) await revoke(many, machine)
  for (let time = 0; time < 2; time++) {
    const link = await network.link(friend)
    await network.client.query('acl_status')
    const sent = network.revocations.filter((one) => one.link === link.number).flatMap(({ items }) => items)
    const [a, b] = [many.signer.agentId, some.signer.agentId]
    assert.deepEqual(sent.slice(0, 6).map(agentOf), [key.signer.agentId, a, b, a, b, a])
    const told = sent.filter((one) => agentOf(one) === a).map((one) => bodyOf(one).machine_id)
    assert.deepEqual(told, machines.toReversed().slice(0, told.length), 'the newest')
    assert.ok(told.length >= MAX_REVOCATIONS_PER_LINK / 2)
  }
})

test('a revoked contact is shown as revoked, and can be blocked or removed but not trusted again', async (t) => {
  const { host, network, operate } = await setUp(t)
  const party = newParty()
  const { machineId } = party.machine
  await host.befriend(party, 'laptop')
  const friend = newParty()
  await host.befriend(friend, 'friend')
  const link = await network.link(friend)
  const standing = async (): Promise<unknown> => {
    const contacts = (await network.client.query('contacts')) as ContactRecord[]
    assert.deepEqual(network.client.snapshot.contacts, contacts)
    const { trust, machines, revoked, revoked_machines } = contacts.find(({ name }) => name === 'laptop')!
    return { trust, machines, revoked, revoked_machines }
  }
  assert.deepEqual(await standing(), { trust: 'trusted', machines: [machineId], revoked: false, revoked_machines: [] })

  await network.client.revocations(link.number, [await signRevocation(party.signer, machineId, Date.now())])
  assert.deepEqual(await standing(), { trust: 'trusted', machines: [machineId], revoked: false, revoked_machines: [machineId] })
  await assert.rejects(operate('contact_pin', { contact: 'laptop', machine_id: machineId }), code('conflict'))
  await assert.rejects(operate('card_import', { card: await cardOf(party) }), code('conflict'))
  await operate('contact_pin', { contact: 'laptop', machine_id: friend.machine.machineId })
  await operate('contact_unpin', { contact: 'laptop', machine_id: friend.machine.machineId })

  await network.client.revocations(link.number, [await signRevocation(party.signer, null, Date.now())])
  assert.deepEqual(await standing(), { trust: 'trusted', machines: [machineId], revoked: true, revoked_machines: [] })
  for (const [operation, body] of [
    ['card_import', { card: await cardOf(party, Date.now() + 1_000) }],
    ['contact_meet', { name: 'laptop', agent_id: party.signer.agentId, machine_id: machineId, addresses: [] }],
    ['contact_trust', { contact: 'laptop', level: 'trusted' }],
    ['contact_trust', { contact: 'laptop', level: 'unknown' }],
    ['contact_pin', { contact: 'laptop', machine_id: friend.machine.machineId }],
  ] as const)
    await assert.rejects(operate(operation, body), (error: Error) => code('conflict')(error) && error.message.includes('for ever'))
  await operate('contact_trust', { contact: 'laptop', level: 'blocked' })
  await operate('contact_remove', { contact: 'laptop' })
  await assert.rejects(operate('card_import', { card: await cardOf(party) }), code('conflict'))
})

test('revocations of a peer count only if they are signed, concern a known agent, and come from a contact', async (t) => {
  const { host, network } = await setUp(t)
  const [friend, victim, unknown] = [newParty(), host.peer, newParty()] as const
  await host.befriend(friend)
  await host.befriend(victim)
  const unlistedPeer = await network.link(unknown)
  const victims = await network.link(victim)
  const friends = await network.link(friend)
  const word = await signRevocation(victim.signer, null, Date.now())
  const forged = word.map((byte, index) => (index === word.length - 5 ? byte ^ 1 : byte))
  assert.equal(await network.client.revocations(unlistedPeer.number, [word]), 0)
  assert.equal(await network.client.revocations(friends.number, [forged, Buffer.from('nonsense')]), 0)
  assert.equal(await network.client.revocations(friends.number, [await signRevocation(unknown.signer, null, Date.now())]), 0)
  assert.deepEqual(network.decisions, [])
  assert.equal(host.totals().malformed_frames, 2)
  assert.equal(await network.client.revocations(friends.number, [word]), 1)
  assert.equal(await network.client.revocations(friends.number, [word]), 0)
  assert.deepEqual(network.decisions, [{ link: victims.number, decision: 'reject_revoked' }])
  assert.deepEqual(network.client.snapshot.revoked_agents, [victim.signer.agentId])
  // The revocation is passed on to a contact that connects later, but not to an unlisted peer.
  network.revocations.length = 0
  await network.link(newParty())
  assert.deepEqual(network.revocations, [])
  const again = await network.link(friend)
  await network.client.query('acl_status')
  assert.deepEqual(
    network.revocations.map(({ link }) => link),
    [again.number],
  )
})

test('a repeated revocation of a peer causes no new snapshot', async (t) => {
  const { host, network } = await setUp(t)
  const friend = newParty()
  await host.befriend(friend)
  await host.befriend(host.peer)
  const friends = await network.link(friend)
  const word = await signRevocation(host.peer.signer, null, Date.now())
  assert.equal(await network.client.revocations(friends.number, [word]), 1)
  let snapshots = 0
  const stop = network.client.onSnapshot(() => (snapshots += 1))
  for (let time = 0; time < 3; time++) assert.equal(await network.client.revocations(friends.number, [word]), 0)
  await network.client.query('acl_status')
  assert.equal(snapshots, 0)
  stop()
})

test('thousands of contacts reach the network process, although they exceed one message', async (t) => {
  const host = await ExecutorHost.start(t)
  await host.stop()
  const addresses = Array.from({ length: 4 }, (_, index) => `/dns4/host-${index}.${'example.'.repeat(8)}net/tcp/5483`)
  const contacts = Array.from({ length: 12_000 }, (_, index) => ({
    name: `contact-${index}`,
    agent_id: index.toString(16).padStart(64, '0'),
    trust: 'known',
    machines: [],
    addresses,
    agent_public_key: null,
    card_issued_at_ms: null,
  }))
  await writeFile(join(host.dir, 'contacts.json'), JSON.stringify({ version: 1, contacts }), { mode: 0o600 })
  await host.boot()
  const network = await host.connect()
  await network.client.query('acl_status')
  const shown = network.client.snapshot.contacts
  assert.ok(Buffer.byteLength(JSON.stringify(shown)) > MAX_PORT_MESSAGE)
  assert.equal(shown.length, contacts.length)
  assert.deepEqual(
    shown.map(({ name }) => name),
    contacts.map(({ name }) => name),
  )
})

test('queries show counts and paths, but not what the ACL allows', async (t) => {
  const { host, network } = await setUp(t)
  const status = (await network.client.query('acl_status')) as Record<string, unknown>
  assert.equal(status.status, 'enabled')
  assert.equal(status.loaded_from, host.aclPath)
  assert.deepEqual([status.allow_entry_count, status.command_entry_count], [1, 1])
  assert.deepEqual(status.journal, { path: host.journalPath, writable: true, problem: null })
  const diagnostics = (await network.client.query('exec_diagnostics')) as Record<string, unknown>
  assert.equal(diagnostics.enabled, true)
  assert.deepEqual(diagnostics.journal, { path: host.journalPath, writable: true })
  assert.equal(JSON.stringify([status, diagnostics]).includes(host.peer.signer.agentId), false)
  assert.deepEqual(network.client.snapshot.known_pairs, [[host.peer.signer.agentId, host.peer.machine.machineId]])
})
