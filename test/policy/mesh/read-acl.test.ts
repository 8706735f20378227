import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'

import { DEFAULT_CAPS } from '../../../src/policy/mesh/acl.ts'
import { ALICE, aclOf, aclText, commandText, entryText, LAPTOP, readText } from '../../support/acl-text.ts'

/** Asserts that the text has exactly this problem, at this place. */
const hasProblem = (text: string, problem: RegExp): void => {
  const { problems } = readText(text)
  assert.equal(problems.length, 1, problems.join('\n') || 'no problem found')
  assert.match(problems[0] ?? '', problem)
}

/** A valid file with this line in `[exec]`, as line 4 of the file. */
const withKey = (line: string): string => aclText([entryText([['true']])], line)

test('a valid file is read with all its keys', () => {
  const acl = aclOf(
    aclText(
      [
        entryText([
          ['systemctl', 'status', 'x0xd'],
          ['journalctl', '-n', '<INT>'],
        ]),
      ],
      'default_cwd = "/var/lib/x0x"\naudit_tasklist_id = "01HZX"\nmax_stdin_bytes = 10',
    ),
  )
  assert.equal(acl.enabled, true)
  assert.equal(acl.audit_log_path, '/var/lib/x0x/exec.log')
  assert.equal(acl.default_cwd, '/var/lib/x0x')
  assert.equal(acl.audit_tasklist_id, '01HZX')
  assert.deepEqual(acl.caps, { ...DEFAULT_CAPS, max_stdin_bytes: 10 })
  assert.equal(acl.allow.length, 1)
  const [entry] = acl.allow
  assert.equal(entry?.description, 'alice on her laptop')
  assert.equal(entry?.agent_id, ALICE)
  assert.equal(entry?.machine_id, LAPTOP)
  assert.equal(entry?.line, 7)
  assert.deepEqual(
    entry?.commands.map(({ argv, line }) => ({ argv, line })),
    [
      { argv: ['systemctl', 'status', 'x0xd'], line: 12 },
      { argv: ['journalctl', '-n', '<INT>'], line: 14 },
    ],
  )
  assert.deepEqual(entry?.commands[1]?.tokens, [{ kind: 'literal', text: 'journalctl' }, { kind: 'literal', text: '-n' }, { kind: 'int' }])
})

test('exec is disabled unless the file enables it', () => {
  assert.equal(aclOf('[exec]\naudit_log_path = "/a"').enabled, false)
})

test('a file without limits gets the documented ones', () => {
  assert.deepEqual(aclOf('[exec]\naudit_log_path = "/a"').caps, {
    max_stdout_bytes: 16_777_216,
    max_stderr_bytes: 16_777_216,
    max_stdin_bytes: 1_048_576,
    max_duration_secs: 300,
    max_concurrent_per_agent: 4,
    max_concurrent_total: 32,
    warn_stdout_bytes: 8_388_608,
    warn_stderr_bytes: 8_388_608,
    warn_duration_secs: 60,
  })
})

test('a file without [exec] gives no ACL and no problem', () => {
  assert.deepEqual(readText('# nothing yet\n'), { acl: null, problems: [], warnings: [] })
})

test('an ACL cannot be changed after it is read', () => {
  const acl = aclOf(withKey('default_cwd = "/"'))
  const tries = [
    () => Object.assign(acl, { enabled: false }),
    () => Object.assign(acl.caps, { max_stdin_bytes: 1 }),
    () => (acl.allow as unknown[]).push({}),
    () => Object.assign(acl.allow[0]?.commands[0]?.argv ?? [], { 0: 'sh' }),
    () => Object.assign(acl.allow[0]?.commands[0]?.tokens[0] ?? {}, { text: 'sh' }),
    () => Object.assign(acl.allow[0]?.limits ?? {}, { max_stdin_bytes: 1 }),
  ]
  for (const change of tries) assert.throws(change, TypeError)
})

