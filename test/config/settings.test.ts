import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'

import { SETTING_KEYS, SETTINGS, variableOf } from '../../src/config/config.ts'

test('every setting has its line in docs/config.md, with its flag and its variable, and no line is left over', async () => {
  const text = await readFile(new URL('../../docs/config.md', import.meta.url), 'utf8')
  const settings = text.slice(text.indexOf('## Settings'), text.indexOf('## An example'))
  const rows = settings.split('\n').filter((line) => /^\| `[a-z]/.test(line))
  assert.deepEqual(
    rows.map((row) => /^\| `(\w+)`/.exec(row)?.[1]),
    SETTING_KEYS.toSorted((a, b) => settings.indexOf(`| \`${a}\``) - settings.indexOf(`| \`${b}\``)),
  )
  for (const key of SETTING_KEYS) {
    const row = rows.find((line) => line.startsWith(`| \`${key}\``)) ?? ''
    const { flag } = SETTINGS[key]
    assert.ok(row.includes(`\`${variableOf(key)}\``), key)
    assert.ok(flag === null ? !row.includes('--') : row.includes(`--${flag} `), key)
  }
})
