import assert from 'node:assert/strict'
import { test } from 'node:test'

import { MCP } from '../../../src/cli/programs.ts'
import { mcpFlags } from '../../../src/programs/mcp/flags.ts'
import { lineOf } from '../../support/line-of.ts'

const flags = (...argv: string[]) => mcpFlags(lineOf(MCP, argv))

test('--init and --check refuse options that only a running server uses', () => {
  const rules = ['--rules', 'bob']
  const ofServers = [
    ['--record', '/tmp/record'],
    ['--answer-within-ms', '1000'],
  ]
  const refused = [
    ...ofServers.map((other) => ['--init', '/srv', ...other]),
    ...[...ofServers, rules].map((other) => ['--check', ...other]),
  ]
  for (const words of refused) assert.throws(() => flags('--whoami', 'reviewer', ...words), { code: 'bad_config' }, words.join(' '))
  const served = flags('--whoami', 'reviewer', ...ofServers.flat(), ...rules)
  assert.deepEqual(served, {
    mode: 'serve',
    whoami: 'reviewer',
    config: '/etc/rexd/config.toml',
    answerWithinMs: 1000,
    record: '/tmp/record',
    rules: 'bob',
  })
})

test('--init takes one agent whose rules become tools, and refuses "*"', () => {
  const init = { mode: 'init', directory: '/srv', whoami: 'agent', config: null }
  assert.deepEqual(flags('--init', '/srv', '--rules', 'bob'), { ...init, rules: 'bob' })
  assert.deepEqual(flags('--init', '/srv'), { ...init, rules: null })
  assert.throws(() => flags('--init', '/srv', '--rules', '*'), { code: 'bad_config', message: /"\*" is not a name/ })
})

test('a missing --whoami and an empty name get different messages', () => {
  assert.throws(() => flags('--config', '/etc/x'), { code: 'bad_config', message: /^missing --whoami NAME: / })
  assert.throws(() => flags('--whoami', ''), { code: 'bad_config', message: /^--whoami: "" is not a name of 1 to/ })
})
