import assert from 'node:assert/strict'
import { test } from 'node:test'

import { shownToken } from '../../src/base/visible-text.ts'
import { tokenParts } from '../../src/web/token-text.ts'

test('the pieces of a token say together what is shown of it, and escapes and letters of other scripts are apart', () => {
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

test('a backslash of the token itself is never taken for an escape of ours', () => {
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
