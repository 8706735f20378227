import assert from 'node:assert/strict'
import { test } from 'node:test'

import { wayText } from '../../src/local-api/way-text.ts'

test('the way to an agent is said also of what a daemon of the release before answers', () => {
  assert.equal(wayText({ direct: true, relay: null }), 'direct')
  assert.equal(wayText({ direct: false, relay: 'c'.repeat(64) }), 'relayed by machine cccccccccccc')
  assert.equal(wayText({ direct: true }), 'direct')
  assert.equal(wayText({ direct: false }), 'relayed')
})
