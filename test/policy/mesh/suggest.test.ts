import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { isListed } from '../../../src/policy/mesh/authorize.ts'
import { entryText, suggestionWarnings, unsuggestable } from '../../../src/policy/mesh/suggest.ts'
import { aclOf, aclText, ALICE, LAPTOP, MALLORY } from '../../support/acl-text.ts'
import { tempDir } from '../../support/temp-dir.ts'

const suggested = (argv: readonly string[]): string => entryText({ agent_id: ALICE, machine_id: LAPTOP, description: 'alice' }, argv)

test('a request that no entry can allow is reported with the reason', () => {
  for (const [argv, why] of [
    [[], /it has no program/],
    [['', 'x'], /its program is neither an absolute path nor a bare name/],
    [['./run'], /its program is neither an absolute path nor a bare name/],
    [['echo', 'a;b'], /token 1 contains ";", which every request is refused for/],
    [['echo', '<INT>'], /every request is refused/],
    [['echo', 'a\nb'], /token 1 contains "\\n"/],
    [['echo', '\ud800'], /it is not valid Unicode/],
  ] as const)
    assert.match(unsuggestable(argv) ?? '', why, JSON.stringify(argv))
  assert.equal(unsuggestable(['/usr/bin/df', '-h']), null)
})

test('the suggestion warns about opaque programs only', () => {
  assert.match(suggestionWarnings(['less', 'x']).join('\n'), /^less may start other programs/)
  assert.deepEqual([suggestionWarnings(['df', '-h']), suggestionWarnings([])], [[], []])
})

test('a command line in one word is suggested as a comment, with the words it probably meant', () => {
  for (const line of ['df -h', '/usr/bin/df  -h']) {
    assert.match(
      suggestionWarnings([line]).join('\n'),
      /is one word: the command was probably typed within quotes, so the entry is commented out\. Without the quotes: -- \S+ -h$/,
    )
    assert.match(suggested([line]), /^# argv = \["\S+ +-h"\]$/m)
    assert.deepEqual(aclOf(aclText([suggested([line])])).allow, [])
  }
  assert.doesNotMatch(suggested(['echo', 'a b']), /#/)
})

test('the suggested entry for an unlisted peer is plain ASCII, without hidden or control characters', () => {
  const argv = ['cat', '/srv/\u202egol.txt', '\u009b2Jx', '\u{e0041}', 'p\u0430yments', '\u007f\u001b[2K', '"]\\']
  const text = suggested(argv)
  assert.match(text, /^[ -~\n]+$/)
  assert.deepEqual(
    aclOf(aclText([text])).allow[0]?.commands.map((command) => command.argv),
    [argv],
  )
})

test('property: a suggested entry allows exactly that argv for that pair, without stdin', () => {
  const token = fc.oneof(fc.string({ unit: 'binary', maxLength: 6 }), fc.constantFrom('-h', '"', '\\', "'''", '#', ']', '<INT', 'e\u0301'))
  let made = 0
  fc.assert(
    fc.property(fc.array(token, { maxLength: 4 }), (rest) => {
      const argv = ['p', ...rest]
      if (unsuggestable(argv) !== null) return
      made += 1
      const acl = aclOf(aclText([suggested(argv)]))
      assert.deepEqual(
        acl.allow[0]?.commands.map(({ argv: read, stdin }) => [read, stdin]),
        [[argv, false]],
      )
      // The entry is discoverable, so that `x0x acl mine` and the tools of `x0x mcp --rules` show it to the requester.
      assert.equal(acl.allow[0]?.discoverable, true)
      assert.ok(isListed({ argv, detached: false }, { agentId: ALICE, machineId: LAPTOP }, acl))
      for (const [other, agentId] of [
        [[...argv, 'x'], ALICE],
        [argv.with(argv.length - 1, `${argv.at(-1)}x`), ALICE],
        [argv, MALLORY],
      ] as const)
        assert.ok(!isListed({ argv: other, detached: false }, { agentId, machineId: LAPTOP }, acl))
    }),
    { numRuns: 150 },
  )
  assert.ok(made > 60, `${made}`)
})

test('a file command is suggested as the smallest table that allows it', () => {
  const write = ['@write', '/srv/app/x', `upload=${'0'.repeat(32)}`, 'offset=0']
  for (const [argv, table] of [
    [['@read', '/srv/app/x', 'offset=0', 'length=5'], { root: '/srv/app', read: true, write: false, create_dirs: false }],
    [['@list', '/srv/app'], { root: '/srv/app', read: true, write: false, create_dirs: false }],
    [write, { root: '/srv/app', read: false, write: true, create_dirs: false }],
    [['@mkdir', '/srv/app/d'], { root: '/srv/app', read: false, write: true, create_dirs: true }],
  ] as const) {
    assert.equal(unsuggestable(argv), null)
    const read = aclOf(aclText([suggested(argv)]))
    const [{ root, read: reads, write: writes, create_dirs } = {}] = read.allow[0]?.files ?? []
    assert.deepEqual({ root, read: reads, write: writes, create_dirs }, table)
    assert.ok(isListed({ argv, detached: false }, { agentId: ALICE, machineId: LAPTOP }, read))
  }
  assert.deepEqual(suggestionWarnings(write), ['the entry allows all files below "/srv/app", not only this one'])
})

test('a command for a directory of this machine is suggested with that directory as the root', async (t) => {
  const dir = await tempDir(t)
  const tableOf = (argv: readonly string[]): unknown => {
    const [{ root, read, write, create_dirs } = {}] = aclOf(aclText([suggested(argv)])).allow[0]?.files ?? []
    return { root, read, write, create_dirs }
  }
  assert.deepEqual(tableOf(['@stat', dir]), { root: dir, read: true, write: false, create_dirs: false })
  // A copy to a directory without a trailing slash must read that it is a directory.
  for (const argv of [
    ['@upload', dir, `upload=${'0'.repeat(32)}`],
    ['@write', dir, `upload=${'0'.repeat(32)}`, 'offset=0'],
  ])
    assert.deepEqual(tableOf(argv), { root: dir, read: true, write: true, create_dirs: false })
  assert.deepEqual(tableOf(['@upload', `${dir}/new`, `upload=${'0'.repeat(32)}`]), {
    root: dir,
    read: false,
    write: true,
    create_dirs: false,
  })
})

test('a stat command, the first command of a copy, gives a hint which right a copy needs', () => {
  assert.match(suggestionWarnings(['@stat', '/srv/app/x']).join('\n'), /to allow copies to it, add write = true$/)
})

test('a table for all files, or for an invalid file command, is not suggested', () => {
  assert.match(unsuggestable(['@read', '/x', 'offset=0', 'length=5']) ?? '', /the root would be "\/"/)
  assert.match(unsuggestable(['@list', '/']) ?? '', /the root would be "\/"/)
  for (const argv of [['@read', '/srv/../x'], ['@what', '/srv/x'], ['@']])
    assert.equal(unsuggestable(argv), 'it is not a valid file command')
})

test('the path in a suggested table is plain ASCII without hidden characters', () => {
  const text = suggested(['@list', '/srv/\u202egol/p\u0430y"'])
  assert.match(text, /^[ -~\n]+$/)
})