test('an unknown key is a problem in every table', () => {
  hasProblem(
    '[exec]\naudit_log_path = "/a"\n[server]\nport = 1',
    /^acl\.toml:3: server: unknown key; the ACL has only \[exec\]\. Settings of the daemon are in config\.toml$/,
  )
  hasProblem(`verbose = true\n${withKey('')}`, /^acl\.toml:1: verbose: unknown key/)
  hasProblem(withKey('enable = true'), /^acl\.toml:4: exec\.enable: unknown key/)
  hasProblem(withKey('max_stdout = 1'), /^acl\.toml:4: exec\.max_stdout: unknown key/)
  hasProblem(aclText([entryText([['true']], { agent: 'x' })]), /^acl\.toml:9: exec\.allow\[0\]\.agent: unknown key/)
  hasProblem(aclText([entryText([['true']], { max_concurrent_total: 1 })]), /:9: exec\.allow\[0\]\.max_concurrent_total: unknown key/)
  hasProblem(aclText([entryText([['true']]), 'shell = true\n']), /^acl\.toml:11: exec\.allow\[0\]\.commands\[0\]\.shell: unknown key/)
  hasProblem(withKey('__proto__ = { enabled = true }'), /:4: exec\.__proto__: unknown key/)
})

test('a missing required key is a problem that names it', () => {
  hasProblem('[exec]\nenabled = false', /^acl\.toml:1: exec\.audit_log_path: is required/)
  hasProblem(
    aclText([`[[exec.allow]]\nmachine_id = "${LAPTOP}"\n${commandText(['true'])}`]),
    /^acl\.toml:5: exec\.allow\[0\]\.agent_id: is required$/,
  )
  hasProblem(
    aclText([`[[exec.allow]]\nagent_id = "${ALICE}"\n${commandText(['true'])}`]),
    /^acl\.toml:5: exec\.allow\[0\]\.machine_id: is required$/,
  )
  hasProblem(
    aclText([entryText([]), '[[exec.allow.commands]]\n']),
    /^acl\.toml:9: exec\.allow\[0\]\.commands\[0\]\.argv: is required: the program and each of its arguments, as in argv = \["df", "-h"\]$/,
  )
})

test('an ID must be exactly 64 lower-case hex digits', () => {
  for (const id of [
    'abc',
    '',
    ALICE.toUpperCase(),
    `${ALICE}0`,
    ALICE.slice(1),
    `g${ALICE.slice(1)}`,
    ` ${ALICE}`,
    `${ALICE}\n`,
    `0x${ALICE.slice(2)}`,
  ]) {
    hasProblem(
      aclText([entryText([['true']], { agent_id: id })]),
      /^acl\.toml:7: exec\.allow\[0\]\.agent_id: must be 64 lower-case hex digits, not "/,
    )
    hasProblem(aclText([entryText([['true']], { machine_id: id })]), /^acl\.toml:8: exec\.allow\[0\]\.machine_id: must be 64/)
  }
  hasProblem(aclText([entryText([['true']], { agent_id: 7 })]), /exec\.allow\[0\]\.agent_id: must be 64 lower-case hex digits, not 7/)
})

test('a limit is a positive integer, and only that of stdin may be zero', () => {
  for (const key of Object.keys(DEFAULT_CAPS)) {
    const [least, first] = key === 'max_stdin_bytes' ? ['0', '-1'] : ['1', '0']
    for (const [value, shown] of [
      [first, first],
      ['-1', '-1'],
      ['1.0', '1.0'],
      ['1.5', '1.5'],
      ['1e3', '1000.0'],
      ['nan', 'NaN'],
      ['inf', 'Infinity'],
      ['"8"', '"8"'],
      ['true', 'true'],
      ['[1]', 'a list'],
      ['9223372036854775807', '9223372036854775807'],
      ['1979-05-27', 'a date'],
    ] as const) {
      const { problems } = readText(withKey(`${key} = ${value}`))
      assert.match(
        problems[0] ?? '',
        new RegExp(`^acl\\.toml:4: exec\\.${key}: must be a whole number from ${least} to \\d+, not ${shown}$`),
      )
    }
  }
})

test('stdin of a command is open unless the file sets it to false', () => {
  const command = (line: string): string => aclText([`${entryText([['cat']])}${line}\n`])
  for (const [line, open] of [
    ['', true],
    ['stdin = true', true],
    ['stdin = false', false],
  ] as const)
    assert.equal(aclOf(command(line)).allow[0]?.commands[0]?.stdin, open)
  hasProblem(command('stdin = 0'), /commands\[0\]\.stdin: must be true or false, not 0$/)
})

