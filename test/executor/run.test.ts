import assert from 'node:assert/strict'
import { test } from 'node:test'

import { sha256 } from '../../src/identity/hash.ts'
import { ExecutorHost } from '../support/executor-host.ts'

test('a permitted request runs: Started, output, signed Exit, and its lines in the journal', async (t) => {
  const host = await ExecutorHost.start(t, { scripts: { hello: 'echo out; echo err >&2; exit 3' } })
  await host.befriend(host.peer)
  const network = await host.connect()
  const link = await network.link(host.peer)
  assert.equal(link.decision, 'accept')
  const run = await link.ask([host.program('hello')])
  const exit = await run.exit()
  assert.equal(run.frames[0]?.type, 'started')
  assert.equal(run.output().toString(), 'out\n')
  assert.equal(run.output('stderr').toString(), 'err\n')
  assert.equal(exit.code, 3)
  assert.equal(exit.signal, null)
  assert.equal(exit.denial_reason, null)
  assert.equal(exit.stdout_bytes_total, 4)
  assert.deepEqual(Buffer.from(exit.stdout_sha256), Buffer.from(sha256(Buffer.from('out\n'))))
  assert.deepEqual(await host.events(run.id), ['request', 'started', 'exit'])
  assert.equal(host.counters.activeSessions, 0)
})
