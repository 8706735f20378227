import assert from 'node:assert/strict'
import { test } from 'node:test'

import { parseMcpFlags } from '../../../src/programs/mcp/flags.ts'

test('options of a server mean nothing where none is to be, and are refused there', () => {
  const instead = [['--init', '/srv'], ['--check']]
  const ofServers = [
    ['--record', '/tmp/record'],
    ['--rules', 'bob'],
    ['--answer-within-ms', '1000'],
  ]
  for (const one of instead)
    for (const other of ofServers)
      assert.throws(() => parseMcpFlags(['--whoami', 'reviewer', ...one, ...other]), { code: 'bad_config' }, [...one, ...other].join(' '))
  const served = parseMcpFlags(['--whoami', 'reviewer', ...ofServers.flat()])
  assert.deepEqual(served, {
    mode: 'serve',
    whoami: 'reviewer',
    config: '/etc/rexd/config.toml',
    answerWithinMs: 1000,
    record: '/tmp/record',
    rules: 'bob',
  })
})
