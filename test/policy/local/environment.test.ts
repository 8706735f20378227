import assert from 'node:assert/strict'
import { test } from 'node:test'

import { scrubbedEnvironment } from '../../../src/policy/environment.ts'
import { policyOf, readPolicy } from '../../support/local-policy.ts'

const list = (names: readonly string[]): string => `[${names.map((name) => JSON.stringify(name)).join(', ')}]`

/** The problems of `security.KEY = NAMES`. */
const problemsOf = (key: string, names: readonly string[]): readonly string[] =>
  readPolicy(['/usr'], { security: `${key} = ${list(names)}` }).problems

const environment = (security: string, own: Record<string, string> = {}): Readonly<Record<string, string>> =>
  policyOf(['/usr'], { security }, own).env

test('a program gets four fixed variables, with any environment of rexd', () => {
  const own = { PATH: '/evil', HOME: '/evil', LD_PRELOAD: '/evil.so', SECRET: 'x', LANG: 'de_DE' }
  assert.deepEqual(environment('', own), scrubbedEnvironment())
})

test('clients may set exactly the listed variables', () => {
  const names = ['CI', 'RUST_LOG', '_x', 'a1', 'X'.repeat(128)]
  assert.deepEqual(policyOf(['/usr'], { security: `allow_env = ${list(names)}` }).allow_env, names)
})

for (const key of ['allow_env', 'pass_env'])
  test(`${key} refuses texts that are not variable names`, () => {
    for (const name of ['', '1A', 'A B', 'A=B', 'A*', 'LC_*', 'É', 'A\n', 'A\0', ' A', 'A-B', 'X'.repeat(129)]) {
      const problems = problemsOf(key, ['CI', name])
      assert.equal(problems.length, 1, JSON.stringify(name))
      assert.match(problems[0] ?? '', new RegExp(`^rexd\\.toml:4: security\\.${key}\\[1\\]: ".*" is not a variable name$`))
    }
    for (const literal of ['"CI"', '[1]', 'true', '{ CI = "1" }'])
      assert.match(
        readPolicy(['/usr'], { security: `${key} = ${literal}` }).problems.join('\n'),
        new RegExp(`${key}: must be a list of strings`),
      )
  })

/** A client that sets one of these variables decides which code runs (seeds-2-to-5.md, B24). */
const DANGEROUS = [
  ['the loader', ['LD_PRELOAD', 'LD_LIBRARY_PATH', 'LD_AUDIT', 'DYLD_INSERT_LIBRARIES', 'DYLD_LIBRARY_PATH']],
  ['shells', ['BASH_ENV', 'ENV', 'BASH_FUNC_x', 'IFS', 'PATH', 'SHELL']],
  ['interpreters', ['NODE_OPTIONS', 'PYTHONSTARTUP', 'PYTHONHOME', 'PYTHONPATH', 'PERL5LIB', 'PERL5OPT', 'PERLLIB', 'RUBYOPT', 'RUBYLIB']],
  ['git', ['GIT_SSH_COMMAND', 'GIT_EXEC_PATH', 'GIT_DIR', 'GIT_CONFIG_COUNT', 'GIT_EXTERNAL_DIFF']],
  ['Java', ['JAVA_TOOL_OPTIONS', '_JAVA_OPTIONS']],
] as const

for (const [whose, names] of DANGEROUS)
  test(`clients may not set variables of ${whose} that decide which code runs`, () => {
    for (const name of names) {
      const problems = problemsOf('allow_env', [name])
      assert.equal(problems.length, 1, name)
      assert.ok(problems[0]?.endsWith(`${name} can change which program runs: use pass_env, and do not let clients set it`), problems[0])
      assert.deepEqual(problemsOf('pass_env', [name]), [], name)
    }
  })