test('the largest limit is read exactly, and one more is a problem', () => {
  assert.equal(aclOf(withKey('max_stdout_bytes = 9007199254740991')).caps.max_stdout_bytes, Number.MAX_SAFE_INTEGER)
  hasProblem(withKey('max_stdout_bytes = 9007199254740992'), /max_stdout_bytes: must be a whole number from 1 to 9007199254740991/)
  assert.equal(aclOf(withKey('max_duration_secs = 9007199254740')).caps.max_duration_secs, 9_007_199_254_740)
  assert.equal(aclOf(withKey('max_stdin_bytes = 536870912')).caps.max_stdin_bytes, 536_870_912)
  hasProblem(withKey('max_stdin_bytes = 536870913'), /max_stdin_bytes: must be a whole number from 0 to 536870912,/)
  hasProblem(withKey('max_duration_secs = 9007199254741'), /max_duration_secs: must be a whole number from 1 to 9007199254740,/)
})

test('the limit of runs per agent may not exceed the total', () => {
  hasProblem(
    withKey('max_concurrent_per_agent = 3\nmax_concurrent_total = 2'),
    /:4: exec\.max_concurrent_per_agent: is 3, more than max_concurrent_total \(2\)/,
  )
  hasProblem(withKey('max_concurrent_per_agent = 33'), /is 33, more than max_concurrent_total \(32\)/)
  aclOf(withKey('max_concurrent_per_agent = 2\nmax_concurrent_total = 2'))
})

test('a lower total reduces the default limit per agent', () => {
  assert.equal(aclOf(withKey('max_concurrent_total = 2')).caps.max_concurrent_per_agent, 2)
})

test('a warning threshold may equal its limit, but not exceed it', () => {
  hasProblem(
    withKey('max_stdout_bytes = 10\nwarn_stdout_bytes = 11'),
    /:5: exec\.warn_stdout_bytes: is 11, above its limit max_stdout_bytes \(10\)/,
  )
  hasProblem(withKey('warn_duration_secs = 301'), /exec\.warn_duration_secs: is 301, above its limit max_duration_secs \(300\)/)
  assert.equal(aclOf(withKey('max_stderr_bytes = 10\nwarn_stderr_bytes = 10')).caps.warn_stderr_bytes, 10)
})

test('a default threshold is at most 50 percent of its limit', () => {
  const { caps } = aclOf(withKey('max_stdout_bytes = 11\nmax_stderr_bytes = 1\nmax_duration_secs = 30'))
  assert.deepEqual([caps.warn_stdout_bytes, caps.warn_stderr_bytes, caps.warn_duration_secs], [5, 1, 15])
  assert.equal(aclOf(withKey('max_stdout_bytes = 1000000000')).caps.warn_stdout_bytes, DEFAULT_CAPS.warn_stdout_bytes)
})

test('an entry may lower a limit', () => {
  const keys = { max_duration_secs: 30, max_stdout_bytes: 1000, warn_stdout_bytes: 1000, max_stdin_bytes: 1 }
  const limits = aclOf(aclText([entryText([['true']], keys)])).allow[0]?.limits
  assert.deepEqual(limits, {
    max_stdout_bytes: 1000,
    max_stderr_bytes: 16_777_216,
    max_stdin_bytes: 1,
    max_duration_secs: 30,
    warn_stdout_bytes: 1000,
    warn_stderr_bytes: 8_388_608,
    warn_duration_secs: 15,
  })
})

test('an entry keeps the thresholds of [exec] if it keeps the limits', () => {
  const acl = aclOf(aclText([entryText([['true']])], 'max_stdout_bytes = 10\nwarn_stdout_bytes = 9'))
  assert.equal(acl.allow[0]?.limits.warn_stdout_bytes, 9)
})

