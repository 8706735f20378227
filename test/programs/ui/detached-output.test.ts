import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { ApiCall, LocalApi } from '../../../src/clients/daemon.ts'
import { detachedOutput } from '../../../src/programs/ui/requested-runs.ts'
import { MAX_EVENT_TAIL } from '../../../src/protocol/limits/events.ts'
import { pageRun } from '../../support/page-host.ts'

const REQUEST_ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const DETACHED = pageRun(REQUEST_ID, { detached: true })

const piece = (type: 'stdout' | 'stderr', offset: number, text: string) => ({
  type,
  request_id: REQUEST_ID,
  offset,
  data_b64: Buffer.from(text).toString('base64'),
})
const END = { type: 'end', request_id: REQUEST_ID, state: 'running', from: 0, next: 9 }

const state = (bytes_kept: number, bytes_dropped = 0) => ({
  type: 'state',
  request_id: REQUEST_ID,
  state: 'running',
  from: 0,
  keep_bytes: 1_000_000,
  lifetime_left_ms: null,
  kept_for_ms: null,
  bytes_kept,
  bytes_dropped,
})

/** A daemon whose target answers each call with the next list of lines. */
const reader = (...answers: readonly (readonly object[])[]) => {
  const paths: string[] = []
  const api = {
    open: async ({ path }: ApiCall) => {
      const lines = answers[paths.push(path) - 1] ?? []
      return (async function* () {
        for (const line of lines) yield Buffer.from(`${JSON.stringify(line)}\n`)
      })()
    },
  } as unknown as LocalApi
  const lists = { detached: { forget: () => undefined } } as unknown as Parameters<typeof detachedOutput>[0]['lists']
  return { paths, read: async (run = DETACHED) => detachedOutput({ api, lists }, run, new AbortController().signal) }
}

const pathFrom = (from: number): string => `/runs/${REQUEST_ID}/output?from=${from}&follow=false`

test('the page reads the output of a detached run from its target, with both streams in order', async () => {
  const { paths, read } = reader([state(9), piece('stdout', 0, 'one\n'), piece('stderr', 4, 'two\n'), piece('stdout', 8, '3'), END])
  assert.deepEqual(await read(), { text: 'one\ntwo\n3', truncated: false, bytes_dropped: 0 })
  assert.deepEqual(paths, [pathFrom(0)])
})

test('the page reads only the end of a long output, and says what was cut or dropped', async () => {
  const [size, total] = [4 * MAX_EVENT_TAIL, 1_000_000]
  const first = [state(total, 70), piece('stdout', 0, 'the beginning')]
  const second = [state(total, 77), piece('stdout', total - size, `${'x'.repeat(size - 3)}end`), END]
  const { paths, read } = reader(first, second)
  const { text, truncated, bytes_dropped } = await read()
  assert.deepEqual([truncated, bytes_dropped, text.length <= MAX_EVENT_TAIL, text.includes('xend')], [true, 77, true, true])
  assert.deepEqual(paths, [pathFrom(0), pathFrom(total - size)])
})

test('an error from the target and a run that is not detached are errors', async () => {
  const gone = { type: 'error', request_id: REQUEST_ID, error: 'peer_unreachable', message: 'no way to bob', next: 4 }
  await assert.rejects(reader([state(9), piece('stdout', 0, 'one\n'), gone]).read(), { code: 'peer_unreachable', message: 'no way to bob' })
  for (const run of [pageRun(REQUEST_ID), pageRun(REQUEST_ID, { detached: true, side: 'incoming' })]) {
    const { paths, read } = reader()
    await assert.rejects(read(run), { code: 'conflict' })
    assert.deepEqual(paths, [])
  }
})
