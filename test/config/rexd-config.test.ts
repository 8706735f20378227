import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { chmod, chown, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { test, type TestContext } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { loadRexdConfig, readRexdConfig, type RexdConfig, type RexdConfigReading } from '../../src/config/rexd-config.ts'
import { DEFAULT_REXD_CONFIG } from '../../src/clients/paths.ts'
import { VERSION } from '../../src/base/runtime.ts'
import { programLine } from '../../src/cli/program-line.ts'
import { REXD } from '../../src/cli/rexd.ts'
import { rexdFlags, type RexdFlags } from '../../src/programs/rexd/serve.ts'
import { lineOf } from '../support/line-of.ts'
import { tempDir } from '../support/temp-dir.ts'

const ROOT = '[[security.allowed_roots]]\npath = "/usr"\n'

const fileOf = async (t: TestContext, text: string | Uint8Array): Promise<string> => {
  const file = join(await tempDir(t), 'config.toml')
  await writeFile(file, text, { mode: 0o600 })
  return file
}

const readText = async (t: TestContext, text: string): Promise<RexdConfigReading> => readRexdConfig(await fileOf(t, `${text}\n${ROOT}`), {})

const configOf = async (t: TestContext, text: string): Promise<RexdConfig> => {
  const { config, problems } = await readText(t, text)
  assert.deepEqual(problems, [])
  assert.ok(config)
  return config
}

/** Checks that the text has exactly this problem, at this place. */
const hasProblem = async (t: TestContext, text: string, problem: RegExp): Promise<void> => {
  const { problems } = await readText(t, text)
  assert.equal(problems.length, 1, `${text}: ${problems.join('\n') || 'no problem found'}`)
  assert.match(problems[0]!.replace(/^.*\/config\.toml:/, ''), problem)
}

test('a file with only a root is a complete configuration', async (t) => {
  const file = await fileOf(t, ROOT)
  const { config, warnings } = await loadRexdConfig(file, {})
  const { policy, ...rest } = config
  assert.deepEqual(rest, {
    path: file,
    sha256: createHash('sha256')
      .update(await readFile(file))
      .digest('hex'),
    stdio: true,
    log_level: 'warn',
    http: null,
    audit_path: '/var/lib/rexd/audit.log',
    answer_within_ms: 45_000,
  })
  assert.deepEqual([policy.source, policy.roots.map(({ path }) => path)], [file, ['/usr']])
  assert.deepEqual(warnings, [])
})

test('the sample from the protocol documentation is a valid configuration', async (t) => {
  const text = `[server]\nstdio = true\nlog_level = "info"\n
[limits]\ndefault_timeout_ms = 30000\nhard_timeout_ms = 300000\nmax_output_bytes = 1048576\nmax_file_read_bytes = 1048576
max_processes_per_session = 8\nmax_concurrent_sessions = 16\n
[security]\nallow_shell = true\n\n[[security.allowed_roots]]\npath = "/usr"\n\n[[security.allowed_roots]]\npath = "/etc"\n
[audit]\nenabled = true\npath = "/var/lib/rexd/audit.log"\n`
  const { config } = await loadRexdConfig(await fileOf(t, text), {})
  assert.deepEqual([config.log_level, config.policy.roots.length, config.policy.granted.has('exec.shell')], ['info', 2, true])
})

test('a relative path of the file starts at the working directory', async (t) => {
  const file = await fileOf(t, ROOT)
  assert.equal((await loadRexdConfig(relative(process.cwd(), file), {})).config.path, file)
})

test('the policy of a configuration is frozen', async (t) => {
  const rules = '[[security.deny_commands]]\nargv = ["rm"]\n'
  const { config } = await readRexdConfig(await fileOf(t, `[security]\nallow_env = ["CI"]\n${ROOT}${rules}`), {})
  const { policy } = config!
  const parts = [config, policy, policy.roots, policy.roots[0], policy.limits, policy.env, policy.allow_env, policy.deny_commands]
  for (const part of [...parts, policy.deny_commands[0], policy.deny_commands[0]?.argv, policy.deny_commands[0]?.tokens[0]])
    assert.ok(Object.isFrozen(part))
})

test('a missing file, and one that is not text or not TOML, is refused with the reason', async (t) => {
  const dir = await tempDir(t)
  const cases: [string, RegExp][] = [
    [join(dir, 'gone.toml'), /gone\.toml: ./],
    [dir, /is a directory: name a file \(EISDIR\)/],
    [await fileOf(t, Buffer.from([0xff, 0xfe])), /config\.toml: not valid UTF-8$/],
    [await fileOf(t, 'a = \n'), /config\.toml:1:\d+: /],
    [await fileOf(t, '[server]\n[server]\n'), /config\.toml:2:/],
  ]
  for (const [file, problem] of cases) {
    const { config, problems } = await readRexdConfig(file, {})
    assert.deepEqual([config, problems.length], [null, 1])
    assert.match(problems[0] ?? '', problem)
    await assert.rejects(loadRexdConfig(file, {}), (error) => isAppError(error, 'bad_config') && problem.test(error.message))
  }
})

test('all problems are reported at once, and a configuration with a problem is not loaded', async (t) => {
  const file = await fileOf(t, '[server]\nstdio = 1\nport = 2\n[limits]\nmax_output_bytes = 0\n[audit]\npath = "x"\n')
  await chmod(file, 0o666)
  await assert.rejects(loadRexdConfig(file, {}), (error) => {
    assert.ok(isAppError(error, 'bad_config'))
    const problems = error.data['problems'] as string[]
    assert.deepEqual([error.data['file'], error.message], [file, problems.join('\n')])
    const places = ['writable by other users', 'server.stdio', 'server.port', 'limits.max_output_bytes', 'audit.path', 'allowed_roots']
    assert.deepEqual(
      places.filter((place) => !problems.some((text) => text.includes(place))),
      [],
    )
    assert.equal(problems.length, places.length)
    return true
  })
})

test('a file is refused with the command that fixes it if others may write it or its directory', async (t) => {
  const file = await fileOf(t, ROOT)
  for (const mode of [0o620, 0o602, 0o666]) {
    await chmod(file, mode)
    assert.match(
      (await readRexdConfig(file, {})).problems.join('\n'),
      /config\.toml is writable by other users \(mode 06\d\d\); fix it with: chmod go-w \S+$/,
    )
  }
  await chmod(file, 0o644)
  await loadRexdConfig(file, {})
  await chmod(join(file, '..'), 0o777)
  assert.match((await readRexdConfig(file, {})).problems.join('\n'), /^\S+ is writable by other users \(mode 0777\)/)
})

test(
  'a file that belongs to another user is refused, even if it is reached through a link',
  { skip: process.geteuid?.() !== 0 && 'only root gives files away' },
  async (t) => {
    const dir = await tempDir(t)
    await mkdir(join(dir, 'theirs'))
    const file = join(dir, 'theirs/config.toml')
    await writeFile(file, ROOT)
    await chown(file, 12_345, 12_345)
    await symlink('theirs/config.toml', join(dir, 'config.toml'))
    for (const path of [file, join(dir, 'config.toml')])
      assert.match(
        (await readRexdConfig(path, {})).problems.join('\n'),
        /theirs\/config\.toml belongs to uid 12345; fix it with: chown root/,
      )
  },
)

test('an unknown section or key is refused', async (t) => {
  await hasProblem(t, 'stdio = true\n', /^1: stdio: unknown key; known keys: server, limits, security, audit, mcp, tools, agents$/)
  await hasProblem(t, '[serve]\n', /^1: serve: unknown key/)
  await hasProblem(t, '[server]\n\nhttp = true\n', /^3: server\.http: unknown key; known keys: stdio, log_level, http_listen, /)
  await hasProblem(t, '[audit]\nfile = "/a"\n', /^2: audit\.file: unknown key; known keys: enabled, path$/)
  for (const name of ['server', 'limits', 'audit'])
    await hasProblem(t, `${name} = true\n`, new RegExp(`^1: ${name}: must be a table, not true$`))
  await hasProblem(t, '[[server]]\nstdio = true\n', /^1: server: must be a table, not a list$/)
})

test('answer_within_ms must be between 100 ms and one hour', async (t) => {
  assert.equal((await configOf(t, '[mcp]\nanswer_within_ms = 100')).answer_within_ms, 100)
  assert.equal((await configOf(t, '[mcp]\nanswer_within_ms = 3600000')).answer_within_ms, 3_600_000)
  for (const value of ['99', '3600001', '1.5', '"45000"', 'true'])
    await hasProblem(t, `[mcp]\nanswer_within_ms = ${value}`, /^2: mcp\.answer_within_ms: must be a whole number from 100 to 3600000, not /)
  await hasProblem(t, '[mcp]\nanswer = 1\n', /^2: mcp\.answer: unknown key; known keys: answer_within_ms$/)
})

test('stdio must be true or false, and log_level must be a known level', async (t) => {
  assert.equal((await configOf(t, '[server]\nstdio = false')).stdio, false)
  for (const value of ['0', '"yes"', '1.0', '[]'])
    await hasProblem(t, `[server]\nstdio = ${value}`, /^2: server\.stdio: must be true or false, not /)
  for (const level of ['debug', 'info', 'warn', 'error'])
    assert.equal((await configOf(t, `[server]\nlog_level = "${level}"`)).log_level, level)
  for (const value of ['"loud"', '"INFO"', '""', '1', 'true'])
    await hasProblem(t, `[server]\nlog_level = ${value}`, /^2: server\.log_level: must be one of debug, info, warn, error, not /)
})

test('the audit log has an absolute path, and a warning appears if it is disabled', async (t) => {
  assert.equal((await configOf(t, '[audit]\npath = "/tmp/audit.log"')).audit_path, '/tmp/audit.log')
  assert.equal((await configOf(t, '[audit]\nenabled = true')).audit_path, '/var/lib/rexd/audit.log')
  const off = await readText(t, '[audit]\nenabled = false\npath = "/tmp/audit.log"')
  assert.deepEqual([off.config?.audit_path, off.problems], [null, []])
  assert.match(off.warnings.join('\n'), /config\.toml:2: audit\.enabled: runs are not logged$/)
  await hasProblem(t, '[audit]\npath = "audit.log"', /^2: audit\.path: "audit\.log" must be an absolute path$/)
  for (const value of ['1', 'true', '["/a"]']) await hasProblem(t, `[audit]\npath = ${value}`, /^2: audit\.path: must be a string, not /)
  await hasProblem(t, '[audit]\npath = ""', /^2: audit\.path: is empty$/)
  await hasProblem(t, '[audit]\nenabled = "no"', /^2: audit\.enabled: must be true or false, not "no"$/)
})

test('a wrong path of the audit log is reported even if the log is disabled', async (t) => {
  await hasProblem(t, '[audit]\nenabled = false\npath = 5', /^3: audit\.path: must be a string, not 5$/)
})

const flags = (...argv: string[]): RexdFlags => rexdFlags(lineOf(REXD, argv))

test('the command line selects how clients reach rexd, and the configuration file', () => {
  assert.deepEqual(flags('--stdio'), {
    mode: 'stdio',
    json: false,
    exitOnEof: false,
    config: DEFAULT_REXD_CONFIG,
    given: { program: 'rexd', options: [] },
  })
  assert.deepEqual([flags('--http').exitOnEof, flags('--http', '--exit-on-eof').exitOnEof], [false, true])
  assert.deepEqual([flags('--http', '--config', 'a.toml').mode, flags('--http', '--config=a.toml').config], ['http', 'a.toml'])
  assert.deepEqual([flags('--check', '--json').mode, flags('--check', '--json').json], ['check', true])
  for (const argv of [['--version'], ['--stdio', '--version']]) assert.equal(programLine(REXD, argv), `rexd ${VERSION}\n`)
  for (const word of ['--help', '-h']) assert.match(String(programLine(REXD, [word])), /Usage: rexd[^]*ssh server-a rexd --stdio/)
})

test('flags that conflict or are incomplete are refused with a reference to the help', () => {
  const wrong = [
    [],
    ['--stdio', '--http'],
    ['--stdio', '--check'],
    ['--http', '--check'],
    ['--exit-on-eof'],
    ['--stdio', '--exit-on-eof'],
    ['--json'],
    ['--stdio', '--json'],
    ['--config'],
  ]
  for (const argv of [...wrong, ['--stdio', 'x'], ['--studio'], ['--config', 'a.toml'], ['-c']])
    assert.throws(
      () => flags(...argv),
      (error) => isAppError(error, 'bad_config') && error.data['next'] === 'See: rexd --help',
      argv.join(' '),
    )
  assert.throws(() => flags('--studio'), /--stdio/)
})
