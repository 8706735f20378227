import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import type { Acl, AllowEntry } from '../../../src/policy/mesh/acl.ts'
import { compareAcl } from '../../../src/policy/mesh/compare-acl.ts'
import { findGrant } from '../../../src/policy/mesh/file-grants.ts'
import type { FileCommand } from '../../../src/protocol/file-command.ts'
import { aclOf, aclText, entryText, filesText, MALLORY } from '../../support/acl-text.ts'

type Keys = Record<string, string | number | boolean>
const of = (...tables: string[]): Acl => aclOf(aclText([entryText([['true']]) + tables.join('')]))
const plain = (root: string, keys: Keys = {}): Acl => of(filesText(root, keys))
const WRITE = { write: true }
const entry = (keys: Record<string, string | number>, head = ''): Acl =>
  aclOf(aclText([entryText([['true']], keys).replace('[[exec.allow.commands]]', `${head}[[exec.allow.commands]]`) + filesText('/a')]))

const verdicts: readonly (readonly [what: string, old: Acl, next: Acl, verdict: 'equal' | 'narrows' | 'widens', why?: RegExp])[] = [
  ['the same table', plain('/a', WRITE), plain('/a', WRITE), 'equal'],
  ['a removed table', plain('/a'), of(), 'narrows'],
  ['a first table', of(), plain('/a'), 'widens', /no single files table/],
  ['a lower root', plain('/a', WRITE), plain('/a/b', WRITE), 'narrows'],
  ['a higher root', plain('/a/b'), plain('/a'), 'widens', /no single files table/],
  ['a root with the same prefix as text', plain('/srv/app'), plain('/srv/application'), 'widens'],
  ['another root in place of /', plain('/'), plain('/srv'), 'narrows'],
  ['a removed write right', plain('/a', WRITE), plain('/a'), 'narrows'],
  ['a removed read right', plain('/a', WRITE), plain('/a', { read: false, ...WRITE }), 'narrows'],
  ['an added write right', plain('/a'), plain('/a', WRITE), 'widens', /no single files table/],
  ['an added read right', plain('/a', { read: false, ...WRITE }), plain('/a', WRITE), 'widens'],
  ['an added create_dirs', plain('/a', WRITE), plain('/a', { ...WRITE, create_dirs: true }), 'widens', /create_dirs is true, and was not/],
  ['a removed create_dirs', plain('/a', { ...WRITE, create_dirs: true }), plain('/a', WRITE), 'narrows'],
  ['a lower limit of file size', plain('/a', WRITE), plain('/a', { ...WRITE, max_file_bytes: 5 }), 'narrows'],
  [
    'a higher limit of file size',
    plain('/a', { ...WRITE, max_file_bytes: 5 }),
    plain('/a', WRITE),
    'widens',
    /max_file_bytes is 1073741824, and was 5/,
  ],
  ['a limit of the total size', plain('/a', WRITE), plain('/a', { ...WRITE, max_total_bytes: 9 }), 'narrows'],
  [
    'a removed limit of the total size',
    plain('/a', { ...WRITE, max_total_bytes: 9 }),
    plain('/a', WRITE),
    'widens',
    /max_total_bytes is not set, and was 9/,
  ],
  [
    'a smaller root with the same total, which counts fewer files',
    plain('/a', { ...WRITE, max_total_bytes: 9 }),
    plain('/a/b', { ...WRITE, max_total_bytes: 9 }),
    'widens',
    /max_total_bytes counted the files below \/a/,
  ],
  ['a mode with fewer bits', plain('/a', WRITE), plain('/a', { ...WRITE, mode: '0600' }), 'narrows'],
  ['a mode with one more bit', plain('/a', WRITE), plain('/a', { ...WRITE, mode: '0645' }), 'widens', /mode is 0645, and was 0644/],
  ['a mode with one bit added and one removed', plain('/a', WRITE), plain('/a', { ...WRITE, mode: '0700' }), 'widens'],
  ['an added approval', plain('/a', WRITE), plain('/a', { ...WRITE, ask: true }), 'narrows'],
  ['a removed approval', plain('/a', { ...WRITE, ask: true }), plain('/a', WRITE), 'widens', /ask is no longer true/],
  [
    'a table without approval before one with it',
    of(filesText('/a', { ask: true })),
    of(filesText('/a/b'), filesText('/a', { ask: true })),
    'widens',
    /ask is no longer true/,
  ],
  [
    'removed approvers',
    entry({}, `approvers = [{ agent_id = "${MALLORY}" }]\n`),
    entry({}),
    'widens',
    /fewer or other agents must approve/,
  ],
  ['an added owner', plain('/a', WRITE), plain('/a', { ...WRITE, owner: 'app' }), 'widens', /owner is another/],
  ['a removed owner', plain('/a', { ...WRITE, owner: 'app' }), plain('/a', WRITE), 'widens', /owner is another/],
  ['less time', entry({}), entry({ max_duration_secs: 5 }), 'narrows'],
  ['an added discoverable', entry({}), entry({}, 'discoverable = true\n'), 'widens', /discoverable is true, and was not/],
  ['two tables with separate roots in another order', of(filesText('/a'), filesText('/b')), of(filesText('/b'), filesText('/a')), 'equal'],
  ['one table split into two', plain('/a', WRITE), of(filesText('/a'), filesText('/a', { read: false, ...WRITE })), 'equal'],
  ['a disabled exec', plain('/a'), aclOf(aclText([entryText([['true']])]).replace('enabled = true', 'enabled = false')), 'narrows'],
]

