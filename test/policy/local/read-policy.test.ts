import assert from 'node:assert/strict'
import { mkdir, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { parseToml } from '../../../src/base/toml.ts'
import { TomlReader } from '../../../src/base/toml.ts'
import { scrubbedEnvironment } from '../../../src/policy/environment.ts'
import { DEFAULT_LOCAL_LIMITS, type LocalLimits } from '../../../src/policy/local/policy.ts'
import { readLocalPolicy } from '../../../src/policy/local/read-policy.ts'
import { MAX_FILE_CHUNK } from '../../../src/protocol/limits/rexd.ts'
import { policyOf, readPolicy, ruleText, type RulesText } from '../../support/local-policy.ts'
import { tempDir } from '../../support/temp-dir.ts'

const MAX = Number.MAX_SAFE_INTEGER
const ROOT = '/var'

/** Asserts that the text, with `/var` as the root, has exactly this problem. */
const hasProblem = (text: RulesText, problem: RegExp): void => {
  const { problems } = readPolicy([ROOT], text)
  assert.equal(problems.length, 1, `${JSON.stringify(text)}: ${problems.join('\n') || 'no problem found'}`)
  assert.match(problems[0] ?? '', problem)
}

/** The problems, warnings and roots of a text with `allowed_roots`. */
const rootProblems = (text: string): { problems: readonly string[]; warnings: readonly string[]; roots: readonly string[] } => {
  const toml = new TomlReader(parseToml(text, 'rexd.toml', 'bad_config', { bigints: true }), 'bad_config')
  const { roots } = readLocalPolicy(toml, {})
  return { problems: toml.problems, warnings: toml.warnings, roots: roots.map(({ real }) => real) }
}

test('a file that only names a root grants the useful capabilities that are not dangerous', async () => {
  const { policy, warnings } = readPolicy([ROOT])
  const { dev, ino } = await stat(ROOT, { bigint: true })
  assert.deepEqual(policy, {
    source: 'rexd.toml',
    roots: [{ path: ROOT, real: ROOT, dev, ino }],
    granted: new Set(['exec', 'exec.input', 'fs.read', 'events', 'fs.write']),
    allow_commands: null,
    deny_commands: [],
    targets: [],
    targets_as_operator: false,
    allow_env: [],
    any_program: false,
    env: scrubbedEnvironment(),
    limits: DEFAULT_LOCAL_LIMITS,
  })
  assert.deepEqual(warnings, [])
})

test('a file without limits has those of the protocol', () => {
  assert.deepEqual(policyOf([ROOT]).limits, {
    max_output_bytes: 1_048_576,
    max_file_read_bytes: 1_048_576,
    max_processes_per_session: 8,
    default_timeout_ms: 30_000,
    hard_timeout_ms: 300_000,
    max_concurrent_sessions: 16,
    max_detached_processes: 8,
    max_detached_ms: 86_400_000,
  })
})

const LARGEST: Readonly<Record<keyof LocalLimits, number>> = {
  max_output_bytes: MAX,
  max_file_read_bytes: MAX_FILE_CHUNK,
  max_processes_per_session: 1_024,
  default_timeout_ms: 300_000,
  hard_timeout_ms: MAX,
  max_concurrent_sessions: 1_024,
  max_detached_processes: 1_024,
  max_detached_ms: MAX,
}

for (const [key, largest] of Object.entries(LARGEST) as [keyof LocalLimits, number][])
  test(`limits.${key} is an integer from 1 to ${largest}`, () => {
    for (const value of [1, largest]) assert.equal(policyOf([ROOT], { limits: `${key} = ${value}` }).limits[key], value)
    for (const value of ['0', '-1', '1.0', '2.5', '"1"', 'true', 'inf', '[1]', '9223372036854775807'])
      hasProblem(
        { limits: `${key} = ${value}` },
        new RegExp(`^rexd\\.toml:2: limits\\.${key}: must be a whole number from 1 to \\d+, not `),
      )
    if (largest === MAX) return
    hasProblem({ limits: `${key} = ${largest + 1}` }, key === 'default_timeout_ms' ? /above hard_timeout_ms/ : /must be a whole number/)
  })

test('a default time above the hard limit is refused if the file sets it, otherwise it is reduced', () => {
  hasProblem({ limits: 'default_timeout_ms = 300001' }, /limits\.default_timeout_ms: is 300001, above hard_timeout_ms \(300000\)$/)
  hasProblem({ limits: 'default_timeout_ms = 501\nhard_timeout_ms = 500' }, /is 501, above hard_timeout_ms \(500\)$/)
  const { default_timeout_ms, hard_timeout_ms } = policyOf([ROOT], { limits: 'hard_timeout_ms = 500' }).limits
  assert.deepEqual([default_timeout_ms, hard_timeout_ms], [500, 500])
})

test('an unknown key is refused in every table', () => {
  hasProblem({ limits: 'max_output = 1' }, /^rexd\.toml:2: limits\.max_output: unknown key/)
  hasProblem({ security: 'allow_shel = true' }, /^rexd\.toml:4: security\.allow_shel: unknown key\. Did you mean allow_shell\?/)
  hasProblem({ rules: '[[security.deny_commands]]\nargv = ["a"]\narg = "any"\n' }, /security\.deny_commands\[0\]\.arg: unknown key/)
  const { problems } = rootProblems('[[security.allowed_roots]]\npath = "/usr"\nwritable = true\n')
  assert.deepEqual(problems, ['rexd.toml:3: security.allowed_roots[0].writable: unknown key; known keys: path'])
})

test('a value that is not a table is refused in place of a table', () => {
  assert.match(
    rootProblems('limits = 1\n[[security.allowed_roots]]\npath = "/usr"\n').problems.join(),
    /^rexd\.toml:1: limits: must be a table, not 1$/,
  )
  assert.match(rootProblems('security = true\n').problems[0] ?? '', /^rexd\.toml:1: security: must be a table, not true$/)
})

test('each key grants its own capability and no other', () => {
  const before = new Set(['exec', 'exec.input', 'fs.read', 'events', 'fs.write'])
  const grants = { allow_shell: 'exec.shell', allow_detach: 'exec.detach', allow_pty: 'pty' }
  for (const [key, capability] of Object.entries(grants)) {
    assert.deepEqual(policyOf([ROOT], { security: `${key} = true` }).granted, new Set([...before, capability]))
    assert.deepEqual(policyOf([ROOT], { security: `${key} = false` }).granted, before)
  }
  const readOnly = policyOf([ROOT], { security: 'allow_write = false' }).granted
  assert.deepEqual(readOnly, new Set(['exec', 'exec.input', 'fs.read', 'events']))
  for (const key of [...Object.keys(grants), 'allow_write'])
    for (const value of ['1', '"true"', '[true]', '0.0'])
      hasProblem({ security: `${key} = ${value}` }, new RegExp(`security\\.${key}: must be true or false, not `))
})

test('a policy needs at least one root', () => {
  const required = /^rexd\.toml:\d: security\.allowed_roots: is required: nothing may be looked at/
  for (const text of ['', '[security]\n', '[security]\nallowed_roots = []\n']) {
    const { problems, roots } = rootProblems(text)
    assert.equal(problems.length, 1, text)
    assert.match(problems[0] ?? '', required)
    assert.deepEqual(roots, [])
  }
})

test('a root must be a table with a path', () => {
  const one = (text: string): string => {
    const { problems, roots } = rootProblems(text)
    assert.deepEqual([problems.length, roots], [1, []], `${text}: ${problems.join('\n')}`)
    return problems[0] ?? ''
  }
  assert.match(one('[security]\nallowed_roots = "/usr"\n'), /allowed_roots: must be written \[\[security\.allowed_roots\]\]$/)
  assert.match(one('[security]\nallowed_roots = ["/usr"]\n'), /allowed_roots\[0\]: must be a table, not "\/usr"$/)
  assert.match(one('[[security.allowed_roots]]\n'), /allowed_roots\[0\]\.path: is required$/)
  assert.match(one('[[security.allowed_roots]]\npath = 1\n'), /path: must be a string, not 1$/)
  assert.match(one('[[security.allowed_roots]]\npath = ""\n'), /path: is empty$/)
  assert.match(one('[[security.allowed_roots]]\npath = "/usr\\u0000"\n'), /path: contains a control or invisible character$/)
})

test('a root that is not an absolute path is refused without a lookup', () => {
  for (const path of ['usr-of-nobody', '~/x', './no/such', 'src']) {
    const { problems, roots } = rootProblems(`[[security.allowed_roots]]\npath = "${path}"\n`)
    assert.deepEqual(problems, [`rexd.toml:2: security.allowed_roots[0].path: "${path}" must be an absolute path`])
    assert.deepEqual(roots, [])
  }
})

test('a root that is missing or not a directory is refused', async (t) => {
  const dir = await tempDir(t)
  await writeFile(join(dir, 'file'), '')
  await symlink('nowhere', join(dir, 'dangling'))
  for (const [name, reason] of [
    ['gone', /does not exist: create the directory/],
    ['file', /is not a directory$/],
    ['file/below', /ENOTDIR/],
    ['dangling', /does not exist: create the directory/],
  ] as const) {
    const { problems } = readPolicy([join(dir, name)])
    assert.equal(problems.length, 1, name)
    assert.match(problems[0] ?? '', reason)
    assert.match(problems[0] ?? '', /^rexd\.toml:6: security\.allowed_roots\[0\]\.path: /)
  }
})

test('the path of a root is normalized', async (t) => {
  const dir = await tempDir(t)
  await mkdir(join(dir, 'app'))
  for (const text of ['app', 'app/', 'app//', './app', 'x/../app/.', '/app'])
    assert.deepEqual(
      policyOf([`${dir}/${text}`]).roots.map(({ path, real }) => [path, real]),
      [[join(dir, 'app'), join(dir, 'app')]],
      text,
    )
})

test('a root that is a link is fixed to its current target, with a warning', async (t) => {
  const dir = await tempDir(t)
  await mkdir(join(dir, 'real'))
  await symlink('real', join(dir, 'link'))
  const { policy, problems, warnings } = readPolicy([join(dir, 'link')])
  const { dev, ino } = await stat(join(dir, 'real'), { bigint: true })
  assert.deepEqual(problems, [])
  assert.deepEqual(policy.roots, [{ path: join(dir, 'link'), real: join(dir, 'real'), dev, ino }])
  assert.equal(warnings.length, 1)
  assert.ok(warnings[0]?.endsWith(`is a link; the root is its current target: ${JSON.stringify(join(dir, 'real'))}`), warnings[0])
})

test('the whole file system may be a root in any spelling, with a warning', async (t) => {
  const dir = await tempDir(t)
  await symlink('/', join(dir, 'all'))
  for (const path of ['/', '/usr/..', '//', '/./', '/../', join(dir, 'all')]) {
    const { policy, problems, warnings } = readPolicy([path])
    assert.deepEqual(problems, [], path)
    assert.equal(policy.roots[0]?.real, '/', path)
    assert.ok(
      warnings.some((text) => text.includes('is the whole file system: clients can read and write everything')),
      path,
    )
  }
})

test('each wrong root is reported, and the valid ones are kept', async (t) => {
  const dir = await tempDir(t)
  const { policy, problems } = readPolicy([join(dir, 'a'), dir, join(dir, 'b')])
  assert.deepEqual(
    policy.roots.map(({ path }) => path),
    [dir],
  )
  assert.deepEqual(
    problems.map((text) => text.split(': ')[0]),
    ['rexd.toml:6', 'rexd.toml:10'],
  )
})

test('a rule has its tokens, its line, and whether any arguments may follow', () => {
  const rules =
    ruleText('allow_commands', ['git', 'log', '-n', '<INT>']) + ruleText('allow_commands', ['/usr/bin/curl', 'http://x<URL_PATH>'], 'any')
  const { allow_commands, deny_commands } = policyOf([ROOT], { rules })
  assert.deepEqual(allow_commands?.[0], {
    argv: ['git', 'log', '-n', '<INT>'],
    tokens: [{ kind: 'literal', text: 'git' }, { kind: 'literal', text: 'log' }, { kind: 'literal', text: '-n' }, { kind: 'int' }],
    anyArguments: false,
    line: 7,
  })
  assert.deepEqual(allow_commands?.[1]?.tokens[1], { kind: 'url_path', prefix: 'http://x' })
  assert.equal(allow_commands?.[1]?.anyArguments, true)
  assert.deepEqual(deny_commands, [])
})

test('an empty list of allowed commands differs from a missing list', () => {
  assert.deepEqual(policyOf([ROOT], { security: 'allow_commands = []' }).allow_commands, [])
  assert.equal(policyOf([ROOT]).allow_commands, null)
})

for (const key of ['allow_commands', 'deny_commands'] as const)
  test(`${key} refuses invalid rules`, () => {
    const wrong: [string, RegExp][] = [
      ['', /argv: is required: the program and each of its arguments, as in /],
      ['argv = []', /argv: is empty: it names at least the program$/],
      ['argv = [""]', /argv\[0\]: is empty: it names the program$/],
      ['argv = ["./git"]', /argv\[0\]: ".+" must be an absolute path or a bare name$/],
      ['argv = ["bin/git"]', /argv\[0\]: ".+" must be an absolute path or a bare name$/],
      ['argv = ["<INT>"]', /argv\[0\]: a template cannot name the program$/],
      ['argv = ["/x<URL_PATH>"]', /argv\[0\]: a template cannot name the program$/],
      ['argv = ["git", "<FILE>"]', /argv\[1\]: unknown template <FILE>; use <INT> or <URL_PATH>$/],
      ['argv = ["git", "-n<INT>"]', /argv\[1\]: <INT> must be the whole token$/],
      ['argv = ["git"]\nargs = "all"', /args: must be "any", which allows any further arguments$/],
      ['argv = ["git"]\nargs = true', /args: must be "any", which/],
      ['argv = ["git"]\nargs = ["a"]', /args: must be "any", which/],
    ]
    for (const [text, problem] of wrong) hasProblem({ rules: `[[security.${key}]]\n${text}\n` }, problem)
    hasProblem({ security: `${key} = "git"` }, new RegExp(`must be written \\[\\[security\\.${key}\\]\\]$`))
    hasProblem({ security: `${key} = [["git"]]` }, /must be a table, not a list$/)
    for (const argv of ['"git"', '["git", 1]', '5'])
      assert.ok(
        readPolicy([ROOT], { rules: `[[security.${key}]]\nargv = ${argv}\n` }).problems.some((text) =>
          /argv: must be a list of strings/.test(text),
        ),
      )
  })
