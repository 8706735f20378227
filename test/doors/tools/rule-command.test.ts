import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { ruleCommands, type RuleCommand, MAX_TOOL_NAME } from '../../../src/doors/tools/target-rules.ts'
import { matchesToken, parseToken } from '../../../src/protocol/argv-template.ts'
import type { ExecRule } from '../../../src/protocol/wire/exec.ts'

const ruleOf = (argv: readonly string[]): ExecRule => ({
  description: null,
  argv: [...argv],
  timeout_ms: 1000,
  max_stdout_bytes: 1,
  max_stderr_bytes: 1,
  max_stdin_bytes: 0,
  detach: null,
  terminal: false,
  record: false,
  watch: false,
})

const commandsOf = (target: string, ...argvs: readonly (readonly string[])[]): RuleCommand[] =>
  ruleCommands(target, argvs.map(ruleOf), ['exec_wait'])

const namesOf = (target: string, ...argvs: readonly (readonly string[])[]): string[] => commandsOf(target, ...argvs).map(({ name }) => name)

test('the name of a tool consists of the target and the literal tokens of its rule', () => {
  assert.deepEqual(
    namesOf('bob', ['systemctl', '--no-pager', 'status', 'x0xd'], ['/usr/bin/journalctl', '-n', '<INT>'], ['curl', 'http://h:1<URL_PATH>']),
    ['bob_systemctl_no_pager_status_x0xd', 'bob_journalctl_n', 'bob_curl_http_h_1'],
  )
  assert.deepEqual(namesOf('ab'.repeat(32), ['true']), ['abababab_true'])
  assert.deepEqual(namesOf('ops laptop/ß', ['true']), ['ops_laptop_true'])
  assert.deepEqual(namesOf('build-server-01', ['df', '-h']), ['build_server_df_h'])
  assert.deepEqual(namesOf('ß', ['true']), ['target_true'])
  assert.match(namesOf('constructor', ['+'])[0] ?? '', /^constructor_[0-9a-f]{8}$/)
})

test('rules with similar literals get a hash of their argv in the name, independent of their order', () => {
  const alike = [
    ['echo', '-n', '1'],
    ['echo', 'n', '1'],
    ['echo', '-N', '1'],
    ['/bin/echo', '-n', '1'],
  ]
  const names = namesOf('bob', ...alike, ['true'])
  assert.equal(new Set(names).size, 5)
  assert.ok(
    names.slice(0, 4).every((name) => /^bob_echo_[nN]_1_[0-9a-f]{8}$/.test(name)),
    names.join(),
  )
  assert.equal(names[4], 'bob_true')
  assert.deepEqual(namesOf('bob', ['true'], ...alike.toReversed()).toReversed(), names)
})

test('a hostile target cannot create two tools with the same name', () => {
  const alike = [
    ['echo', 'a-b'],
    ['echo', 'a_b'],
  ]
  const [first = ''] = namesOf('bob', ...alike)
  const names = namesOf('bob', ...alike, ['echo', first.replace('bob_echo_', '')])
  assert.equal(new Set(names).size, 3)
  assert.equal(names[0], first)
  // Both SHA-256 hashes begin with 84e76e6d, and the literals give the same name.
  const sought = namesOf('bob', ['echo', ',_,=.+--a'], ['echo', ',_:-=.--a'])
  assert.equal(new Set(sought).size, 2)
  assert.ok(
    sought.every((name) => /^bob_echo_a_84e76e6d[0-9a-f]{19}$/.test(name)),
    sought.join(),
  )
})

test('templates become parameters with their preceding token as a hint, and repeated ones get numbers', () => {
  const [command] = commandsOf('bob', ['tool', '-n', '<INT>', '-m', '<INT>', '<URL_PATH>', 'http://h<URL_PATH>'])
  assert.deepEqual(
    command?.slots.map(({ name, hint }) => [name, hint]),
    [
      ['int_1', '-n'],
      ['int_2', '-m'],
      ['url_path_1', ''],
      ['url_path_2', 'http://h'],
    ],
  )
  assert.deepEqual(commandsOf('bob', ['head', '-n', '<INT>'])[0]?.slots, [{ name: 'int', kind: 'int', token: 2, hint: '-n' }])
})