for (const [what, before, after, verdict, why] of verdicts)
  test(`compareAcl reports ${verdict} for ${what}`, () => {
    const found = compareAcl(before, after)
    assert.equal(found.verdict, verdict, JSON.stringify(found))
    if (why !== undefined) assert.match(found.more.map((one) => one.why).join('\n'), why)
    const back = compareAcl(after, before).verdict
    if (verdict === 'narrows') assert.equal(back, 'widens')
    if (verdict === 'equal') assert.equal(back, 'equal')
  })

test('a difference names the pair, the rule and the line of the table', () => {
  const [one] = compareAcl(of(), plain('/srv/app')).more
  assert.deepEqual([one?.argv, one?.line], [['@read', '/srv/app/'], 11])
  const created = compareAcl(plain('/srv', WRITE), plain('/srv', { ...WRITE, create_dirs: true })).more
  assert.deepEqual(
    created.map(({ argv }) => argv),
    [
      ['@write', '/srv/'],
      ['@mkdir', '/srv/'],
    ],
  )
})

test('a table of another pair does not count', () => {
  const mallory = aclOf(aclText([entryText([['true']]), entryText([], { agent_id: MALLORY }) + filesText('/a')]))
  assert.equal(
    compareAcl(mallory, aclOf(aclText([entryText([['true']]) + filesText('/a'), entryText([['true']], { agent_id: MALLORY })]))).verdict,
    'widens',
  )
})

test('the limits of a smaller root that matches first still count', () => {
  const small = filesText('/a/b', { ...WRITE, max_file_bytes: 5 })
  const large = filesText('/a', WRITE)
  const both = of(small, large)
  assert.equal(compareAcl(both, of(small, large)).verdict, 'equal')
  assert.equal(compareAcl(both, of(large)).verdict, 'widens', 'files below /a/b may be larger')
  assert.equal(compareAcl(both, of(large, small)).verdict, 'widens')
  assert.equal(compareAcl(both, of(small)).verdict, 'narrows')
})

const keys = fc.record({
  root: fc.constantFrom('/', '/a', '/a/b', '/ab', '/a/b/c'),
  read: fc.boolean(),
  write: fc.constant(true),
  create_dirs: fc.boolean(),
  max_file_bytes: fc.constantFrom(1, 2, 3),
  mode: fc.constantFrom('0600', '0640', '0604'),
  ask: fc.boolean(),
})
const anyAcl = fc
  .array(fc.array(keys, { maxLength: 3 }), { minLength: 1, maxLength: 2 })
  .map((entries) =>
    aclOf(aclText(entries.map((tables) => entryText([['true']]) + tables.map(({ root, ...rest }) => filesText(root, rest)).join('')))),
  )

const commands = ['/', '/a', '/a/b', '/ab', '/a/b/c', '/a/x', '/a/b/x', '/a/b/c/x', '/x'].flatMap((path): FileCommand[] => [
  { op: 'stat', path },
  { op: 'upload', path, upload: '0'.repeat(32) },
  { op: 'mkdir', path, mode: null },
])

test('property: if a file narrows another, each command that it allows was allowed with the same limits or wider ones', () => {
  let narrower = 0
  fc.assert(
    fc.property(anyAcl, anyAcl, (old, next) => {
      assert.equal(compareAcl(old, old).verdict, 'equal')
      if (compareAcl(old, next).verdict === 'widens') return
      narrower += 1
      const grantOf = (entries: readonly AllowEntry[], command: FileCommand) => findGrant(entries, command)?.grant
      for (const command of commands) {
        const now = grantOf(next.allow, command)
        if (now === undefined) continue
        const before = grantOf(old.allow, command)
        assert.ok(before, `${command.op} ${command.path}`)
        assert.ok(now.ask || !before.ask)
        if (command.op === 'stat') continue
        assert.ok(
          now.max_file_bytes <= before.max_file_bytes && (now.mode & ~before.mode) === 0 && (before.create_dirs || !now.create_dirs),
        )
      }
    }),
    { numRuns: 3_000 },
  )
  assert.ok(narrower > 50, `${narrower} pairs`)
})
