import assert from 'node:assert/strict'
import { test } from 'node:test'

import { startMcp } from '../../test/support/mcp-server.ts'

test('a thousand calls at once are queued with progress messages, and all are answered', async (t) => {
  // On a busy machine, all calls together take longer than the default limit of a call.
  const server = await startMcp(t, { limits: 'max_processes_per_session = 4' }, { flags: ['--answer-within-ms', '600000'] })
  let told = 0
  const calls = Array.from({ length: 1_000 }, async (_one, at) => {
    const onprogress = (): void => void (told += 1)
    return server.run('exec_capture', { command: 'echo', args: [String(at)] }, { onprogress, timeout: 120_000 })
  })
  const results = await Promise.all(calls)
  assert.deepEqual(
    results.map(({ stdout }) => stdout),
    results.map((_one, at) => `${at}\n`),
  )
  assert.ok(told >= 998)
})
