import assert from 'node:assert/strict'
import { test } from 'node:test'

import { DM_COUNTERS, DmCounters } from '../../src/links/counters.ts'

test('a snapshot contains every counter from the start, and failed handshakes by reason', () => {
  const counters = new DmCounters()
  counters.linkFailed('timeout')
  counters.linkFailed('timeout')
  const { link_failures, ...totals } = counters.snapshot()
  assert.deepEqual(Object.keys(totals).toSorted(), Object.keys(DM_COUNTERS).toSorted())
  assert.equal(totals.links_failed, 2)
  assert.deepEqual(link_failures, { timeout: 2 })
})
