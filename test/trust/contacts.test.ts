import assert from 'node:assert/strict'
import { watch } from 'node:fs'
import { chmod, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { AppError, isAppError, type ErrorCode } from '../../src/base/errors.ts'
import type { VerifiedCard } from '../../src/identity/card.ts'
import { MAX_NAME } from '../../src/protocol/limits/wire.ts'
import { Contacts } from '../../src/trust/contacts.ts'
import { tempDir } from '../support/temp-dir.ts'

const ALICE = 'a1'.repeat(32)
const BOB = `a1a1a1b2${'0'.repeat(56)}`
const MACHINE = '0c'.repeat(32)
const OTHER = '0d'.repeat(32)

const cardOf = (agentId: string, changes: Partial<VerifiedCard> = {}): VerifiedCard => ({
  agentId,
  machineId: MACHINE,
  name: 'calls-itself',
  addresses: ['/ip4/10.0.0.1/tcp/1'],
  issuedAt: 1000,
  expiresAt: 2000,
  publicKey: new Uint8Array([1, 2, 3]),
  ...changes,
})

const open = async (t: TestContext): Promise<{ contacts: Contacts; path: string; again(): Promise<Contacts> }> => {
  const path = join(await tempDir(t), 'contacts.json')
  const load = async (): Promise<Contacts> => {
    const contacts = new Contacts({ path })
    await contacts.load()
    return contacts
  }
  return { contacts: await load(), path, again: load }
}

const refused = (code: ErrorCode, reason: RegExp) => (error: unknown) => {
  assert.ok(error instanceof AppError)
  assert.equal(error.code, code)
  assert.match(error.message, reason)
  return true
}

test('without a file there are no contacts, and reading creates no file', async (t) => {
  const { contacts, path } = await open(t)
  assert.deepEqual(contacts.list(), [])
  assert.equal(contacts.byAgent(ALICE), null)
  await assert.rejects(stat(path), { code: 'ENOENT' })
})

test('an imported agent has level unknown, no pin, and not the name from its card', async (t) => {
  const { contacts, path, again } = await open(t)
  const contact = await contacts.importCard(cardOf(ALICE))
  assert.deepEqual(contact, {
    name: 'agent-a1a1a1a1',
    agent_id: ALICE,
    trust: 'unknown',
    machines: [],
    addresses: ['/ip4/10.0.0.1/tcp/1'],
    agent_public_key: 'AQID',
    card_issued_at_ms: 1000,
    formerly: [],
    labels: {},
  })
  assert.deepEqual(contacts.byAgent(ALICE), contact)
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  assert.deepEqual((await again()).list(), [contact])
  assert.deepEqual(await readdir(join(path, '..')), ['contacts.json'])
})

test('the operator sets the name and the level of a new contact', async (t) => {
  const { contacts } = await open(t)
  const contact = await contacts.importCard(cardOf(ALICE), { name: 'alice', trust: 'known' })
  assert.equal(contact.name, 'alice')
  assert.equal(contact.trust, 'known')
  assert.deepEqual(contact.machines, [])
})

test('two agents whose IDs begin alike get different names', async (t) => {
  const { contacts } = await open(t)
  const first = await contacts.importCard(cardOf(ALICE))
  const second = await contacts.importCard(cardOf(`${ALICE.slice(0, 8)}${'0'.repeat(56)}`))
  assert.equal(first.name, 'agent-a1a1a1a1')
  assert.equal(second.name, 'agent-a1a1a1a10')
})

test('a repeated import does not change the level or the pins', async (t) => {
  for (const trust of ['blocked', 'unknown', 'known', 'trusted'] as const) {
    const { contacts } = await open(t)
    await contacts.importCard(cardOf(ALICE), { name: 'alice', trust })
    await contacts.pin('alice', MACHINE)
    const again = await contacts.importCard(cardOf(ALICE, { machineId: OTHER, issuedAt: 5000 }))
    assert.deepEqual([again.trust, again.machines, again.name], [trust, [MACHINE], 'alice'])
    await contacts.importCard(cardOf(ALICE), { trust })
    const other = trust === 'trusted' ? 'known' : 'trusted'
    await assert.rejects(contacts.importCard(cardOf(ALICE), { trust: other }), refused('conflict', /does not change that/))
    assert.equal(contacts.find('alice').trust, trust)
  }
})

test('a newer card updates the addresses, and an older or equally old one does not', async (t) => {
  const { contacts } = await open(t)
  await contacts.importCard(cardOf(ALICE))
  for (const issuedAt of [999, 1000]) {
    const contact = await contacts.importCard(cardOf(ALICE, { issuedAt, addresses: ['/ip4/6.6.6.6/tcp/6'] }))
    assert.deepEqual([contact.addresses, contact.card_issued_at_ms], [['/ip4/10.0.0.1/tcp/1'], 1000])
  }
  const contact = await contacts.importCard(cardOf(ALICE, { issuedAt: 1001, addresses: [] }))
  assert.deepEqual([contact.addresses, contact.card_issued_at_ms], [[], 1001])
})

test('an import with rename changes the name, and no contact gets the name of another', async (t) => {
  const { contacts } = await open(t)
  await contacts.importCard(cardOf(ALICE), { name: 'alice' })
  await contacts.importCard(cardOf(BOB), { name: 'bob' })
  const second = contacts.importCard(cardOf(ALICE), { name: 'alice2' })
  await assert.rejects(second, refused('conflict', /^this agent is the contact alice \(conflict\): it cannot be alice2 too/))
  assert.equal((await contacts.importCard(cardOf(ALICE), { name: 'alice' })).name, 'alice')
  await assert.rejects(contacts.importCard(cardOf(ALICE), { name: 'bob', rename: true }), refused('conflict', /belongs to agent/))
  await contacts.pin('alice', MACHINE)
  await contacts.setTrust('alice', 'known')
  const renamed = await contacts.importCard(cardOf(ALICE), { name: 'alice2', rename: true })
  assert.deepEqual([renamed.name, renamed.trust, renamed.machines], ['alice2', 'known', [MACHINE]])
  await assert.rejects(contacts.importCard(cardOf(ALICE), { name: 'bob' }), refused('conflict', /belongs to agent/))
  await assert.rejects(contacts.importCard(cardOf('c3'.repeat(32)), { name: 'bob' }), refused('conflict', /belongs to agent/))
  assert.deepEqual(
    contacts.list().map(({ name }) => name),
    ['alice2', 'bob'],
  )
})

test('a contact name is short and plain, and must not look like an option or an ID', async (t) => {
  const { contacts } = await open(t)
  for (const name of ['a', 'a'.repeat(5), 'Web-1.example_x', 'abcdeg', '_', '.', 'n'.repeat(MAX_NAME)])
    assert.equal((await contacts.importCard(cardOf(ALICE), { name, rename: true })).name, name)
  for (const name of ['', '-a', '--help', 'a b', 'a/b', 'ä', 'a\n', 'abcdef', 'ABCDEF', '123456', ALICE, 'n'.repeat(MAX_NAME + 1)])
    await assert.rejects(contacts.importCard(cardOf(ALICE), { name }), refused('bad_request', /name/), name)
})

test('a contact is found by name, ID, or a unique prefix of at least six digits', async (t) => {
  const { contacts } = await open(t)
  await contacts.importCard(cardOf(ALICE), { name: 'alice' })
  await contacts.importCard(cardOf(BOB), { name: 'Bob' })
  assert.equal(contacts.find('alice').agent_id, ALICE)
  assert.equal(contacts.find(ALICE).name, 'alice')
  assert.equal(contacts.find('a1a1a1b').name, 'Bob')
  for (const who of ['bob', 'ALICE', '', 'a1', 'a1a1a', 'A1A1A1B', 'ffffff', 'f'.repeat(64), `${ALICE}0`, '%', 'ali'])
    assert.throws(() => contacts.find(who), refused('unknown_agent', /no contact/), who)
  assert.throws(
    () => contacts.find('a1a1a1'),
    (error) => {
      assert.ok(isAppError(error, 'ambiguous_agent'))
      assert.deepEqual(error.data['candidates'], [
        { name: 'alice', agent_id: ALICE },
        { name: 'Bob', agent_id: BOB },
      ])
      return true
    },
  )
})

test('a pin is added only once, and must be a valid machine ID', async (t) => {
  const { contacts, again } = await open(t)
  await contacts.importCard(cardOf(ALICE), { name: 'alice', trust: 'trusted' })
  await contacts.pin('alice', MACHINE)
  await contacts.pin('alice', OTHER)
  assert.deepEqual((await contacts.pin('alice', MACHINE)).machines, [MACHINE, OTHER])
  for (const wrong of ['', 'alice', MACHINE.slice(1), MACHINE.toUpperCase()])
    await assert.rejects(contacts.pin('alice', wrong), refused('bad_request', /64 lower-case/))
  await assert.rejects(contacts.pin('bob', MACHINE), refused('unknown_agent', /bob/))
  assert.deepEqual((await again()).find('alice').machines, [MACHINE, OTHER])
})

test('removing the last pin lowers a trusted contact to known, and no other level', async (t) => {
  const { contacts, again } = await open(t)
  await contacts.importCard(cardOf(ALICE), { name: 'alice', trust: 'trusted' })
  await contacts.pin('alice', MACHINE)
  await contacts.pin('alice', OTHER)
  assert.equal((await contacts.unpin('alice', MACHINE)).trust, 'trusted')
  const last = await contacts.unpin('alice', OTHER)
  assert.deepEqual([last.trust, last.machines], ['known', []])
  assert.equal((await again()).find('alice').trust, 'known')
  await assert.rejects(contacts.unpin('alice', OTHER), refused('not_found', /no pin/))
  for (const trust of ['blocked', 'unknown', 'known'] as const) {
    await contacts.setTrust('alice', trust)
    await contacts.pin('alice', MACHINE)
    assert.equal((await contacts.unpin('alice', MACHINE)).trust, trust)
  }
})

test('listeners learn each change after it is on disk and active, in the order of the requests', async (t) => {
  const { contacts, again } = await open(t)
  const heard: (string | undefined)[] = []
  const silence = contacts.onChange(() => heard.push(contacts.byAgent(ALICE)?.trust))
  await Promise.all([
    contacts.importCard(cardOf(ALICE), { name: 'alice', trust: 'known' }),
    contacts.setTrust('alice', 'trusted'),
    contacts.setTrust('alice', 'blocked'),
    contacts.remove('alice'),
  ])
  assert.deepEqual(heard, ['known', 'trusted', 'blocked', undefined])
  assert.deepEqual((await again()).list(), [])
  silence()
  await contacts.importCard(cardOf(ALICE))
  assert.equal(heard.length, 4)
})

test('simultaneous changes are one write, and each sees the effects of earlier ones', async (t) => {
  const { contacts, path, again } = await open(t)
  const written = new Set<string | null>()
  const seenAll = Promise.withResolvers<void>()
  const watcher = watch(dirname(path), (_kind, name) => {
    if (name === 'afterwards') seenAll.resolve()
    else written.add(name)
  })
  t.after(() => watcher.close())
  const ids = Array.from({ length: 50 }, (_none, index) => index.toString(16).padStart(64, '0'))
  const imports = ids.map(async (id, index) => contacts.importCard(cardOf(id), { name: `web${index}`, trust: 'known' }))
  const taken = [
    contacts.importCard(cardOf(ALICE), { name: 'web1' }),
    contacts.meet({ name: 'web2', agent_id: BOB, machine_id: MACHINE, addresses: [] }),
  ]
  for (const change of taken) await assert.rejects(change, { code: 'conflict' })
  assert.equal((await contacts.setTrust('web49', 'blocked')).trust, 'blocked')
  await Promise.all(imports)
  await writeFile(join(dirname(path), 'afterwards'), '')
  await seenAll.promise
  assert.deepEqual(
    (await again()).list().map(({ name, trust }) => [name, trust]),
    ids.map((_id, index) => [`web${index}`, index === 49 ? 'blocked' : 'known']),
  )
  // The file itself, and a temporary file for each write. The second write changes the level.
  assert.equal(written.size, 1 + 2, [...written].join(' '))
})

test('a refused change has no effect and notifies no listener', async (t) => {
  const { contacts, path } = await open(t)
  await contacts.importCard(cardOf(ALICE), { name: 'alice' })
  const before = await readFile(path, 'utf8')
  contacts.onChange(() => assert.fail('nothing changed'))
  await assert.rejects(contacts.setTrust('nobody', 'trusted'))
  await assert.rejects(contacts.unpin('alice', MACHINE))
  await assert.rejects(contacts.remove('nobody'))
  assert.equal(await readFile(path, 'utf8'), before)
})

test('a change that cannot be written has no effect, and the next one works', async (t) => {
  const { contacts, path } = await open(t)
  await contacts.importCard(cardOf(ALICE), { name: 'alice' })
  const directory = join(path, '..')
  await rm(directory, { recursive: true })
  await assert.rejects(contacts.setTrust('alice', 'trusted'), { code: 'ENOENT' })
  assert.equal(contacts.find('alice').trust, 'unknown')
  await mkdir(directory, { mode: 0o700 })
  assert.equal((await contacts.setTrust('alice', 'known')).trust, 'known')
})

const entry = {
  name: 'alice',
  agent_id: ALICE,
  trust: 'known',
  machines: [MACHINE],
  addresses: ['/ip4/10.0.0.1/tcp/1'],
  agent_public_key: null,
  card_issued_at_ms: null,
}

test('a contacts file written by hand is read', async (t) => {
  const { path, again } = await open(t)
  await writeFile(path, JSON.stringify({ version: 1, contacts: [entry] }), { mode: 0o600 })
  assert.deepEqual((await again()).list(), [{ ...entry, formerly: [], labels: {} }])
  const followed = { ...entry, formerly: [BOB] }
  await writeFile(path, JSON.stringify({ version: 1, contacts: [followed] }), { mode: 0o600 })
  assert.deepEqual((await again()).list(), [{ ...followed, labels: {} }])
})

test('an invalid contacts file stops the start, and the message names the place', async (t) => {
  const { path, again } = await open(t)
  const file = (contacts: unknown, more: object = {}): string => JSON.stringify({ version: 1, contacts, ...more })
  const cases: [string, RegExp][] = [
    ['', /contacts\.json/],
    ['{', /contacts\.json:1:2: /],
    ['{\n  "version": 1,\n  "contacts": [,]\n}', /contacts\.json: Unexpected token ',', \S+ \[,\] }" is not valid JSON/],
    ['[]', /expected an object/],
    ['null', /expected an object/],
    ['{"contacts": []}', /version: missing/],
    [file([], { version: 2 }), /version: version 2 is from a later x0x, and this one reads version 1: /],
    [file([{ ...entry, formerly: [BOB, BOB] }]), /contacts\[0\]\.formerly\[1\]: appears twice/],
    [file([], { more: 1 }), /more: unknown key/],
    [file({}), /contacts: expected a list/],
    [file([entry, null]), /contacts\[1\]: expected an object/],
    [file([{ ...entry, admin: true }]), /contacts\[0\]\.admin: unknown key/],
    [file([{ ...entry, trust: undefined }]), /contacts\[0\]\.trust: missing/],
    [file([{ ...entry, trust: 'Trusted' }]), /contacts\[0\]\.trust: expected one of blocked, unknown, known, trusted/],
    [file([{ ...entry, name: 'abcdef' }]), /contacts\[0\]\.name: .*looks like an id/],
    [file([{ ...entry, name: 7 }]), /contacts\[0\]\.name: expected a text/],
    [file([{ ...entry, agent_id: ALICE.toUpperCase() }]), /contacts\[0\]\.agent_id: expected 64/],
    [file([{ ...entry, machines: ['x'] }]), /contacts\[0\]\.machines\[0\]: expected 64/],
    [file([{ ...entry, machines: [MACHINE, MACHINE] }]), /contacts\[0\]\.machines\[1\]: appears twice/],
    [file([{ ...entry, machines: null }]), /contacts\[0\]\.machines: expected a list/],
    [file([{ ...entry, addresses: ['example.org'] }]), /contacts\[0\]\.addresses\[0\]: expected a multiaddr/],
    [file([{ ...entry, addresses: Array(17).fill('/x') }]), /contacts\[0\]\.addresses: at most 16/],
    [file([{ ...entry, agent_public_key: 'a+b' }]), /contacts\[0\]\.agent_public_key: expected base64url/],
    [file([{ ...entry, card_issued_at_ms: -1 }]), /contacts\[0\]\.card_issued_at_ms: expected epoch/],
    [file([entry, { ...entry, agent_id: BOB }]), /contacts\[1\]\.name: appears twice/],
    [file([entry, { ...entry, name: 'bob' }]), /contacts\[1\]\.agent_id: appears twice/],
    [`${file([])}\u0000`, /contacts\.json/],
  ]
  for (const [text, reason] of cases) {
    await writeFile(path, text, { mode: 0o600 })
    await assert.rejects(again(), refused('bad_contacts', reason), text)
  }
  await writeFile(path, Buffer.from([0x7b, 0xff, 0x7d]))
  await assert.rejects(again(), refused('bad_contacts', /contacts\.json/))
})

test('a contacts file that others can read or write is refused', async (t) => {
  const { contacts, path, again } = await open(t)
  await contacts.importCard(cardOf(ALICE))
  for (const mode of [0o640, 0o604, 0o620, 0o666]) {
    await chmod(path, mode)
    await assert.rejects(again(), refused('loose_permissions', /chmod 0600/))
  }
})
