import assert from 'node:assert/strict'
import { test } from 'node:test'

import { changedOverride, overrideText, readModeCommand, readSettings } from '../../src/protocol/desk/mode-command.ts'

const words = (line: string): string[] => line.split(' ')

test('a line sets host, security, ask and node, each independently', () => {
  assert.deepEqual(readModeCommand(words('/exec host=node security=allowlist ask=always node=bob')), {
    kind: 'change',
    change: { host: 'node', security: 'allowlist', ask: 'always', node: 'bob' },
  })
  assert.deepEqual(readSettings(['ask=default']), { kind: 'change', change: { ask: null } })
  assert.deepEqual(readModeCommand(['/exec']), { kind: 'show' })
})

test('/elevated accepts on, ask, full and off, and off restores the earlier settings', () => {
  for (const level of ['on', 'ask', 'full'] as const)
    assert.deepEqual(readModeCommand(['/elevated', level]), { kind: 'change', change: { elevated: level } })
  const before = changedOverride(null, { host: 'node', node: 'bob' })
  const during = changedOverride(before, { elevated: 'full' })
  assert.deepEqual(changedOverride(during, { elevated: null }), before)
})

test('any other line is refused', () => {
  for (const line of [
    '/exec host=moon',
    '/exec host',
    '/exec hosts=node',
    '/exec host=node host=node',
    '/exec ask=Always',
    '/exec elevated=full',
    '/exec node=',
    '/exec node=a\u202eb',
    '/exec constructor=x',
    '/elevated',
    '/elevated yes',
    '/elevated on off',
    '/elevated constructor',
    'exec host=node',
    '',
  ])
    assert.equal(readModeCommand(words(line)).kind, 'problem', line)
})

test('nothing remains set after every setting is back to its default', () => {
  const set = changedOverride(null, { ask: 'always' })
  assert.equal(overrideText(set), 'ask=always')
  assert.equal(changedOverride(set, { ask: null }), null)
  assert.equal(overrideText(null), 'as configured')
  assert.equal(overrideText(changedOverride(set, { elevated: 'ask' })), 'ask=always /elevated ask')
})
