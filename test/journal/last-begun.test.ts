import assert from 'node:assert/strict'
import { appendFile, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { lastBegun } from '../../src/journal/past-runs.ts'
import { denialEvent, exitEvent, localRequest, openJournal, requestEvent, runKey, startedEvent } from '../support/journal.ts'
import { temporaryDirectory } from '../support/processes.ts'

test('lastBegun returns the latest runs of other agents across a rotation, without denied and local runs', async (t) => {
  const { journal, path } = await openJournal(t)
  for (const event of [requestEvent(1), startedEvent(1), exitEvent(1), denialEvent(2), requestEvent(3)]) await journal.append(event)
  await rename(path, `${path}.1`)
  for (const event of [localRequest(4), requestEvent(5, ['echo', '"event":"request"']), startedEvent(5)]) await journal.append(event)
  await appendFile(path, '{"ts":"torn","event":"request"')
  assert.deepEqual((await lastBegun(path, 10)).runs, [runKey(1), runKey(3), runKey(5)])
  assert.ok((await lastBegun(path, 10)).since <= Date.now())
  const { runs, since } = await lastBegun(path, 1)
  assert.deepEqual(runs, [runKey(5)])
  assert.ok(Number.isFinite(since))
  assert.deepEqual((await lastBegun(join(await temporaryDirectory(t), 'none'), 10)).runs, [])
})
