import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import { refusalOf } from '../../../src/doors/mcp/server.ts'
import { MAX_NEXT } from '../../../src/protocol/limits/tools.ts'

const textOf = (error: AppError): string => {
  const [text] = refusalOf(error).content
  assert.ok(text?.type === 'text')
  return text.text
}

test('a refused call shows the error and then the next step, shortened and escaped', () => {
  assert.equal(textOf(new AppError('no_hosts', 'nobody')), 'no_hosts: nobody')
  assert.equal(textOf(new AppError('no_hosts', 'nobody', { data: { next: '' } })), 'no_hosts: nobody')
  assert.equal(textOf(new AppError('no_hosts', 'nobody', { data: { next: 7 } })), 'no_hosts: nobody')
  assert.equal(
    textOf(new AppError('no_hosts', 'no\u202ebody', { data: { next: 'see \u001b[1mwho' } })),
    'no_hosts: no\\u202ebody\nsee \\x1b[1mwho',
  )
  const [, next] = textOf(new AppError('no_hosts', 'nobody', { data: { next: 'x'.repeat(10_000) } })).split('\n')
  assert.equal(next?.length, MAX_NEXT)
})