test('a parameter accepts only values that its template allows', () => {
  const [command] = commandsOf('bob', ['tool', '<INT>', 'http://h<URL_PATH>'])
  assert.deepEqual(command?.fill({ int: 7, url_path: '/a/b' }), ['tool', '7', 'http://h/a/b'])
  const bad: Record<string, unknown>[] = [
    { url_path: '/a' },
    { int: '7', url_path: '/a' },
    { int: 0, url_path: '/a' },
    { int: 1.5, url_path: '/a' },
    { int: 1e6, url_path: '/a' },
    { int: -1, url_path: '/a' },
    { int: Number.NaN, url_path: '/a' },
    { int: 7, url_path: '/a/../b' },
    { int: 7, url_path: 'a' },
    { int: 7, url_path: '/a b' },
    { int: 7, url_path: '/a\n' },
    { int: 7, url_path: ['/a'] },
  ]
  for (const values of bad) assert.throws(() => command?.fill(values), TypeError, JSON.stringify(values))
})

test('an unknown template causes an error', () => {
  for (const argv of [
    ['sh', '-c', '<ANY>'],
    ['x', 'a<INT>'],
    ['x', '<int>'],
  ])
    assert.throws(() => commandsOf('bob', argv), TypeError)
})

const tokens = fc.oneof(
  fc.constantFrom('<INT>', '<URL_PATH>', 'p<URL_PATH>', '-n', '--', '', 'x y', 'é', '_'),
  fc.string({ maxLength: 12 }),
)
const argvs = fc.array(fc.tuple(fc.constantFrom('a', '/usr/bin/a', 'A', 'b c'), fc.array(tokens, { maxLength: 5 })), { maxLength: 12 })

test('property: names are unique without regard to case and use safe characters, and a filled argv matches its rule', () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 70 }), argvs, (target, all) => {
      const good = all
        .map(([program, rest]) => [program, ...rest])
        .filter((argv) => argv.every((token) => typeof parseToken(token) !== 'string'))
      const commands = commandsOf(target, ...good)
      const names = commands.map(({ name }) => name)
      assert.ok(
        names.every((name) => /^[A-Za-z0-9_]{1,64}$/.test(name)),
        names.join(),
      )
      assert.equal(new Set(names.map((name) => name.toLowerCase())).size, names.length)
      assert.equal(commands.length, new Set(good.map((argv) => JSON.stringify(argv))).size)
      for (const { rule, slots, fill } of commands) {
        const filled = fill(Object.fromEntries(slots.map(({ name, kind }) => [name, kind === 'int' ? 999_999 : '/'])))
        assert.equal(filled.length, rule.argv.length)
        filled.forEach((text, at) => {
          const token = parseToken(rule.argv[at]!)
          assert.ok(typeof token !== 'string' && matchesToken(token, text))
        })
      }
    }),
    { seed: 20_261_125, numRuns: 2_000 },
  )
})

test('a reserved or long name gets a hash, and a repeated rule becomes one tool', () => {
  assert.match(namesOf('exec', ['wait'])[0] ?? '', /^exec_wait_[0-9a-f]{8}$/)
  const [long = ''] = namesOf('bob', ['echo', 'x'.repeat(100)])
  assert.equal(long.length, MAX_TOOL_NAME)
  assert.match(long, /^bob_echo_x+_[0-9a-f]{8}$/)
  assert.deepEqual(namesOf('bob', ['true'], ['true']), ['bob_true'])
})

test('with the prefix of a client, each tool name has at most 50 characters and remains unique', () => {
  const long = ['journalctl', '--no-pager', '--output=short-iso', '-u', 'x0xd-network', '-n', '<INT>']
  const names = namesOf('build-server-01', long, [...long, '-r'], ['systemctl', 'status', '--no-pager', 'postgresql@15-main'])
  assert.equal(new Set(names).size, 3)
  for (const name of names) assert.ok(`mcp__x0x__${name}`.length <= 50, name)
  assert.match(names[0] ?? '', /^build_server_journalctl_no_pag[a-z_]*_[0-9a-f]{8}$/)
  assert.equal(MAX_TOOL_NAME, 40)
})
