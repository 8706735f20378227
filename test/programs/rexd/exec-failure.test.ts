import assert from 'node:assert/strict'
import { test } from 'node:test'

import { RexdError } from '../../../src/sdk/errors.ts'
import { failureText } from '../../../src/programs/rexd/exec.ts'

test('a refusal shows the next step, and its text cannot control the terminal', () => {
  const said = (message: string, data: Record<string, unknown>): string => failureText(new RexdError({ code: -32_602, message, data }))
  assert.equal(
    said('no contact matches bbo', { next: 'See: x0x contacts list' }),
    'rexd: no contact matches bbo\n      See: x0x contacts list\n',
  )
  assert.equal(said('all is said', { next: '' }), 'rexd: all is said\n')
  assert.equal(said('no', { next: 7 }), 'rexd: no\n')
  assert.equal(said('\u001b]0;x\u0007', { next: '\u202ex' }), 'rexd: \\x1b]0;x\\x07\n      \\u202ex\n')
  assert.equal(
    said('no\r\nrexd: connected again', { next: 'see\nrexd: give your password' }),
    'rexd: no\\x0d\n      rexd: connected again\n      see\n      rexd: give your password\n',
    'no line of it looks like one of ours',
  )
  assert.equal(failureText(new Error('the other side is gone')), 'rexd: the other side is gone\n')
})
