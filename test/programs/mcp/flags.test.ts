import assert from 'node:assert/strict'
import { test } from 'node:test'

import { MCP } from '../../../src/cli/programs.ts'
import { mcpFlags } from '../../../src/programs/mcp/flags.ts'
import { lineOf } from '../../support/line-of.ts'

const flags = (...argv: string[]) => mcpFlags(lineOf(MCP, argv))

test('options of a server mean nothing where none is to be, and are refused there', () => {
  const instead = [['--init', '/srv'], ['--check']]
  const ofServers = [
    ['--record', '/tmp/record'],
    ['--rules', 'bob'],
    ['--answer-within-ms', '1000'],
  ]
  for (const one of instead)
    for (const other of ofServers)
      assert.throws(() => flags('--whoami', 'reviewer', ...one, ...other), { code: 'bad_config' }, [...one, ...other].join(' '))
  const served = flags('--whoami', 'reviewer', ...ofServers.flat())
  assert.deepEqual(served, {
    mode: 'serve',
    whoami: 'reviewer',
    config: '/etc/rexd/config.toml',
    answerWithinMs: 1000,
    record: '/tmp/record',
    rules: 'bob',
  })
})

test('a server without --whoami says that it is missing; an empty name is another mistake', () => {
  assert.throws(() => flags('--config', '/etc/x'), { code: 'bad_config', message: /^missing --whoami NAME: / })
  assert.throws(() => flags('--whoami', ''), { code: 'bad_config', message: /^--whoami: "" is not a name of 1 to/ })
})
