import type { ContactRecord } from '../../../src/protocol/api-answers.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import { AgentDirectory } from '../../../src/exec/agents.ts'
import { MAX_FANOUT_HOSTS } from '../../../src/protocol/limits/fleet.ts'
import type { Labels } from '../../../src/protocol/hosts/labels.ts'
import { patient } from '../../support/wait-limits.ts'

const OWN = `aaaaaa11${'0'.repeat(56)}`
const STRANGER = `cccccc11${'0'.repeat(56)}`

const idOf = (index: number): string => `${index.toString(16).padStart(8, '0')}${'d'.repeat(56)}`

const contact = (name: string, index: number, labels: Labels = {}): ContactRecord => ({
  name,
  agent_id: idOf(index),
  trust: name === 'web4' ? 'blocked' : 'trusted',
  machines: [],
  addresses: [],
  formerly: [],
  labels,
  revoked: false,
  revoked_machines: [],
})

const CONTACTS = [
  ...Array.from({ length: 9 }, (_, index) => contact(`web${index + 1}`, index + 1, { role: 'web', site: index < 4 ? 'ber' : 'ams' })),
  contact('db1', 20, { role: 'db' }),
  contact('db2', 21, { role: 'db', maintenance: 'yes' }),
  contact('laptop', 0xabcdef12),
]

const GROUPS = {
  web: ['web[1-9]', '!web9'],
  db: ['role=db'],
  prod: ['@web', '@db'],
  drained: [],
  stale: ['web[8-11]', 'web13'],
  typo: ['role=bd'],
}

const directoryOf = (contacts: ContactRecord[], groups: Readonly<Record<string, string[]>>): AgentDirectory => {
  const snapshot = { contacts, groups: Object.entries(groups).map(([name, words]) => ({ name, words })) }
  return new AgentDirectory({ ownAgentId: () => OWN, snapshot: () => snapshot, discovered: () => [STRANGER] })
}

const directory = directoryOf(CONTACTS, GROUPS)
const select = (...words: string[]): string =>
  directory
    .select(words)
    .map(({ host }) => host)
    .join(' ')

test('names, IDs, node sets, labels and groups select contacts in the given order', () => {
  assert.equal(select('web2', 'web1'), 'web2 web1')
  assert.equal(select('db1,web[1-3]'), 'db1 web1 web2 web3')
  assert.equal(select('role=db', 'site=ams'), 'db1 db2 web5 web6 web7 web8 web9')
  assert.equal(select('@prod'), 'web1 web2 web3 web4 web5 web6 web7 web8 db1 db2')
  assert.equal(select(idOf(3), 'abcdef1'), 'web3 laptop')
})

test('an agent that is not a contact is selected only by its ID', () => {
  assert.equal(select(STRANGER, 'cccccc'), STRANGER)
  assert.deepEqual(directory.select([OWN, 'web1']), [
    { host: OWN, agent_id: OWN, labels: {}, trust: null },
    { host: 'web1', agent_id: idOf(1), labels: { role: 'web', site: 'ber' }, trust: 'trusted' },
  ])
})

test('a host that is selected twice appears once', () => {
  assert.equal(select('web1', 'web1', idOf(1), 'web[1-2]', 'role=web,!web[3-9]'), 'web1 web2')
  assert.equal(select('laptop', 'abcdef12', idOf(0xabcdef12)), 'laptop')
})

test('an excluded host is left out, wherever the exclusion is, and also by a group', () => {
  assert.equal(select('!web2', 'web[1-3]'), 'web1 web3')
  assert.equal(select('role=web', '!site=ber'), 'web5 web6 web7 web8 web9')
  assert.equal(select('@prod', '!@web'), 'db1 db2')
  assert.equal(select('web9', '@web', '!role=db'), 'web9 web1 web2 web3 web4 web5 web6 web7 web8')
  assert.equal(select('web1', '!@drained', '!db1'), 'web1')
  assert.equal(select('role=db', '!maintenance=yes'), 'db1')
  assert.equal(select('role=db', '!maintenance=no'), 'db1 db2', 'a value that nobody has, of a label that somebody has')
})

test('a blocked contact stays in the selection and is shown as blocked', () => {
  assert.deepEqual(
    directory.select(['web[3-4]']).map(({ host, trust }) => [host, trust]),
    [
      ['web3', 'trusted'],
      ['web4', 'blocked'],
    ],
  )
})