test('an entry may not raise a limit or a threshold', () => {
  for (const [key, cap] of [
    ['max_stdout_bytes', 16_777_216],
    ['max_stderr_bytes', 16_777_216],
    ['max_stdin_bytes', 1_048_576],
    ['max_duration_secs', 300],
    ['warn_stdout_bytes', 8_388_608],
    ['warn_stderr_bytes', 8_388_608],
    ['warn_duration_secs', 60],
  ] as const) {
    aclOf(aclText([entryText([['true']], { [key]: cap })]))
    hasProblem(
      aclText([entryText([['true']], { [key]: cap + 1 })]),
      new RegExp(`:9: exec\\.allow\\[0\\]\\.${key}: is ${cap + 1}, above the ${cap} of \\[exec\\]`),
    )
  }
  hasProblem(
    aclText([entryText([['true']], { max_duration_secs: 0 })]),
    /exec\.allow\[0\]\.max_duration_secs: must be a whole number from 1/,
  )
})

test('a threshold of an entry may not exceed the limit of that entry', () => {
  hasProblem(
    aclText([entryText([['true']], { max_stdout_bytes: 10, warn_stdout_bytes: 11 })]),
    /exec\.allow\[0\]\.warn_stdout_bytes: is 11, above its limit max_stdout_bytes \(10\)/,
  )
})

test('an entry needs at least one command, and a command needs a program', () => {
  hasProblem(aclText([entryText([])]), /^acl\.toml:5: exec\.allow\[0\]\.commands: has no command/)
  hasProblem(aclText([entryText([]), 'commands = []\n']), /^acl\.toml:9: exec\.allow\[0\]\.commands: has no command/)
  hasProblem(aclText([entryText([[]])]), /^acl\.toml:10: exec\.allow\[0\]\.commands\[0\]\.argv: is empty/)
  hasProblem(aclText([entryText([['']])]), /exec\.allow\[0\]\.commands\[0\]\.argv\[0\]: is empty/)
})

test('an unknown or misplaced template is a problem, and so is a template as the program', () => {
  hasProblem(
    aclText([entryText([['true'], ['echo', '<ANY>']])]),
    /^acl\.toml:12: exec\.allow\[0\]\.commands\[1\]\.argv\[1\]: unknown template <ANY>/,
  )
  hasProblem(aclText([entryText([['head', '-n<INT>']])]), /argv\[1\]: <INT> must be the whole token/)
  hasProblem(aclText([entryText([['curl', '<URL_PATH>.html']])]), /argv\[1\]: <URL_PATH> must be the whole token or its end/)
  for (const program of ['<INT>', '<URL_PATH>', '/opt<URL_PATH>'])
    hasProblem(
      aclText([entryText([[program]])]),
      /^acl\.toml:10: exec\.allow\[0\]\.commands\[0\]\.argv\[0\]: a template cannot name the program$/,
    )
})

test('a program must be a bare name or an absolute path', () => {
  for (const program of ['./tool', 'bin/tool', '../tool', '~/tool'])
    hasProblem(aclText([entryText([[program]])]), /argv\[0\]: "[^"]*" must be an absolute path or a bare name/)
})

test('paths must be absolute', () => {
  hasProblem('[exec]\naudit_log_path = "exec.log"', /^acl\.toml:2: exec\.audit_log_path: "exec\.log" must be an absolute path$/)
  hasProblem('[exec]\naudit_log_path = ""', /^acl\.toml:2: exec\.audit_log_path: is empty$/)
  hasProblem(withKey('default_cwd = "lib"'), /^acl\.toml:4: exec\.default_cwd: "lib" must be an absolute path$/)
})

