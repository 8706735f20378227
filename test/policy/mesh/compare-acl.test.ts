import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import type { Acl } from '../../../src/policy/mesh/acl.ts'
import { compareAcl } from '../../../src/policy/mesh/compare-acl.ts'
import { searchCommands } from '../../../src/policy/mesh/match.ts'
import { ALICE, aclOf, aclText, commandText, ELSEWHERE, entryText, LAPTOP, MALLORY } from '../../support/acl-text.ts'

const ECHO = [
  ['echo', '42'],
  ['df', '-h'],
]
const fileOf = (commands: readonly (readonly string[])[], keys: Record<string, string | number> = {}, head = ''): Acl =>
  aclOf(aclText([entryText(commands, keys)], head))
const raw = (text: string): Acl => aclOf(aclText([entryText([]).replace(/$/, text)]))
const PATTERN = '[[exec.allow.ask_patterns]]\nargv = ["git", "push"]\n'
const off = (acl: string): Acl => aclOf(acl.replace('enabled = true', 'enabled = false'))

const old = fileOf(ECHO, { max_duration_secs: 30 })
const verdicts: readonly (readonly [what: string, old: Acl, next: Acl, verdict: 'equal' | 'narrows' | 'widens'])[] = [
  ['the same file', old, fileOf(ECHO, { max_duration_secs: 30 }), 'equal'],
  ['another order of commands that do not overlap', old, fileOf(ECHO.toReversed(), { max_duration_secs: 30 }), 'equal'],
  ['another description', old, fileOf(ECHO, { max_duration_secs: 30, description: 'x' }), 'equal'],
  ['one command less', old, fileOf([['df', '-h']], { max_duration_secs: 30 }), 'narrows'],
  ['one command more', old, fileOf([...ECHO, ['true']], { max_duration_secs: 30 }), 'widens'],
  [
    'a command in place of another',
    old,
    fileOf(
      [
        ['df', '-H'],
        ['echo', '42'],
      ],
      { max_duration_secs: 30 },
    ),
    'widens',
  ],
  ['less time', old, fileOf(ECHO, { max_duration_secs: 29 }), 'narrows'],
  ['more time', old, fileOf(ECHO, { max_duration_secs: 31 }), 'widens'],
  ['more output', old, fileOf(ECHO, { max_duration_secs: 30 }, 'max_stdout_bytes = 20_000_000'), 'widens'],
  ['fewer runs at once', old, fileOf(ECHO, { max_duration_secs: 30 }, 'max_concurrent_total = 3'), 'narrows'],
  ['more runs at once', old, fileOf(ECHO, { max_duration_secs: 30 }, 'max_concurrent_total = 33'), 'widens'],
  ['a value in place of a template', fileOf([['echo', '<INT>']]), fileOf([['echo', '42']]), 'narrows'],
  ['a template in place of a value', fileOf([['echo', '42']]), fileOf([['echo', '<INT>']]), 'widens'],
  ['a value that the template never matched', fileOf([['echo', '<INT>']]), fileOf([['echo', '042']]), 'widens'],
  ['a longer prefix of a template', fileOf([['cat', '/a<URL_PATH>']]), fileOf([['cat', '/a/b<URL_PATH>']]), 'widens'],
  ['another agent', old, fileOf(ECHO, { max_duration_secs: 30, agent_id: MALLORY }), 'widens'],
  ['another machine', old, fileOf(ECHO, { max_duration_secs: 30, machine_id: ELSEWHERE }), 'widens'],
  ['one pair less', aclOf(aclText([entryText(ECHO), entryText(ECHO, { agent_id: MALLORY })])), fileOf(ECHO), 'narrows'],
  ['a disabled file', fileOf(ECHO), off(aclText([entryText(ECHO)])), 'narrows'],
  ['an enabled file', off(aclText([entryText(ECHO)])), fileOf(ECHO), 'widens'],
  ['a disabled file with one more pair', fileOf(ECHO), off(aclText([entryText(ECHO, { agent_id: MALLORY })])), 'widens'],
  ['another audit log', old, aclOf(aclText([entryText(ECHO, { max_duration_secs: 30 })]).replace('exec.log', 'other.log')), 'widens'],
  ['another working directory', fileOf(ECHO, {}, 'default_cwd = "/"'), fileOf(ECHO, {}, 'default_cwd = "/srv"'), 'widens'],
  ['a limit of memory', old, fileOf(ECHO, { max_duration_secs: 30, max_memory_bytes: 10_000_000 }), 'narrows'],
  ['a higher limit of memory', fileOf(ECHO, { max_memory_bytes: 9_000_000 }), fileOf(ECHO, { max_memory_bytes: 10_000_000 }), 'widens'],
  ['a removed limit of processes', fileOf(ECHO, { max_processes: 9 }), fileOf(ECHO), 'widens'],
  ['a higher nice value', fileOf(ECHO, { nice: 3 }), fileOf(ECHO, { nice: 9 }), 'narrows'],
  ['a lower nice value', fileOf(ECHO, { nice: 3 }), fileOf(ECHO), 'widens'],
  ['a umask that removes more rights', fileOf(ECHO), fileOf(ECHO, { umask: '027' }), 'narrows'],
  ['a umask that adds a right', fileOf(ECHO), fileOf(ECHO, { umask: '002' }), 'widens'],
  ['a umask that adds one right and removes another', fileOf(ECHO, { umask: '027' }), fileOf(ECHO, { umask: '072' }), 'widens'],
  ['an explicit default umask', fileOf(ECHO), fileOf(ECHO, { umask: '022' }), 'equal'],
  ['another user in run_as', fileOf(ECHO), fileOf(ECHO, { run_as: 'nobody' }), 'widens'],
  ['contain = "required"', fileOf(ECHO), fileOf(ECHO, {}, 'contain = "required"'), 'narrows'],
  ['a removed contain', fileOf(ECHO, { contain: 'required' }), fileOf(ECHO), 'widens'],
  [
    'no_network',
    raw(commandText(['df'])),
    aclOf(aclText([entryText([['df']]).replace('description', 'no_network = true\ndescription')])),
    'narrows',
  ],
  ['open stdin', raw(`${commandText(['df'])}stdin = false\n`), raw(commandText(['df'])), 'widens'],
  ['closed stdin', raw(commandText(['df'])), raw(`${commandText(['df'])}stdin = false\n`), 'narrows'],
  ['an approval of each command', fileOf(ECHO), fileOf(ECHO, { ask: 'always' }), 'narrows'],
  ['a removed approval of each command', fileOf(ECHO, { ask: 'always' }), fileOf(ECHO), 'widens'],
  ['a new ask pattern', fileOf(ECHO), aclOf(aclText([entryText(ECHO, { ask: 'on-miss' }) + PATTERN])), 'widens'],
  [
    'the same ask pattern',
    aclOf(aclText([entryText(ECHO, { ask: 'on-miss' }) + PATTERN])),
    aclOf(aclText([entryText(ECHO, { ask: 'on-miss' }) + PATTERN])),
    'equal',
  ],
  ['a removed ask pattern', aclOf(aclText([entryText(ECHO, { ask: 'on-miss' }) + PATTERN])), fileOf(ECHO), 'narrows'],
]