test('allow_env warns about each name that is not known to be harmless, including HOME', () => {
  const warningsOf = (...names: string[]): readonly string[] => readPolicy(['/usr'], { security: `allow_env = ${list(names)}` }).warnings
  assert.deepEqual(warningsOf('CI', 'TERM', 'COLORTERM', 'TZ', 'LANG', 'LC_TIME', 'NO_COLOR', 'FORCE_COLOR', 'COLUMNS', 'LINES'), [])
  const names =
    'HOME TAR_OPTIONS RSYNC_RSH MAKEFLAGS XDG_CONFIG_HOME OPENSSL_CONF LUA_INIT DOTNET_STARTUP_HOOKS RUSTC_WRAPPER npm_config_script_shell VIMINIT SSH_ASKPASS KUBECONFIG CC LESS TERMINFO LANGX XLANG ci'
  for (const name of names.split(' ')) {
    const [warning = '', ...more] = warningsOf('CI', name)
    assert.match(warning, new RegExp(`^rexd\\.toml:4: security\\.allow_env\\[1\\]: ${name} may be dangerous`))
    assert.deepEqual([more, problemsOf('allow_env', [name])], [[], []])
    assert.deepEqual(readPolicy(['/usr'], { security: `pass_env = ${list([name])}` }).warnings, [], 'passed on, it is ours')
  }
})

test('clients may not set less known variables that decide which code runs', () => {
  // zsh reads $ZDOTDIR/.zshenv at each start. java takes arguments from JDK_JAVA_OPTIONS and classes from CLASSPATH. glibc loads
  // shared objects from GCONV_PATH. node loads modules from NODE_PATH. bash runs the text of PS4 if SHELLOPTS contains xtrace.
  const names = ['ZDOTDIR', 'JDK_JAVA_OPTIONS', 'CLASSPATH', 'GCONV_PATH', 'NODE_PATH', 'SHELLOPTS', 'PS4', 'PERL5DB']
  assert.deepEqual(
    names.filter((name) => problemsOf('allow_env', [name]).length === 0),
    [],
  )
})

test('names that only resemble dangerous variables are allowed', () => {
  for (const name of ['MY_LD_PRELOAD', 'GITHUB_TOKEN', 'ENVIRONMENT', 'HOMEPAGE', 'MYPATH', 'path', 'LDFLAGS', 'SHELL_LEVEL'])
    assert.deepEqual(problemsOf('allow_env', [name]), [], name)
})

test('pass_env passes variables of the environment of rexd, and only those that are set', () => {
  const own = { SSH_AUTH_SOCK: '/run/agent', EMPTY: '', OTHER: 'x' }
  const env = environment('pass_env = ["SSH_AUTH_SOCK", "EMPTY", "UNSET"]', own)
  assert.deepEqual(env, { ...scrubbedEnvironment(), SSH_AUTH_SOCK: '/run/agent', EMPTY: '' })
})

test('pass_env does not pass inherited properties of objects', () => {
  const names = ['constructor', 'toString', 'hasOwnProperty', '__proto__']
  assert.deepEqual(environment(`pass_env = ${list(names)}`), scrubbedEnvironment())
})

test('a passed variable replaces the fixed one, and the configured path overrides both', () => {
  const own = { PATH: '/opt/own', HOME: '/home/own' }
  assert.deepEqual(environment('pass_env = ["PATH", "HOME"]', own), { ...scrubbedEnvironment(), ...own })
  const both = environment('pass_env = ["PATH"]\npath = ["/opt/a/bin", "/usr/bin"]', own)
  assert.equal(both['PATH'], '/opt/a/bin:/usr/bin')
})

test('security.path is a list of absolute directories without a colon, and an empty list has no effect', () => {
  assert.equal(environment('path = ["/opt/a"]')['PATH'], '/opt/a')
  assert.equal(environment('path = []')['PATH'], scrubbedEnvironment()['PATH'])
  for (const directory of ['bin', './bin', '', '/a:/b', ':'])
    assert.match(
      problemsOf('path', ['/opt/a', directory]).join('\n'),
      /^rexd\.toml:4: security\.path\[1\]: ".*" must be an absolute path without a colon$/,
      directory,
    )
  for (const literal of ['"/a:/b"', '[1]', 'true'])
    assert.match(readPolicy(['/usr'], { security: `path = ${literal}` }).problems.join('\n'), /security\.path: must be a list of strings/)
})
