import assert from 'node:assert/strict'
import { test } from 'node:test'

import { countAsking, lintAsking } from '../../../src/policy/mesh/asking-rules.ts'
import { aclOf, aclText, entryText, MALLORY } from '../../support/acl-text.ts'

const pattern = (...argv: string[]): string => `[[exec.allow.ask_patterns]]\nargv = ${JSON.stringify(argv)}\n`
const always = (argv: string[], reason = 'it matters'): string =>
  `[[exec.always_ask]]\nargv = ${JSON.stringify(argv)}\nreason = ${JSON.stringify(reason)}\n`
const entry = (commands: string[][], patterns: string[][], more = ''): string => {
  const ask = patterns.length > 0 ? 'ask = "on-miss"\n' : ''
  return `${entryText([]).trimEnd()}\n${ask}${more}${commands.map((argv) => `[[exec.allow.commands]]\nargv = ${JSON.stringify(argv)}\n`).join('')}${patterns.map((argv) => pattern(...argv)).join('')}`
}
const lint = (entries: string[], rules: string[] = []): string[] =>
  lintAsking(aclOf(aclText(entries, `default_cwd = "/"\n${rules.join('')}`)))

test('the report counts entries, patterns, rules and distinct agents that ask, and the highest number of approvals', () => {
  const approvers = (...ids: string[]): string => `approvers = [${ids.map((id) => `{ agent_id = "${id}" }`).join(', ')}]\n`
  const other = 'e5'.repeat(32)
  const acl = aclOf(
    aclText(
      [entry([['true']], [['ls'], ['df', '<ANY...>']], approvers(MALLORY, other)), entry([['id']], [], approvers(MALLORY))],
      always(['ls']),
    ),
  )
  assert.deepEqual(countAsking(acl), {
    asking_entry_count: 1,
    ask_pattern_count: 2,
    always_ask_count: 1,
    approver_count: 2,
    approvals_needed: 2,
  })
  assert.deepEqual(Object.values(countAsking(null)), [0, 0, 0, 0, 0])
})

test('an ask pattern that never matches gives a warning with the earlier line', () => {
  for (const [commands, patterns, told] of [
    [[['ls', '<INT>']], [['ls', '5']], /ask_patterns\[0\]\.argv: has no effect: line \d+ allows it without approval/],
    [
      [],
      [
        ['ls', '<ANY...>'],
        ['ls', '/srv', '<ANY...>'],
      ],
      /ask_patterns\[1\]\.argv: has no effect: line \d+ has this and more/,
    ],
    [[], [['ls', '<ANY...>'], ['ls']], /ask_patterns\[1\].*this and more/],
    [
      [],
      [
        ['ls', 'a'],
        ['ls', 'a'],
      ],
      /ask_patterns\[1\].*the same/,
    ],
  ] as const) {
    const warnings = lint([
      entry(
        commands.map((one) => [...one]),
        patterns.map((one) => [...one]),
      ),
    ])
    assert.equal(warnings.length, 1, JSON.stringify(warnings))
    assert.match(warnings[0] ?? '', told)
  }
  // A command of a later entry of the pair also precedes the patterns.
  assert.match(lint([entry([], [['ls', '5']]), entry([['ls', '5']], [])]).join(), /has no effect: line/)
})

test('an ask pattern that matches new requests gives no warning', () => {
  for (const [commands, patterns] of [
    [[['ls', '5']], [['ls', '<INT>']]],
    [[['ls']], [['ls', '<ANY...>']]],
    [
      [],
      [
        ['ls', 'a'],
        ['ls', '<ANY...>'],
      ],
    ],
    [[], [['ls', 'a', '<ANY...>'], ['ls']]],
    [
      [],
      [
        ['df', '<ANY...>'],
        ['ls', '<ANY...>'],
      ],
    ],
  ] as const)
    assert.deepEqual(
      lint([
        entry(
          commands.map((one) => [...one]),
          patterns.map((one) => [...one]),
        ),
      ]),
      [],
      JSON.stringify(patterns),
    )
})

test('an always_ask rule that no command can match, or that an earlier rule covers, gives a warning', () => {
  const allowed = [entry([['ls', '-l', '<INT>']], [['df', '<ANY...>']])]
  assert.match(lint(allowed, [always(['sl', '<ANY...>'])]).join(), /always_ask\[0\]\.argv: .*has no effect/)
  assert.match(lint(allowed, [always(['ls', 'srv', 'x'])]).join(), /has no effect/)
  for (const argv of [
    ['ls', '5'],
    ['/bin/ls', '<ANY...>'],
    ['df', '-h', '/', '/srv'],
  ])
    assert.deepEqual(lint(allowed, [always(argv)]), [])
  assert.match(
    lint(allowed, [always(['ls', '<ANY...>']), always(['ls', '5'])]).join(),
    /always_ask\[1\]\.argv: .*has no effect: line \d+ matches first/,
  )
  // An opaque command may match any rule.
  assert.deepEqual(lint([entry([], [['sh', '<ANY...>']])], [always(['rm', '<ANY...>'])]), [])
})
