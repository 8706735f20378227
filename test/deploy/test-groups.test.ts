import assert from 'node:assert/strict'
import { globSync } from 'node:fs'
import { test } from 'node:test'

import { grouped, leavesNoTrace } from '../../deploy/test-groups.mjs'

interface Started {
  readonly groups: readonly { readonly name: string; readonly files: readonly string[] }[]
  readonly alone: readonly string[]
}

test('each file of tests is started once, in a group of its room or alone', () => {
  const files = globSync(['test/**/*.test.ts', 'e2e/**/*.test.ts']).toSorted()
  const { groups, alone }: Started = grouped(files)
  assert.deepEqual([...alone, ...groups.flatMap((group) => group.files)].toSorted(), files)
  for (const { name, files: together } of groups)
    assert.deepEqual([...new Set(together.map((file) => file.split('/').slice(0, 2).join('-')))], [name.replace(/-\d+$/, '')])
  assert.equal(new Set(groups.map(({ name }) => name)).size, groups.length)
})

test('what starts a whole daemon, changes its process or is about it has one of its own', () => {
  assert.ok(leavesNoTrace('test/policy/mesh/match.test.ts'))
  for (const file of [
    'test/programs/x0xd/daemon.test.ts',
    'test/desk/desk-failures.test.ts',
    'test/fs/rights.test.ts',
    'test/process/cgroups.test.ts',
  ])
    assert.ok(!leavesNoTrace(file), file)
})
