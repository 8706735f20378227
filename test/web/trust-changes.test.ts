import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { PageContact } from '../../src/protocol/page-lists.ts'
import { changesOf, labelsOf } from '../../src/web/trust/changes.ts'

const [one, two] = ['1'.repeat(64), '2'.repeat(64)]
const contact: PageContact = {
  name: 'web1',
  agent_id: 'a'.repeat(64),
  trust: 'trusted',
  machines: [one],
  labels: { role: 'web', site: 'ber' },
  revoked: false,
  revoked_machines: [],
}

test('a move to another machine pins the new machine first, so that the trust level stays', () => {
  const calls = changesOf(contact, { trust: 'trusted', machines: [two], labels: '' }, contact.labels)
  assert.deepEqual(
    calls.map(({ call, body }) => [call, body]),
    [
      ['contact_pin', { contact: 'web1', machine_id: two }],
      ['contact_unpin', { contact: 'web1', machine_id: one }],
    ],
  )
})

test('changes remove rights before they grant others, and removing the last pin states its effect', () => {
  const less = changesOf(contact, { trust: 'blocked', machines: [], labels: '' }, { role: 'db' })
  assert.deepEqual(
    less.map(({ call }) => call),
    ['contact_trust', 'contact_unpin', 'contact_label'],
  )
  assert.match(less[1]!.sentence, /last pin, so it becomes known, and its commands are denied/)
  assert.deepEqual(less[2]!.body, { contact: 'web1', labels: { site: null, role: 'db' } })
  const more = changesOf({ ...contact, trust: 'known' }, { trust: 'trusted', machines: [one, two], labels: '' }, contact.labels)
  assert.deepEqual(
    more.map(({ call, widens }) => [call, widens]),
    [
      ['contact_pin', true],
      ['contact_trust', true],
    ],
  )
})

test('labels have the form key=value, and any other word is reported', () => {
  assert.deepEqual(labelsOf(' role=db  site=a=b '), { labels: { role: 'db', site: 'a=b' } })
  for (const text of ['role', 'role=', '=db', '__proto__=x']) assert.ok('problem' in labelsOf(text), text)
  assert.deepEqual(changesOf(contact, { trust: 'trusted', machines: [one], labels: '' }, contact.labels), [])
})