for (const [what, before, after, verdict] of verdicts)
  test(`compareAcl reports ${verdict} for ${what}`, () => {
    const found = compareAcl(before, after)
    assert.equal(found.verdict, verdict, JSON.stringify(found))
  })

const wordsOf = (before: Acl, after: Acl): { readonly more: string[]; readonly less: string[] } => {
  const { more, less } = compareAcl(before, after)
  return { more: more.map(({ why }) => why), less: less.map(({ why }) => why) }
}

const directions: readonly (readonly [before: Acl, after: Acl, gained: string, lost: string])[] = [
  [
    fileOf([['df']], { max_duration_secs: 30 }),
    fileOf([['df']], { max_duration_secs: 31 }),
    'max_duration_secs is 31, and was 30',
    'max_duration_secs is 30, and was 31',
  ],
  [fileOf([['df']], { max_processes: 9 }), fileOf([['df']]), 'max_processes is not set, and was 9', 'max_processes is 9, and was not set'],
  [fileOf([['df']], { nice: 3 }), fileOf([['df']]), 'nice is 0, and was 3', 'nice is 3, and was 0'],
  [fileOf([['df']]), fileOf([['df']], { umask: '002' }), 'umask is 002, and was not set', 'umask is not set, and was 002'],
  [fileOf([['df']], { contain: 'required' }), fileOf([['df']]), 'contain is no longer "required"', 'contain is "required", and was not'],
  [raw(`${commandText(['df'])}stdin = false\n`), raw(commandText(['df'])), 'stdin is open, and was not', 'stdin is no longer open'],
  [raw(commandText(['df'])), raw(`${commandText(['df'])}terminal = true\n`), 'terminal is true, and was not', 'terminal is no longer true'],
  [fileOf([['df']], { ask: 'always' }), fileOf([['df']]), 'fewer requests need approval', 'more requests need approval'],
  [
    fileOf([['df']]),
    fileOf([['df']], {}, 'max_concurrent_total = 33'),
    'max_concurrent_total is 33, and was 32',
    'max_concurrent_total is 32, and was 33',
  ],
  [
    fileOf([['df']], {}, 'always_ask = [{ argv = ["rm"], reason = "it removes" }]'),
    fileOf([['df']]),
    'always_ask lacks ["rm"]',
    'always_ask has ["rm"], and had not',
  ],
]

