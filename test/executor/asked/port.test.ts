import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { AppError, type ErrorCode } from '../../../src/base/errors.ts'
import { MAX_REFUSED_ARGV } from '../../../src/journal/refusals.ts'
import { ASKED_PAGE } from '../../../src/protocol/limits/detached.ts'
import { MAX_ARGV_BYTES } from '../../../src/protocol/limits/wire.ts'
import { ExecutorHost } from '../../support/executor-host.ts'

const hash = (n: number): string => n.toString(16).padStart(64, '0')

const asked = (changes: object = {}) => ({
  request_id: randomUUID(),
  agent_id: 'a1'.repeat(32),
  machine_id: '0c'.repeat(32),
  argv: ['make', 'all'],
  lifetime_ms: null,
  keep_bytes: 4096,
  session: null,
  digest: hash(1),
  request: hash(2),
  ...changes,
})

const refused = (code: ErrorCode) => (error: unknown) => error instanceof AppError && error.code === code

test('detached runs that one network process requested are listed for the next one', async (t) => {
  const host = await ExecutorHost.start(t)
  const first = await host.connect()
  const run = asked({ argv: ['x'.repeat(MAX_ARGV_BYTES - 1)] })
  assert.equal(await first.client.asked.add(run), true)
  assert.equal(await first.client.asked.add({ ...run, request: hash(3) }), false)
  const news = { state: 'running', code: null, signal: null, denial_reason: null } as const
  await first.client.asked.record(run.request_id, news)
  const second = await host.connect()
  const [row, ...others] = await second.client.asked.list()
  assert.deepEqual(others, [])
  assert.deepEqual([row?.request_id, row?.state, row?.requests], [run.request_id, 'running', [hash(2), hash(3)]])
  // A long argv is cut, so that requests do not fill the file.
  assert.equal(row?.argv.join('').length, MAX_REFUSED_ARGV)
  assert.equal(row?.argv_cut?.bytes, MAX_ARGV_BYTES - 1)
  assert.deepEqual(await second.client.asked.get(run.request_id), row)
  assert.equal((await stat(join(host.dir, 'detached-runs.json'))).mode & 0o777, 0o600)
  await second.client.asked.forget(run.request_id)
  await assert.rejects(first.client.asked.get(run.request_id), refused('unknown_run'))
  assert.deepEqual(await first.client.asked.list(), [])
})

test('a list that is longer than one message is returned complete and without duplicates', async (t) => {
  const host = await ExecutorHost.start(t)
  const { client } = await host.connect()
  const ids = Array.from({ length: ASKED_PAGE + 3 }, () => randomUUID())
  for (let at = 0; at < ids.length; at += 500)
    await Promise.all(ids.slice(at, at + 500).map(async (request_id) => client.asked.add(asked({ request_id }))))
  assert.deepEqual(
    (await client.asked.list()).map(({ request_id }) => request_id),
    ids,
  )
})
