import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import { normalName, selectNode, type KnownNode } from '../../../src/executor/local/exec-target.ts'

// O13: agent of the mesh that a text selects.

const idOf = (digits: string): string => digits.padEnd(64, '0')

const node = (digits: string, more: Partial<KnownNode> = {}): KnownNode => ({
  agent_id: idOf(digits),
  contact: null,
  names: [],
  addresses: [],
  ...more,
})

const BOB = node('b0b0aa', { contact: 'bob', names: ['Build Server'], addresses: ['/ip4/192.0.2.7/tcp/5483'] })
const CHARLIE = node('c0ffee11', { contact: 'charlie', names: ['charlie_mac'], addresses: ['/ip6/2001:db8::9/tcp/5483'] })
const STRANGER = node('b0b0bb', { names: ['bob', 'Build Server'], addresses: ['/ip4/192.0.2.7/tcp/5483'] })
const NODES = [STRANGER, BOB, CHARLIE]

const candidatesOf = (text: string, nodes: readonly KnownNode[]): unknown => {
  try {
    return selectNode(text, nodes)
  } catch (error) {
    assert.ok(isAppError(error, 'ambiguous_agent'), String(error))
    return (error.data['candidates'] as { agent_id: string }[]).map(({ agent_id }) => agent_id)
  }
}

const candidateOf = (text: string, nodes: readonly KnownNode[]): string => selectNode(text, nodes).agent_id

test('O13: a node is selected by ID, name in any spelling, address or beginning of the ID', () => {
  const bob = { agent_id: BOB.agent_id, name: 'bob' }
  const texts = [
    'bob',
    'BOB',
    'build server',
    'Build_Server',
    'build-server',
    '192.0.2.7',
    '192.0.2.7:5483',
    '/ip4/192.0.2.7/tcp/5483',
    'b0b0aa',
  ]
  for (const text of [...texts, BOB.agent_id]) assert.deepEqual(selectNode(text, NODES), bob, text)
  for (const text of ['2001:db8::9', '[2001:db8::9]:5483', 'Charlie.Mac', 'c0ffee'])
    assert.equal(selectNode(text, NODES).agent_id, CHARLIE.agent_id, text)
})

test('a full ID selects its agent, known or not', () => {
  const id = idOf('abcdef')
  assert.deepEqual(selectNode(id, NODES), { agent_id: id, name: null })
})

test('an unlisted agent is selected by the beginning of its ID only if no contact matches, never by name', () => {
  const only = [STRANGER]
  for (const text of ['bob', 'Build Server', '192.0.2.7']) assert.throws(() => selectNode(text, only), /no contact has the name/, text)
  assert.deepEqual(selectNode('b0b0bb', NODES), { agent_id: STRANGER.agent_id, name: null })
  const near = node('b0b0aa77', { names: ['bob'] })
  assert.equal(selectNode('b0b0aa', [near, BOB]).agent_id, BOB.agent_id)
})

test('O20: a text that matches several contacts is an error that lists them', () => {
  const other = node('b0b0cc', { contact: 'Bob.', names: ['build server'] })
  assert.deepEqual(candidatesOf('build server', [BOB, other]), [BOB.agent_id, other.agent_id])
  const [one, two] = [node('aaaaaa1', { contact: 'one' }), node('aaaaaa2', { contact: 'two' })]
  assert.deepEqual(candidatesOf('aaaaaa', [one, two]), [one.agent_id, two.agent_id])
  // An exact name has precedence over a similar one.
  assert.equal(selectNode('bob', [BOB, node('b0b0dd', { contact: 'BOB' })]).agent_id, BOB.agent_id)
})

test('a name that a contact gives itself never selects it in place of another agent', () => {
  const deploy = node('b0b0aa', { contact: 'Deploy', addresses: ['/ip4/192.0.2.7/tcp/5483'] })
  const names = ['deploy', '192.0.2.7', '192.0.2.7:5483', 'b0b0aa', 'b0b0bb']
  const nodes = [node('eeeeee', { contact: 'mallory', names }), deploy, STRANGER]
  for (const text of ['deploy', '192.0.2.7', '192.0.2.7:5483', 'b0b0aa']) assert.equal(candidateOf(text, nodes), deploy.agent_id, text)
  assert.equal(candidateOf('b0b0bb', nodes), STRANGER.agent_id)
})

test('a beginning of fewer than six digits and an unknown text select no agent', () => {
  for (const text of ['b0b0a', 'nobody', '', '-', '192.0.2.8', '192.0.2.7:1'])
    assert.throws(
      () => selectNode(text, NODES),
      (error) => isAppError(error, 'unknown_agent'),
      text,
    )
})

test('names are compared by their visible form', () => {
  assert.equal(normalName(' Ｂｕｉｌｄ  Server_2.'), 'build-server-2-')
})
