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
  ['no table any more', plain('/a'), of(), 'narrows'],
  ['a first table', of(), plain('/a'), 'widens', /no single files table/],
  ['a root below', plain('/a', WRITE), plain('/a/b', WRITE), 'narrows'],
  ['a root above', plain('/a/b'), plain('/a'), 'widens', /no single files table/],
  ['a root that begins with the same letters', plain('/srv/app'), plain('/srv/application'), 'widens'],
  ['any root for /', plain('/'), plain('/srv'), 'narrows'],
  ['no write any more', plain('/a', WRITE), plain('/a'), 'narrows'],
  ['no read any more', plain('/a', WRITE), plain('/a', { read: false, ...WRITE }), 'narrows'],
  ['write as well', plain('/a'), plain('/a', WRITE), 'widens', /no single files table/],
  ['read as well', plain('/a', { read: false, ...WRITE }), plain('/a', WRITE), 'widens'],
  ['directories as well', plain('/a', WRITE), plain('/a', { ...WRITE, create_dirs: true }), 'widens', /create_dirs is true, and was not/],
  ['no directories any more', plain('/a', { ...WRITE, create_dirs: true }), plain('/a', WRITE), 'narrows'],
  ['smaller files', plain('/a', WRITE), plain('/a', { ...WRITE, max_file_bytes: 5 }), 'narrows'],
  ['larger files', plain('/a', { ...WRITE, max_file_bytes: 5 }), plain('/a', WRITE), 'widens', /max_file_bytes is 1073741824, and was 5/],
  ['a total', plain('/a', WRITE), plain('/a', { ...WRITE, max_total_bytes: 9 }), 'narrows'],
  [
    'no total any more',
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
  ['a mode with one bit more', plain('/a', WRITE), plain('/a', { ...WRITE, mode: '0645' }), 'widens', /mode is 0645, and was 0644/],
  ['one bit more and one less', plain('/a', WRITE), plain('/a', { ...WRITE, mode: '0700' }), 'widens'],
  ['an approval', plain('/a', WRITE), plain('/a', { ...WRITE, ask: true }), 'narrows'],
  ['no approval any more', plain('/a', { ...WRITE, ask: true }), plain('/a', WRITE), 'widens', /ask is no longer true/],
  [
    'a table without approval before one with it',
    of(filesText('/a', { ask: true })),
    of(filesText('/a/b'), filesText('/a', { ask: true })),
    'widens',
    /ask is no longer true/,
  ],
  [
    'no approvers any more',
    entry({}, `approvers = [{ agent_id = "${MALLORY}" }]\n`),
    entry({}),
    'widens',
    /fewer or other agents must approve/,
  ],
  ['an owner', plain('/a', WRITE), plain('/a', { ...WRITE, owner: 'app' }), 'widens', /owner is another/],
  ['no owner any more', plain('/a', { ...WRITE, owner: 'app' }), plain('/a', WRITE), 'widens', /owner is another/],
  ['less time', entry({}), entry({ max_duration_secs: 5 }), 'narrows'],
  ['discoverable', entry({}), entry({}, 'discoverable = true\n'), 'widens', /discoverable is true, and was not/],
  [
    'two tables in another order, whose roots have nothing in common',
    of(filesText('/a'), filesText('/b')),
    of(filesText('/b'), filesText('/a')),
    'equal',
  ],
  ['one table in two', plain('/a', WRITE), of(filesText('/a'), filesText('/a', { read: false, ...WRITE })), 'equal'],
  ['exec off', plain('/a'), aclOf(aclText([entryText([['true']])]).replace('enabled = true', 'enabled = false')), 'narrows'],
]

for (const [what, before, after, verdict, why] of verdicts)
  test(`${what}: ${verdict}`, () => {
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

test('tables of another pair are no excuse', () => {
  const mallory = aclOf(aclText([entryText([['true']]), entryText([], { agent_id: MALLORY }) + filesText('/a')]))
  assert.equal(
    compareAcl(mallory, aclOf(aclText([entryText([['true']]) + filesText('/a'), entryText([['true']], { agent_id: MALLORY })]))).verdict,
    'widens',
  )
})

test('what a smaller root of the pair took first keeps its limits', () => {
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
