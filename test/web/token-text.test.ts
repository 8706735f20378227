import assert from 'node:assert/strict'
import { test } from 'node:test'

import { shownToken } from '../../src/base/visible-text.ts'
import { tokenParts } from '../../src/web/token-text.ts'

test('the parts of a token join to its shown text, with escapes and letters of other scripts separate', () => {
  assert.deepEqual(tokenParts('git'), [{ kind: 'plain', text: '"git"' }])
  assert.deepEqual(tokenParts(''), [{ kind: 'plain', text: '""' }])
  assert.deepEqual(tokenParts('a\u202e\nb"\\'), [
    { kind: 'plain', text: '"a' },
    { kind: 'escape', text: '\\u202e\\n' },
    { kind: 'plain', text: 'b' },
    { kind: 'escape', text: '\\"\\\\' },
    { kind: 'plain', text: '"' },
  ])
  assert.deepEqual(
    tokenParts('p\u0430y').map(({ kind }) => kind),
    ['plain', 'foreign', 'plain'],
  )
})

test('a backslash in a token is not taken for an escape that the page added', () => {
  const [text, escape] = tokenParts('\\x1b').slice(0, 2)
  assert.deepEqual([text?.text, escape], ['"', { kind: 'escape', text: '\\\\' }])
  for (const token of ['\\u202e', '\u{e0041}', 'x\u0301\u0301\u0301\u0301', '\ud800', '\u200d', 'שלום'])
    assert.equal(
      tokenParts(token)
        .map(({ text }) => text)
        .join(''),
      shownToken(token),
    )
})
