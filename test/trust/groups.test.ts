import assert from 'node:assert/strict'
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { MAX_GROUP_WORDS, MAX_GROUPS } from '../../src/protocol/limits/fleet.ts'
import { inspectGroups, loadGroups } from '../../src/trust/groups.ts'
import { tempDir } from '../support/temp-dir.ts'

const placeOf = async (t: TestContext): Promise<string> => join(await tempDir(t), 'groups.toml')

const problemsOf = async (path: string, text: string): Promise<string> => {
  await writeFile(path, text, { mode: 0o600 })
  const { problems } = await inspectGroups(path)
  return problems.join('\n').replaceAll(path, 'FILE')
}

test('without a file there are no groups', async (t) => {
  assert.deepEqual(await loadGroups(await placeOf(t)), [])
})

test('groups contain host words like those of a fan-out, and other groups', async (t) => {
  const path = await placeOf(t)
  const text = '[groups]\nweb = ["web[1-20]", "!web3"]\nprod = ["@web,role=db"] # all\ndrained = []\n"a.b" = ["alice"]\n'
  assert.equal(await problemsOf(path, text), '')
  assert.deepEqual(await loadGroups(path), [
    { name: 'web', words: ['web[1-20]', '!web3'] },
    { name: 'prod', words: ['@web,role=db'] },
    { name: 'drained', words: [] },
    { name: 'a.b', words: ['alice'] },
  ])
  assert.equal(await problemsOf(path, ''), '')
  assert.equal(await problemsOf(path, '[groups]\n'), '')
})

const WRONG: readonly [string, RegExp][] = [
  ['[groups', /^FILE:1:\d+: /],
  ['[group]\n', /^FILE:1: group: unknown key\. Did you mean groups\?$/],
  ['groups = 1', /^FILE:1: groups: must be a table/],
  ['[groups]\nweb = "web1"', /^FILE:2: groups\.web: must be a list of strings, not "web1"$/],
  ['[groups]\n\nweb = ["a", 1]', /^FILE:3: groups\.web: must be a list of strings/],
  ['[groups.web]\nhosts = ["a"]', /^FILE:1: groups\.web: must be a list of strings, not a table$/],
  ['[groups]\n"we b" = ["a"]', /^FILE:2: groups\.we b: "we b" is not a group name/],
  ['[groups]\nweb = ["web[3-1]"]', /^FILE:2: groups\.web: .*a range goes backwards/],
  ['[groups]\nweb = ["web[1-99999]"]', /^FILE:2: groups\.web: .*this selects 99999 hosts/],
  ['[groups]\nweb = ["!web1"]', /^FILE:2: groups\.web: "!web1" excludes hosts, but no hosts are included\. Add at least one host$/],
  ['[groups]\nweb = [""]', /^FILE:2: groups\.web: a host is missing/],
  ['[groups]\nweb = ["a"]\nprod = ["@wbe", "!@x"]', /^FILE:3: groups\.prod: unknown group @wbe\nFILE:3: groups\.prod: unknown group @x$/],
  ['[groups]\nweb = ["@web"]', /^FILE:2: groups\.web: this group contains itself: @web has @web$/],
  ['[groups]\na = ["@b"]\nb = ["x", "!@c"]\nc = ["@a"]', /^FILE:2: groups\.a: this group contains itself: @a has @b has @c has @a$/],
  ['[groups]\nx = ["@a"]\na = ["@b"]\nb = ["@a"]', /^FILE:3: groups\.a: .* @a has @b has @a$/],
]

test('each problem of the file is reported with its line and key, and stops the load', async (t) => {
  const path = await placeOf(t)
  for (const [text, why] of WRONG) {
    assert.match(await problemsOf(path, text), why, text)
    await assert.rejects(loadGroups(path), { code: 'bad_groups' })
  }
  await writeFile(path, Buffer.from([0xff]))
  await assert.rejects(loadGroups(path), { code: 'bad_groups', message: /not valid UTF-8/ })
})

test('the number of groups and words has an exact limit', async (t) => {
  const path = await placeOf(t)
  const chain = (count: number): string =>
    Array.from({ length: count }, (_, index) => `g${index} = [${index === 0 ? '"a"' : `"@g${index - 1}"`}]`).join('\n')
  assert.equal(await problemsOf(path, `[groups]\n${chain(MAX_GROUPS)}`), '')
  assert.match(await problemsOf(path, `[groups]\n${chain(MAX_GROUPS + 1)}`), /has 1001 groups/)
  const words = (count: number): string => `[groups]\na = [${Array.from({ length: count - 1 }, () => '"a"').join()}]\nb = ["b"]`
  assert.equal(await problemsOf(path, words(MAX_GROUP_WORDS)), '')
  assert.match(await problemsOf(path, words(MAX_GROUP_WORDS + 1)), /has 10001 words/)
})

test('a groups file is refused if others may write it or its directory', async (t) => {
  const path = await placeOf(t)
  await writeFile(path, '[groups]\n', { mode: 0o600 })
  for (const mode of [0o620, 0o602, 0o666]) {
    await chmod(path, mode)
    await assert.rejects(loadGroups(path), { code: 'bad_groups', message: /chmod/ })
  }
  await chmod(path, 0o644)
  assert.deepEqual(await loadGroups(path), [])
  const open = join(path, '..', 'open')
  await mkdir(open)
  await writeFile(join(open, 'groups.toml'), '[groups]\n', { mode: 0o600 })
  await chmod(open, 0o777)
  await assert.rejects(loadGroups(join(open, 'groups.toml')), { code: 'bad_groups', message: /chmod/ })
})
