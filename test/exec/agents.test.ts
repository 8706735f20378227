import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { AgentDirectory } from '../../src/exec/agents.ts'

const OWN = `aaaaaa11${'0'.repeat(56)}`
const BOB = `bbbbbb11${'0'.repeat(56)}`
const BERT = `bbbbbb22${'0'.repeat(56)}`
const CLARA = `dddddd11${'0'.repeat(56)}`
const SEEN = `cccccc11${'0'.repeat(56)}`

const contact = (name: string, agent_id: string) => ({
  name,
  agent_id,
  trust: 'known' as const,
  machines: [],
  addresses: [],
  formerly: [],
  labels: {},
  revoked: false,
  revoked_machines: [],
})
const snapshot = { contacts: [contact('bob', BOB), contact('bert', BERT), contact('cccccc', CLARA)], groups: [] }
const directory = new AgentDirectory({
  ownAgentId: () => OWN,
  snapshot: () => snapshot,
  discovered: () => [SEEN, BOB],
})

test('64 hex characters select that agent, known or not', () => {
  for (const id of [BOB, 'f'.repeat(64)]) assert.equal(directory.resolve(id), id)
})

test('the name of a contact and a unique prefix of a known ID select the agent', () => {
  assert.equal(directory.resolve('bob'), BOB)
  assert.equal(directory.resolve('bbbbbb2'), BERT)
  assert.equal(directory.resolve('cccccc1'), SEEN)
  assert.equal(directory.resolve('aaaaaa'), OWN)
})

test('a name has precedence over an ID prefix', () => {
  assert.equal(directory.resolve('cccccc'), CLARA)
})

test('an ambiguous prefix is an error that lists its candidates', () => {
  assert.throws(() => directory.resolve('bbbbbb'), {
    code: 'ambiguous_agent',
    data: {
      candidates: [
        { agent_id: BOB, name: 'bob' },
        { agent_id: BERT, name: 'bert' },
      ],
    },
  })
})

test('short prefixes, capitals and unknown names are refused as unknown agents', () => {
  for (const text of ['bbbbb', 'BBBBBB1', 'BOB', 'eeeeee', '', ' bob', 'f'.repeat(65)]) {
    assert.throws(() => directory.resolve(text), { code: 'unknown_agent' }, text)
  }
})

test('a prefix that is too short gets an error with the minimum length', () => {
  assert.throws(() => directory.resolve('bbbbb'), { message: /An ID prefix needs at least 6 characters/ })
  assert.throws(() => directory.resolve('eeeeee'), { message: /no contact or agent matches/ })
})

test('an unlisted agent with the same ID prefix neither replaces nor blocks a contact', () => {
  const forged = `bbbbbb22${'9'.repeat(56)}`
  const crowded = new AgentDirectory({
    ownAgentId: () => OWN,
    snapshot: () => ({ contacts: [contact('bert', BERT)], groups: [] }),
    discovered: () => [forged, `${SEEN.slice(0, 8)}${'1'.repeat(56)}`, SEEN],
  })
  assert.equal(crowded.resolve('bbbbbb'), BERT)
  assert.equal(crowded.resolve('bbbbbb22'), BERT)
  assert.throws(() => crowded.resolve('cccccc'), { code: 'ambiguous_agent' })
})

test('a word with a wildcard is unknown, and the error suggests a node set', () => {
  for (const text of ['all', 'web*', 'web?'])
    assert.throws(
      () => directory.resolve(text),
      (error) => isAppError(error, 'unknown_agent') && /Try: x0x exec 'web\[1-6\]'/.test(String(error.data['next'])),
      text,
    )
  assert.throws(
    () => directory.resolve('alles'),
    (error) => isAppError(error, 'unknown_agent') && error.data['next'] === undefined,
  )
})
