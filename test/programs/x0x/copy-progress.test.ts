import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { Output } from '../../../src/cli/output.ts'
import { CopyProgress } from '../../../src/programs/x0x/copy/copy-progress.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const STATE = {
  type: 'waiting_for_approval',
  request_id: '0',
  agent_id: 'a'.repeat(64),
  machine_id: 'b'.repeat(64),
  expires_in_ms: 120_000,
  approvals_needed: 0,
  approvals_given: 0,
  reason: 'human',
} as const

const progressOn = (isTTY: boolean, more: { quiet?: boolean; off?: boolean } = {}) => {
  const written: string[] = []
  const clock = new ManualClock()
  const stderr = { isTTY, columns: 200, write: (text: string) => written.push(text) > 0 } as unknown as Output
  const { quiet = false, off = false } = more
  return { written, clock, progress: new CopyProgress({ stderr, clock }, { off, quiet, host: 'bob' }) }
}

test('on a terminal, the progress line counts down while a file waits for approval', async () => {
  const { written, clock, progress } = progressOn(true)
  progress.start({ files: 2, bytes: 100 })
  await clock.advance(600)
  progress.waits('/srv/app/one', STATE)
  progress.waits('/srv/app/two', STATE)
  await clock.advance(1_400)
  assert.match(written.at(-1) ?? '', /x0x: one and 1 more: waiting for approval: an approver of bob; 1:59 left, Ctrl-C withdraws it$/)
  progress.waits('/srv/app/one', null)
  await clock.advance(200)
  assert.match(written.at(-1) ?? '', /x0x: two: waiting for approval/)
  progress.waits('/srv/app/two', null)
  await clock.advance(200)
  assert.match(written.at(-1) ?? '', /x0x: \[-+\] +0 %/)
  progress.end()
  assert.deepEqual([written.at(-1), clock.pending], ['\r\u001b[K', 0])
})

test('a directory that waits for approval before the copy gets a line, which is erased afterwards', async () => {
  const { written, clock, progress } = progressOn(true)
  progress.waits('/srv/app/dir', STATE)
  assert.match(written.at(-1) ?? '', /x0x: dir: waiting for approval/)
  progress.waits('/srv/app/dir', null)
  assert.deepEqual([written.at(-1), clock.pending], ['\r\u001b[K', 0])
})

test('without a progress line, each wait prints one escaped line, and --quiet prints none', () => {
  for (const { written, progress } of [progressOn(false), progressOn(true, { off: true })]) {
    progress.waits('/srv/a\u001b[2J', STATE)
    progress.waits('/srv/a\u001b[2J', null)
    assert.deepEqual(written, ['x0x: /srv/a\\x1b[2J: waiting for approval: an approver of bob; 2:00 left, Ctrl-C withdraws it\n'])
  }
  const { written, progress } = progressOn(false, { quiet: true })
  progress.waits('/srv/a', STATE)
  assert.deepEqual(written, [])
})
