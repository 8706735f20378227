import assert from 'node:assert/strict'
import { test } from 'node:test'

import { FIRST_STATE, reduce, statusText, type PageState } from '../../src/web/store.ts'
import { pendingOf } from '../support/page-host.ts'

const about = { daemon: '0.3.0', name: 'bob', data_dir: '/home/bob/.x0x' }
const open = reduce(FIRST_STATE, { type: 'desk', open: true, problem: null })
const asked = reduce(open, { type: 'question', question: pendingOf('one') })

const textOf = (state: PageState, facts: typeof about | null | { daemon: null; name: null; data_dir: string }, now = 0): string =>
  statusText({ state, about: facts, now }).text

test('the status line names the daemon and the number of waiting approvals', () => {
  assert.equal(textOf(FIRST_STATE, null), 'Connecting to x0x ui …')
  assert.equal(textOf(open, about), 'Connected to x0xd of bob. Nothing waits.')
  assert.equal(textOf(asked, about), 'Connected to x0xd of bob. 1 approval waits.')
  assert.deepEqual(statusText({ state: asked, about, now: 0 }).tone, 'wait')
})

test('the status line says whether the daemon or the approval service is missing, and the consequence', () => {
  const none = { daemon: null, name: null, data_dir: '/x' }
  const shut = reduce(open, { type: 'desk', open: false, problem: 'it ended' })
  assert.equal(textOf(open, none), 'Connected to the approval service in /x; no x0xd answers. Nothing waits.')
  assert.match(textOf(shut, about), /^Connected to x0xd of bob, but not to an approval service: commands that need approval are denied\.$/)
  assert.equal(textOf(shut, none), 'No x0xd and no approval service answer in /x; retrying.')
})

test('the time since a lost connection does not restart when the page tries again', () => {
  const lost = reduce(open, { type: 'connection', connection: 'lost', at: 1_000 })
  const again = reduce(lost, { type: 'connection', connection: 'lost', at: 9_000 })
  assert.equal(textOf(again, about, 13_000), 'No connection to x0x ui for 12 s; retrying. New requests are not shown.')
  assert.equal(
    textOf(reduce(open, { type: 'connection', connection: 'signed-out', at: 1 }), about),
    'Signed out. New requests are not shown.',
  )
})
