import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'

import { SCRUBBED_PATH } from '../../../src/policy/environment.ts'
import { aclOf, readText } from '../../support/acl-text.ts'

const docs = await readFile(new URL('../../../docs/acl.md', import.meta.url), 'utf8')

test('the example in docs/acl.md is a valid file without warnings', () => {
  const [, text] = /```toml\n([\s\S]*?)```/.exec(docs) ?? []
  assert.ok(text)
  assert.equal(aclOf(text).allow.length, 1)
  assert.deepEqual(readText(text).warnings, [])
})

test('docs/acl.md shows the PATH of programs', () => {
  assert.ok(docs.includes(`\`${SCRUBBED_PATH}\``))
})