test('a value of another type is a problem that shows the value', () => {
  hasProblem('[exec]\naudit_log_path = 5', /:2: exec\.audit_log_path: must be a string, not 5/)
  hasProblem('[exec]\naudit_log_path = "/a"\nenabled = "true"', /:3: exec\.enabled: must be true or false, not "true"/)
  hasProblem('[exec]\naudit_log_path = "/a"\nenabled = 1', /:3: exec\.enabled: must be true or false, not 1/)
  hasProblem(withKey('audit_tasklist_id = 1'), /exec\.audit_tasklist_id: must be a string/)
  hasProblem('exec = true', /^acl\.toml:1: exec: must be a table, not true$/)
  hasProblem('[[exec]]\naudit_log_path = "/a"', /^acl\.toml:1: exec: must be a table, not a list$/)
  hasProblem('[exec]\naudit_log_path = "/a"\nallow = 1', /:3: exec\.allow: must be written \[\[exec\.allow\]\]/)
  hasProblem('[exec]\naudit_log_path = "/a"\n[exec.allow]\n', /:3: exec\.allow: must be written \[\[exec\.allow\]\]/)
  hasProblem('[exec]\naudit_log_path = "/a"\nallow = ["x"]', /:3: exec\.allow\[0\]: must be a table, not "x"/)
  hasProblem(
    aclText([entryText([]), 'commands = "true"\n']),
    /:9: exec\.allow\[0\]\.commands: must be written \[\[exec\.allow\.commands\]\]/,
  )
  hasProblem(aclText([entryText([]), 'commands = [["true"]]\n']), /exec\.allow\[0\]\.commands\[0\]: must be a table, not a list/)
  hasProblem(
    aclText([entryText([]), '[[exec.allow.commands]]\nargv = "true"\n']),
    /commands\[0\]\.argv: must be a list of strings, not "true"/,
  )
  hasProblem(
    aclText([entryText([]), '[[exec.allow.commands]]\nargv = ["kill", 1]\n']),
    /commands\[0\]\.argv: must be a list of strings, not a list with 1$/,
  )
  hasProblem(aclText([entryText([['true']], { description: 5 })]), /description: must be a string, not 5/)
})

test('a description with control characters is a problem', () => {
  hasProblem(
    aclText([entryText([['true']], { description: 'a\u001b[2Jb' })]),
    /exec\.allow\[0\]\.description: contains a control or invisible character/,
  )
  hasProblem(aclText([entryText([['true']], { description: 'a\nb' })]), /description: contains a control or invisible character/)
})

test('an entry without a description is named by its place', () => {
  const text = aclText([`[[exec.allow]]\nagent_id = "${ALICE}"\nmachine_id = "${LAPTOP}"\n${commandText(['true'])}`])
  assert.equal(aclOf(text).allow[0]?.description, 'allow[0]')
})

test('a disabled file must meet the same rules', () => {
  const text = `[exec]\nenabled = false\naudit_log_path = "/a"\nmax_stdout_bytes = 0\n${entryText([['echo', '<ANY>']], { agent_id: 'abc' })}`
  assert.equal(readText(text).problems.length, 3)
})

test('all problems are reported, not only the first', () => {
  const { problems } = readText(
    `other = 1\n[exec]\nenabled = "yes"\nmax_stdout_bytes = 0\n${entryText([['<INT>'], []], { agent_id: 'x', machine_id: 'y' })}[[exec.allow]]\n`,
  )
  const keys = problems.map((problem) => /^acl\.toml:\d+: ([^:]+): /.exec(problem)?.[1])
  assert.deepEqual(keys.toSorted(), [
    'exec.allow[0].agent_id',
    'exec.allow[0].commands[0].argv[0]',
    'exec.allow[0].commands[1].argv',
    'exec.allow[0].machine_id',
    'exec.allow[1].agent_id',
    'exec.allow[1].commands',
    'exec.allow[1].machine_id',
    'exec.audit_log_path',
    'exec.enabled',
    'exec.max_stdout_bytes',
    'other',
  ])
})

test('a literal with a metacharacter gives a warning, because such a request is always refused', () => {
  const { problems, warnings } = readText(
    aclText([
      entryText([
        ['sh', '-c', 'a | b'],
        ['curl', 'http://h/?a=$b<URL_PATH>'],
      ]),
    ]),
  )
  assert.deepEqual(problems, [])
  assert.equal(warnings.length, 2)
  assert.match(warnings[0] ?? '', /^acl\.toml:10: exec\.allow\[0\]\.commands\[0\]\.argv\[2\]: contains "\|".*can never run$/)
  assert.match(warnings[1] ?? '', /contains "\$"/)
})

test('the packaged example file is valid and disabled', async () => {
  const text = await readFile(new URL('../../../deploy/exec-acl.toml', import.meta.url), 'utf8')
  const acl = aclOf(text)
  assert.equal(acl.enabled, false)
  assert.deepEqual(acl.caps, DEFAULT_CAPS)
  assert.ok(acl.allow.length > 0)
})
