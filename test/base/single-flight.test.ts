import assert from 'node:assert/strict'
import { test } from 'node:test'

import { SingleFlight } from '../../src/base/wait-queue.ts'

test('a call with an aborted signal rejects at once and starts no work', async () => {
  const work = new SingleFlight<number>()
  let begun = 0
  const never = async (): Promise<number> => {
    begun += 1
    return new Promise(() => undefined)
  }
  await assert.rejects(work.run('key', never, AbortSignal.abort(new Error('gone'))), /gone/)
  assert.equal(begun, 0)
})
