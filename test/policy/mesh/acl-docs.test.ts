import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'

import { DEFAULT_CAPS } from '../../../src/policy/mesh/acl.ts'
import { GATES } from '../../../src/policy/mesh/authorize.ts'
import { SCRUBBED_PATH } from '../../../src/policy/environment.ts'
import { aclOf, readText } from '../../support/acl-text.ts'

const docs = await readFile(new URL('../../../docs/acl.md', import.meta.url), 'utf8')

test('the example of docs/acl.md is a valid file without warnings', () => {
  const [, text] = /```toml\n([\s\S]*?)```/.exec(docs) ?? []
  assert.ok(text)
  assert.equal(aclOf(text).allow.length, 2)
  assert.deepEqual(readText(text).warnings, [])
})

test('docs/acl.md gives each cap with its default', () => {
  for (const [key, value] of Object.entries(DEFAULT_CAPS)) assert.match(docs, new RegExp(`^\\| \`${key}\` \\| ${value}\\b`, 'm'))
})

test('docs/acl.md lists every key that the loader knows', () => {
  const known = (text: string): string[] => /known here: (.*)$/.exec(readText(text).problems[0] ?? '')?.[1]?.split(', ') ?? []
  const keys = [
    ...known('[exec]\naudit_log_path = "/a"\nx = 1'),
    ...known('[exec]\naudit_log_path = "/a"\n[[exec.allow]]\nx = 1'),
    ...known('[exec]\naudit_log_path = "/a"\n[[exec.allow]]\n[[exec.allow.commands]]\nx = 1'),
  ]
  assert.ok(keys.length > 20, keys.join(' '))
  for (const key of keys) assert.ok(docs.includes(`\`${key}\``), key)
})

test('docs/acl.md lists the gates in their order and the PATH', () => {
  const table = docs.slice(docs.indexOf('| gate |'))
  const rows = [...table.matchAll(/^\| ([a-z]+) \|/gm)].map((match) => match[1])
  assert.deepEqual(rows.slice(1, 1 + GATES.length), GATES)
  assert.ok(docs.includes(`\`${SCRUBBED_PATH}\``))
})
