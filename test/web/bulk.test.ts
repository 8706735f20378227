import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { PageContact } from '../../src/protocol/page-lists.ts'
import { type BulkWish, type ContactPlan, changeAll, plansOf } from '../../src/web/trust/bulk.ts'

const contactAt = (at: number, changed: Partial<PageContact> = {}): PageContact => ({
  name: `web${at}`,
  agent_id: at.toString(16).padStart(64, '0'),
  trust: 'known',
  machines: [],
  labels: { role: 'web' },
  revoked: false,
  revoked_machines: [],
  ...changed,
})

const plansFor = (contacts: readonly PageContact[], wish: Partial<BulkWish>): readonly ContactPlan[] => {
  const plans = plansOf(contacts, { trust: null, labels: '', ...wish })
  if (typeof plans === 'string') throw new Error(plans)
  return plans
}

const bodies = (plans: readonly ContactPlan[]): readonly (readonly object[])[] => plans.map(({ calls }) => calls.map(({ body }) => body))

const NO_STOP = new AbortController().signal
const sending = { wait: async () => undefined, tell: () => undefined, signal: NO_STOP }

test('each contact has the calls that it needs, and one that is as wanted has none', () => {
  const contacts = [
    contactAt(1),
    contactAt(2, { trust: 'blocked', labels: { role: 'db', constructor: 'x' } }),
    contactAt(3, { trust: 'blocked' }),
  ]
  assert.deepEqual(bodies(plansFor(contacts, { trust: 'blocked' })), [[{ contact: 'web1', level: 'blocked' }], [], []])
  assert.deepEqual(bodies(plansFor(contacts, { labels: 'role=db constructor=' })), [
    [{ contact: 'web1', labels: { role: 'db' } }],
    [{ contact: 'web2', labels: { constructor: null } }],
    [{ contact: 'web3', labels: { role: 'db' } }],
  ])
  assert.deepEqual(bodies(plansFor(contacts, {})), [[], [], []])
})

test('a level that gives more rights comes after the labels, and one that takes some comes first', () => {
  const [more] = plansFor([contactAt(1)], { trust: 'trusted', labels: 'role=' })
  assert.deepEqual(
    more?.calls.map(({ call, widens }) => [call, widens]),
    [
      ['contact_label', false],
      ['contact_trust', true],
    ],
  )
  const [less] = plansFor([contactAt(1)], { trust: 'blocked', labels: 'role=' })
  assert.deepEqual(
    less?.calls.map(({ call }) => call),
    ['contact_trust', 'contact_label'],
  )
})

test('a wrong label changes no contact', () => {
  for (const labels of ['role', '=db', '__proto__=x', 'role=a role=', 'r\u200bole=db', `${'k'.repeat(65)}=v`, 'role=a,b'])
    assert.equal(typeof plansOf([contactAt(1)], { trust: 'blocked', labels }), 'string', labels)
  const many = Array.from({ length: 33 }, (_, at) => `k${at}=v`).join(' ')
  assert.equal(typeof plansOf([contactAt(1)], { trust: null, labels: many }), 'string')
})

test('a contact that fails stops its own changes and no others', async () => {
  const sent: string[] = []
  const done: number[] = []
  const outcomes = await changeAll(plansFor([contactAt(1), contactAt(2), contactAt(3)], { trust: 'blocked', labels: 'role=' }), {
    ...sending,
    tell: (count) => done.push(count),
    send: async (operation, body) => {
      const { contact } = body as { contact: string }
      sent.push(`${operation} ${contact}`)
      if (contact === 'web1') throw new Error('no such contact')
      if (contact === 'web2' && operation === 'contact_label') throw new Error('the disk is full')
    },
  })
  assert.deepEqual(
    outcomes.map(({ problem }) => problem),
    ['no such contact', '1 of 2 changes of web2 were made. Then: the disk is full', null],
  )
  assert.deepEqual(sent, ['contact_trust web1', 'contact_trust web2', 'contact_label web2', 'contact_trust web3', 'contact_label web3'])
  assert.deepEqual(done, [1, 2, 3])
})

test('a stop leaves the other contacts as they are, and says so of each', async () => {
  const stop = new AbortController()
  let sent = 0
  const outcomes = await changeAll(plansFor([contactAt(1), contactAt(2), contactAt(3)], { trust: 'blocked' }), {
    ...sending,
    signal: stop.signal,
    send: async () => {
      sent += 1
      stop.abort()
    },
  })
  const stopped = 'not changed, because you stopped'
  assert.deepEqual([sent, outcomes.map(({ problem }) => problem)], [1, [null, stopped, stopped]])
})
