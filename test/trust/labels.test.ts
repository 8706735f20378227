import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { MAX_LABEL_TEXT, MAX_LABELS } from '../../src/protocol/limits/fleet.ts'
import { labelChangesProblem } from '../../src/protocol/hosts/labels.ts'
import { Contacts } from '../../src/trust/contacts.ts'
import { tempDir } from '../support/temp-dir.ts'

const ALICE = 'a1'.repeat(32)
const NEXT = 'b2'.repeat(32)
const MACHINE = '0c'.repeat(32)

const CARD = {
  agentId: ALICE,
  machineId: MACHINE,
  name: 'role=root',
  addresses: ['/ip4/10.0.0.1/tcp/1'],
  issuedAt: 1000,
  expiresAt: 2000,
  publicKey: new Uint8Array([1, 2, 3]),
}

const open = async (t: TestContext) => {
  const path = join(await tempDir(t), 'contacts.json')
  const load = async (): Promise<Contacts> => {
    const contacts = new Contacts({ path })
    await contacts.load()
    return contacts
  }
  return { contacts: await load(), path, again: load }
}

test('labels can be set and removed, are sorted by key, and survive a restart', async (t) => {
  const { contacts, again } = await open(t)
  assert.deepEqual((await contacts.importCard(CARD, { name: 'alice' })).labels, {}, 'a card names no label')
  assert.deepEqual(Object.entries((await contacts.label('alice', { site: 'ber', role: 'web' })).labels), [
    ['role', 'web'],
    ['site', 'ber'],
  ])
  assert.deepEqual((await contacts.label('alice', { role: 'db', site: null })).labels, { role: 'db' })
  assert.deepEqual((await again()).find('alice').labels, { role: 'db' })
  await assert.rejects(contacts.label('alice', { site: null }), { code: 'not_found', message: 'alice has no label "site"' })
  await assert.rejects(contacts.label('alice', { constructor: null }), { code: 'not_found' })
  await assert.rejects(contacts.label('bob', { a: 'b' }), { code: 'unknown_agent' })
})

test('labels survive every other change of a contact', async (t) => {
  const { contacts, again } = await open(t)
  await contacts.importCard(CARD, { name: 'alice' })
  await contacts.label('alice', { role: 'db' })
  await contacts.importCard({ ...CARD, issuedAt: 1500, addresses: ['/ip4/10.0.0.2/tcp/1'] }, { name: 'alicia', rename: true })
  await contacts.setTrust('alicia', 'trusted')
  await contacts.pin('alicia', MACHINE)
  await contacts.unpin('alicia', MACHINE)
  await contacts.meet({ name: 'alicia', agent_id: ALICE, machine_id: MACHINE, addresses: [] })
  await contacts.succeed(ALICE, { agentId: NEXT, publicKey: new Uint8Array([9]) })
  const { name, agent_id, labels } = (await again()).list()[0]!
  assert.deepEqual({ name, agent_id, labels }, { name: 'alicia', agent_id: NEXT, labels: { role: 'db' } })
})

test('the file contains labels and former keys only for contacts that have some, under one version', async (t) => {
  const { contacts, path, again } = await open(t)
  const keys = async (): Promise<string[]> => {
    const { version, contacts: entries } = JSON.parse(await readFile(path, 'utf8')) as { version: number; contacts: object[] }
    assert.equal(version, 1)
    return Object.keys(entries[0]!).filter((key) => key === 'labels' || key === 'formerly')
  }
  await contacts.importCard(CARD, { name: 'alice' })
  assert.deepEqual(await keys(), [])
  await contacts.label('alice', { role: 'db' })
  assert.deepEqual(await keys(), ['labels'])
  await contacts.succeed(ALICE, { agentId: NEXT, publicKey: new Uint8Array([9]) })
  assert.deepEqual(await keys(), ['formerly', 'labels'])
  assert.deepEqual((await again()).list(), contacts.list())
  await contacts.label('alice', { role: null })
  assert.deepEqual(await keys(), ['formerly'])
})

const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`key${index}`, 'v']))

test('the number of labels of a contact and their length have exact limits', async (t) => {
  const { contacts } = await open(t)
  await contacts.importCard(CARD, { name: 'alice' })
  await contacts.label('alice', many(MAX_LABELS))
  await assert.rejects(contacts.label('alice', { more: 'v' }), { code: 'bad_request', message: /at most 32 labels/ })
  await contacts.label('alice', { key0: null, more: 'v' })
  await contacts.label('alice', { more: null, ['k'.repeat(MAX_LABEL_TEXT)]: 'v'.repeat(MAX_LABEL_TEXT) })
})

test('an invalid key or value of a label is refused by name', () => {
  for (const key of ['', '-a', '.a', '@a', 'a b', 'a,b', 'a=b', 'ä', 'a\n', '__proto__', 'k'.repeat(MAX_LABEL_TEXT + 1)])
    assert.match(labelChangesProblem(Object.fromEntries([[key, 'v']])) ?? '', /is not a label key/, key)
  for (const value of ['', ' ', 'a b', 'a,b', 'a=b', '[1]', '!a', 'ä', 'a\n', '\u202e', 'v'.repeat(MAX_LABEL_TEXT + 1)])
    assert.match(labelChangesProblem({ key: value }) ?? '', /is not a label value/, value)
  for (const value of ['a', '-1', '@x', 'debian:12', 'eu/ber', '1.2+3', 'ops@example', 'true'])
    assert.equal(labelChangesProblem({ key: value }), null)
  assert.match(labelChangesProblem({}) ?? '', /no label given/)
  assert.match(labelChangesProblem(many(MAX_LABELS + 1)) ?? '', /at most 32 labels can be changed at once/)
  assert.equal(labelChangesProblem({ 'app/name': null }), null)
})

const entry = {
  name: 'alice',
  agent_id: ALICE,
  trust: 'known',
  machines: [MACHINE],
  addresses: [],
  agent_public_key: null,
  card_issued_at_ms: null,
  formerly: [],
}

test('an altered contacts file stops the start, and the message names the place', async (t) => {
  const { path, again } = await open(t)
  const cases: [object, RegExp][] = [
    [{ ...entry, labels: null }, /contacts\[0\]\.labels: expected an object/],
    [{ ...entry, labels: ['role'] }, /contacts\[0\]\.labels: expected an object/],
    [{ ...entry, labels: { role: 1 } }, /contacts\[0\]\.labels\.role: expected a text/],
    [{ ...entry, labels: { role: null } }, /contacts\[0\]\.labels\.role: expected a text/],
    [{ ...entry, labels: { 'role,': 'db' } }, /contacts\[0\]\.labels: "role," is not a label key/],
    [{ ...entry, labels: { role: 'a b' } }, /contacts\[0\]\.labels: "a b" is not a label value/],
    [{ ...entry, labels: many(MAX_LABELS + 1) }, /contacts\[0\]\.labels: a contact has at most 32 labels/],
  ]
  for (const [contact, reason] of cases) {
    await writeFile(path, JSON.stringify({ version: 1, contacts: [contact] }), { mode: 0o600 })
    await assert.rejects(again(), { code: 'bad_contacts', message: reason })
  }
  await writeFile(path, `{"version":1,"contacts":[${JSON.stringify(entry).slice(0, -1)},"labels":{"__proto__":"x"}}]}`, { mode: 0o600 })
  await assert.rejects(again(), { code: 'bad_contacts', message: /"__proto__" is not a label key/ })
})
