import assert from 'node:assert/strict'
import { globSync } from 'node:fs'
import { test } from 'node:test'

import { CAMPAIGN_FILES, campaignStages } from '../../deploy/campaign-files.mjs'
import { grouped, leavesNoTrace, LONGEST, testFiles } from '../../deploy/test-groups.mjs'
import { dependsOnUser, NAMED, userTests } from '../../deploy/user-tests.mjs'

interface Started {
  readonly groups: readonly { readonly name: string; readonly files: readonly string[] }[]
  readonly alone: readonly string[]
}

test('each test file starts once, in a group of its directory or alone', () => {
  const files = globSync(['test/**/*.test.ts', 'e2e/**/*.test.ts']).toSorted()
  const { groups, alone }: Started = grouped(files)
  assert.deepEqual([...alone, ...groups.flatMap((group) => group.files)].toSorted(), files)
  const [first, rooms] = [groups.slice(0, LONGEST.length), groups.slice(LONGEST.length)]
  assert.deepEqual(
    first.map((group) => group.files),
    LONGEST.map((file) => [file]),
  )
  // The test runner sorts by name.
  for (const { name } of first)
    assert.ok(
      rooms.every((group) => name < group.name),
      name,
    )
  for (const { name, files: together } of rooms)
    assert.deepEqual([...new Set(together.map((file) => file.split('/').slice(0, 2).join('-')))], [name.replace(/-\d+$/, '')])
  assert.equal(new Set(groups.map(({ name }) => name)).size, groups.length)
})

test('a test that starts a daemon or changes its process runs in a separate process', () => {
  assert.ok(leavesNoTrace('test/policy/mesh/match.test.ts'))
  for (const file of [
    'test/programs/x0xd/daemon.test.ts',
    'test/desk/desk-failures.test.ts',
    'test/fs/rights.test.ts',
    'test/process/cgroups.test.ts',
  ])
    assert.ok(!leavesNoTrace(file), file)
})

test('tests of rights, users and containment also run as an ordinary user, and pure computations do not', () => {
  for (const file of [
    'test/base/file-rights.test.ts',
    'test/fs/rights.test.ts',
    'test/identity/key-file.test.ts',
    'test/process/cgroups.test.ts',
    'test/supervision/lock.test.ts',
    'test/attacks/network-process.test.ts',
    'test/policy/writable-programs.test.ts',
    'e2e/rexd/ssh.test.ts',
    'e2e/sandbox/escape.test.ts',
    'e2e/console/ending.test.ts',
    'e2e/first-minutes.test.ts',
  ])
    assert.ok(dependsOnUser(file), file)
  for (const file of [
    'test/policy/mesh/match.test.ts',
    'test/protocol/lines.test.ts',
    'e2e/rexd/conformance.test.ts',
    'e2e/observe.test.ts',
  ])
    assert.ok(!dependsOnUser(file), file)
})

test('each file in the list of tests for ordinary users exists and is listed once', () => {
  const all = globSync(['test/**/*.test.ts', 'e2e/**/*.test.ts'])
  const named: readonly string[] = userTests()
  assert.equal(new Set(named).size, named.length)
  for (const file of NAMED) assert.ok(all.includes(file) && named.includes(file), file)
})

test('each campaign file runs once, in one lane of one stage', () => {
  const lanes = (campaignStages() as readonly (readonly (readonly string[])[])[]).flat()
  assert.deepEqual(lanes.flat().toSorted(), globSync(CAMPAIGN_FILES).toSorted())
  for (const lane of lanes) assert.ok(lane.length > 0)
})

test('a directory selects all tests below it, and a file selects only that file', () => {
  const below = globSync(testFiles('test/deploy'))
  assert.ok(below.includes('test/deploy/test-groups.test.ts'))
  assert.deepEqual(
    below.filter((file) => !file.endsWith('.test.ts')),
    [],
  )
  assert.deepEqual(globSync(testFiles('test/deploy/test-groups.test.ts')), ['test/deploy/test-groups.test.ts'])
  assert.deepEqual(globSync(testFiles('test/no-such-directory')), [])
})