const REFUSED: readonly [readonly string[], string, RegExp][] = [
  [['wbe1'], 'unknown_agent', /^no contact matches wbe1 \(unknown_agent\)\. Did you mean web1\?$/],
  [['web[8-12]', 'web15', 'db3'], 'unknown_agent', /^no contact matches db3,web\[10-12,15\] \(unknown_agent\)$/],
  [['web1', '!web99'], 'unknown_agent', /^no contact matches web99/],
  [['@stale'], 'unknown_agent', /^no contact matches web\[10-11,13\] \(of @stale\) \(unknown_agent\)$/],
  [['@wbe'], 'unknown_agent', /^unknown group @wbe\. Did you mean @web\?$/],
  [['web1', '!@nobody'], 'unknown_agent', /^unknown group @nobody$/],
  [['role=dbx'], 'unknown_agent', /^no contact has the label role=dbx\. Did you mean role=db\?$/],
  [['@typo'], 'unknown_agent', /^no contact has the label role=bd \(of @typo\)\. Did you mean role=db\?$/],
  [['web1', '!rloe=db'], 'unknown_agent', /^no contact has the label rloe=db/],
  [['constructor=x'], 'unknown_agent', /^no contact has the label constructor=x$/],
  [['eeeeee'], 'unknown_agent', /no contact or agent matches/],
  [['000000'], 'ambiguous_agent', /could be/],
  [['@drained'], 'no_hosts', /no host is left/],
  [['web1', '!web1'], 'no_hosts', /no host is left/],
  [['role=db', '!role=db'], 'no_hosts', /no host is left/],
  [['web[3-1]'], 'bad_request', /goes backwards/],
  [['web[1-99999]'], 'bad_request', /selects 99999 hosts/],
]

test('a selection without hosts, or with unknown ones, is refused with a reason', () => {
  for (const [words, code, why] of REFUSED)
    assert.throws(
      () => directory.select(words),
      (error) => isAppError(error) && error.code === code && why.test(error.message),
      words.join(' '),
    )
})

test('an error message names only some of many hosts, in folded form', () => {
  const odd = Array.from({ length: 500 }, (_, index) => `x${2 * index}`)
  assert.throws(
    () => directory.select(odd),
    (error) => isAppError(error, 'unknown_agent') && error.message.length < 300 && /500 names/.test(error.message),
  )
})

const many = Array.from({ length: MAX_FANOUT_HOSTS }, (_, index) => contact(`n${index}`, index + 1, { all: 'yes' }))

test('a selection may have as many hosts as a fan-out, but not more', () => {
  assert.equal(directoryOf(many, {}).select(['all=yes']).length, MAX_FANOUT_HOSTS)
  assert.equal(directoryOf(many, {}).select([many.map(({ name }) => name).join()]).length, MAX_FANOUT_HOSTS)
  const more = directoryOf([...many, contact('more', 99_999, { all: 'yes' })], {})
  assert.throws(() => more.select(['all=yes']), { code: 'bad_request', message: /select 10001 hosts/ })
  assert.equal(more.select(['all=yes', '!more']).length, MAX_FANOUT_HOSTS, 'what is left out does not count')
})

test('slow selections are refused, such as many ID prefixes or deeply nested groups', () => {
  const prefixes = many.slice(0, 101).map(({ agent_id }) => agent_id.slice(0, 8))
  assert.equal(directoryOf(many, {}).select(prefixes.slice(1)).length, 100)
  assert.throws(() => directoryOf(many, {}).select(prefixes), { code: 'bad_request', message: /by an ID prefix/ })
  const chain = Object.fromEntries(Array.from({ length: 900 }, (_, index) => [`g${index}`, index === 0 ? ['all=yes'] : [`@g${index - 1}`]]))
  assert.throws(() => directoryOf(many, chain).select(['@g899']), { code: 'bad_request', message: /select too many hosts/ })
  assert.equal(directoryOf(many, chain).select(['@g5']).length, MAX_FANOUT_HOSTS)
})

test('a selection of 10,000 hosts blocks the event loop only briefly', () => {
  const big = directoryOf(many, {})
  const before = performance.now()
  for (let turn = 0; turn < 10; turn++) big.select(['n[0-9999]', '!n[0-9998]'])
  assert.ok(performance.now() - before < patient(5000))
})
