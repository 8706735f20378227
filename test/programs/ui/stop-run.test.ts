import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import type { ApiCall, LocalApi } from '../../../src/clients/daemon.ts'
import { OPERATOR_PROOF_HEADER } from '../../../src/identity/operator-proof.ts'
import { stopRun } from '../../../src/programs/ui/requested-runs.ts'
import type { PageRun } from '../../../src/protocol/page-lists.ts'
import { pageRun } from '../../support/page-host.ts'
import { tempDir } from '../../support/temp-dir.ts'

/** Stops runs at a daemon that records its calls. */
const stopper = (operatorKey: string) => {
  const calls: ApiCall[] = []
  const forgotten = Promise.withResolvers<void>()
  const json = async (call: ApiCall): Promise<unknown> => {
    calls.push(call)
    return { ok: true }
  }
  const api = { isLocal: true, paths: { operatorKey }, json } as unknown as LocalApi
  const lists = { detached: { forget: () => forgotten.resolve() } } as unknown as Parameters<typeof stopRun>[0]['lists']
  const stop = async (run: PageRun | null) => stopRun({ api, lists }, run, new AbortController().signal)
  return { calls, forgotten: forgotten.promise, stop, paths: () => calls.map(({ path }) => path) }
}

const going = (changed: Partial<PageRun> = {}): PageRun => pageRun('r1', { result: 'running', code: null, ...changed })

test('the page stops a run of this agent with an operator proof, and cancels no run without the key', async (t) => {
  const key = join(await tempDir(t), 'operator.key')
  const { stop, calls, paths } = stopper(key)
  await assert.rejects(stop(going()), { code: 'operator_proof_required' })
  assert.ok(!paths().includes('/exec/cancel'))
  await writeFile(key, `${'a'.repeat(64)}\n`)
  await stop(going())
  const { path, body, headers } = calls.at(-1)!
  assert.deepEqual([path, body], ['/exec/cancel', '{"request_id":"r1"}'])
  assert.match(headers?.[OPERATOR_PROOF_HEADER] ?? '', /^v1\./)
  await stop(going({ result: 'waiting' }))
  assert.equal(paths().filter((one) => one === '/exec/cancel').length, 2)
})

test('the page does not stop runs of other agents, runs of local programs, or ended runs', async (t) => {
  const key = join(await tempDir(t), 'operator.key')
  await writeFile(key, `${'a'.repeat(64)}\n`)
  const { stop, calls } = stopper(key)
  await assert.rejects(stop(null), { code: 'unknown_run' })
  for (const run of [going({ side: 'incoming' }), going({ side: 'local' }), pageRun('r1'), going({ result: 'unknown' })])
    await assert.rejects(stop(run), { code: 'conflict' })
  assert.deepEqual(calls, [])
})

test('after a detached run is stopped, the page waits for its end and reads the list again', async () => {
  const { stop, forgotten, calls } = stopper('/nowhere')
  await stop(going({ detached: true }))
  await forgotten
  assert.deepEqual(
    calls.map(({ path, body }) => [path, body]),
    [
      ['/runs/cancel', { request_id: 'r1' }],
      ['/runs/wait', { request_ids: ['r1'], timeout_ms: 8_000 }],
    ],
  )
})
