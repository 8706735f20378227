import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { acquaint, proxiedPair } from '../test/support/proxied-pair.ts'
import { SlowProxy } from '../test/support/slow-proxy.ts'

const MIB = 1024 * 1024

// A slow path is not a dead path. Any bytes that arrive, of any run, show that the connection works.
test('a quiet command keeps its connection while the output of another run fills a slow path for seconds', async (t) => {
  const stage = await proxiedPair(t, (port) => new SlowProxy(port, { bytesPerSecond: 384 * 1024 }))
  const { alice, bob, mesh } = stage
  const quiet = await mesh.program('quiet', `echo ready; while [ ! -e ${join(mesh.root, 'go')} ]; do sleep 0.05; done; exit 3`)
  const loud = await mesh.program('loud', `exec head -c ${3 * MIB} /dev/zero`)
  await acquaint(stage, [[quiet], [loud]])
  const running = alice.startCli(['exec', 'bob', '--', quiet])
  await running.printed('ready')
  const result = await alice.cli(['exec', 'bob', '--', loud])
  assert.deepEqual([result.status, result.stdout.length, result.stderr], [0, 3 * MIB, ''])
  await writeFile(join(mesh.root, 'go'), '')
  assert.equal((await running.finished).status, 3)
  const { requester } = await alice.json<{ requester: Record<string, number> }>('diagnostics', 'exec')
  assert.deepEqual([requester['runs_resumed'], requester['runs_incomplete'], requester['runs_completed']], [0, 0, 2])
  assert.equal((await alice.json<Record<string, number>>('diagnostics', 'dm'))['links_opened'], 1)
  assert.equal((await bob.diagnostics()).totals['runs_resumed'], 0)
})