test('each difference has a text for the gain and the matching text for the loss in the other direction', () => {
  for (const [before, after, gained, lost] of directions) {
    assert.deepEqual(wordsOf(before, after), { more: [gained], less: [] })
    assert.deepEqual(wordsOf(after, before), { more: [], less: [lost] })
  }
})

test('a command that gains one limit and loses another is reported as both', () => {
  const longer = fileOf([['df']], { max_duration_secs: 60, max_stdout_bytes: 100, warn_stdout_bytes: 10 })
  const louder = fileOf([['df']], { max_duration_secs: 30, max_stdout_bytes: 200, warn_stdout_bytes: 10 })
  assert.deepEqual(wordsOf(longer, louder), {
    more: ['max_stdout_bytes is 200, and was 100'],
    less: ['max_duration_secs is 30, and was 60'],
  })
})

test('the report names the file that lacks a command or a pair', () => {
  const [df, both] = [fileOf([['df']]), fileOf([['df'], ['true']])]
  assert.deepEqual(wordsOf(df, both), { more: ['no single command of the old file has all of this'], less: [] })
  assert.deepEqual(wordsOf(both, df), { more: [], less: ['no single command of the new file has all of this'] })
  const mallory = aclOf(aclText([entryText([['df']]), entryText([['df']], { agent_id: MALLORY })]))
  assert.equal(wordsOf(mallory, df).less[0], 'no entry of the new file is for this agent on this machine')
})

test('the limits of a narrower command that matches first count, not those of a wider command after it', () => {
  const short = entryText([['echo', '1']], { max_duration_secs: 1 })
  const long = entryText([['echo', '<INT>']], { max_duration_secs: 100 })
  const both = aclOf(aclText([short, long]))
  assert.equal(compareAcl(both, aclOf(aclText([short, long]))).verdict, 'equal')
  assert.equal(compareAcl(both, aclOf(aclText([long]))).verdict, 'widens', 'echo 1 may take longer')
  assert.equal(compareAcl(both, aclOf(aclText([long, short]))).verdict, 'widens')
  assert.equal(compareAcl(both, aclOf(aclText([short]))).verdict, 'narrows')
})

const token = fc.constantFrom('1', '2', 'a', '<INT>', '/x<URL_PATH>', '<URL_PATH>', '/x/y')
const command = fc.array(token, { maxLength: 2 }).map((rest) => ['p', ...rest])
const entry = fc
  .record({
    commands: fc.array(command, { minLength: 1, maxLength: 3 }),
    secs: fc.constantFrom(1, 2, 3),
    agent: fc.constantFrom(ALICE, MALLORY),
  })
  .map(({ commands, secs, agent }) => entryText(commands, { max_duration_secs: secs, agent_id: agent }))
const file = fc.array(entry, { maxLength: 3 }).map((entries) => aclOf(aclText(entries)))
const argvs = ['1', '2', 'a', '7', '/x', '/x/y', '/x/q', '/'].flatMap((one) => [
  ['p'],
  ['p', one],
  ['p', one, '1'],
  ['p', one, '/x/y'],
  ['p', 'a', one],
])

test('property: an ACL that compareAcl calls narrower allows no other command and no longer time', () => {
  const secondsOf = (acl: Acl, agent: string, argv: readonly string[]): number => {
    const entries = acl.allow.filter((one) => one.agent_id === agent && one.machine_id === LAPTOP)
    return searchCommands(entries, argv).match?.entry.limits.max_duration_secs ?? 0
  }
  let narrowed = 0
  fc.assert(
    fc.property(file, file, (before, after) => {
      assert.equal(compareAcl(before, before).more.length, 0, 'a file is within itself')
      if (compareAcl(before, after).verdict === 'widens') return
      narrowed += 1
      for (const agent of [ALICE, MALLORY])
        for (const argv of argvs) assert.ok(secondsOf(after, agent, argv) <= secondsOf(before, agent, argv), argv.join(' '))
    }),
    { numRuns: 2_000 },
  )
  assert.ok(narrowed > 100, `${narrowed}`)
})
