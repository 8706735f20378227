import assert from 'node:assert/strict'
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { loadConfig, readConfig } from '../../src/config/config.ts'
import { X0XD } from '../../src/cli/programs.ts'
import { daemonFlags, type DaemonFlags } from '../../src/programs/x0xd/main.ts'
import { SETTING_KEYS } from '../../src/config/config.ts'
import { lineOf } from '../support/line-of.ts'
import { tempDir } from '../support/temp-dir.ts'

const flags = (...argv: string[]): DaemonFlags => daemonFlags(lineOf(X0XD, argv))

const problemsOf = async (argv: string[], env: Record<string, string> = {}): Promise<readonly string[]> =>
  (await readConfig(flags(...argv), env)).problems

const withFile = async (t: TestContext, text: string): Promise<{ dir: string; file: string }> => {
  const dir = await tempDir(t)
  const file = join(dir, 'config.toml')
  await writeFile(file, text)
  return { dir, file }
}

test('without settings, an unnamed daemon uses the defaults', async () => {
  const config = await loadConfig(flags('--data-dir', '/nonexistent-x0x'), {})
  assert.equal(config.api_port, 12_700)
  assert.deepEqual(config.listen, ['/ip4/0.0.0.0/tcp/5483'])
  assert.equal(config.exec_acl_explicit, false)
  assert.match(config.exec_acl, /\/etc\/x0x\/exec-acl\.toml$/)
  assert.equal(config.log_level, 'warn')
  assert.equal(config.config_file, null)
})

test('the data directory is ~/.x0x, ~/.x0x-NAME, or the one from --data-dir', async () => {
  assert.equal((await readConfig(flags(), {})).config.paths.dir, join(homedir(), '.x0x'))
  assert.equal((await readConfig(flags('--name', 'lab'), {})).config.paths.dir, join(homedir(), '.x0x-lab'))
  assert.equal((await readConfig(flags('--name', 'lab', '--data-dir', '/d'), {})).config.paths.dir, '/d')
  assert.equal((await readConfig(flags(), { X0X_NAME: 'env' })).config.paths.dir, join(homedir(), '.x0x-env'))
})

test('a named instance has its own ACL and uses any free port', async () => {
  const { config } = await readConfig(flags('--name', 'lab'), {})
  assert.equal(config.exec_acl, join(homedir(), '.x0x-lab', 'exec-acl.toml'))
  assert.equal(config.api_port, 0)
  assert.deepEqual(config.listen, ['/ip4/0.0.0.0/tcp/0'])
})

test('flags override the environment, which overrides the file, which overrides the defaults', async (t) => {
  const { dir } = await withFile(t, 'api_port = 1\nlog_level = "info"\nmdns = false\ndisplay_name = "file"\n')
  const env = { X0X_API_PORT: '2', X0X_LOG_LEVEL: 'debug' }
  const config = await loadConfig(flags('--data-dir', dir, '--api-port', '3'), env)
  assert.equal(config.api_port, 3)
  assert.equal(config.log_level, 'debug')
  assert.equal(config.mdns, false)
  assert.equal(config.display_name, 'file')
  assert.equal(config.config_file, join(dir, 'config.toml'))
})

test('unlisted peers may connect unless the file sets `strangers` to false, and the environment can override it', async (t) => {
  const { dir } = await withFile(t, 'strangers = false\n')
  assert.equal((await loadConfig(flags('--data-dir', dir), {})).strangers, false)
  assert.equal((await loadConfig(flags('--data-dir', dir), { X0X_STRANGERS: 'true' })).strangers, true)
  assert.equal((await readConfig(flags('--name', 'lab'), {})).config.strangers, true)
  await assert.rejects(loadConfig(flags('--data-dir', dir), { X0X_STRANGERS: 'no' }), /X0X_STRANGERS: must be true or false/)
})

test('--exec-acl=path and --exec-acl path are the same', async () => {
  for (const argv of [['--exec-acl=/a.toml'], ['--exec-acl', '/a.toml']]) {
    const { config } = await readConfig(flags(...argv), {})
    assert.equal(config.exec_acl, '/a.toml')
    assert.equal(config.exec_acl_explicit, true)
  }
})

test('--listen and --bootstrap may be repeated', async () => {
  const { config, problems } = await readConfig(flags('--listen', '/ip4/127.0.0.1/tcp/1', '--listen', '/ip6/::1/tcp/2'), {})
  assert.deepEqual(problems, [])
  assert.deepEqual(config.listen, ['/ip4/127.0.0.1/tcp/1', '/ip6/::1/tcp/2'])
})

test('a mistyped flag is refused with a suggestion of the right one', () => {
  assert.throws(
    () => flags('--exec-alc', '/a'),
    (error) => isAppError(error, 'bad_config') && /--exec-alc.*--exec-acl/.test(error.message),
  )
})

test('a flag without its value, an argument, and two modes at once are refused', () => {
  for (const argv of [['--name'], ['start'], ['--check', '--doctor'], ['--json']]) {
    assert.throws(
      () => flags(...argv),
      (error) => isAppError(error, 'bad_config'),
      argv.join(' '),
    )
  }
})

test('an unknown key is reported with its file, its line and a suggestion', async (t) => {
  const { dir, file } = await withFile(t, '# ours\napi_port = 1\nlog_levle = "info"\n')
  assert.deepEqual(await problemsOf(['--data-dir', dir]), [`${file}:3: log_levle: unknown key. Did you mean log_level?`])
})

test('an unknown X0X_ variable is refused, and other variables are ignored', async () => {
  assert.deepEqual(await problemsOf(['--data-dir', '/d'], { X0X_API_PROT: '1', PATH: '/bin' }), [
    'X0X_API_PROT: unknown variable. Did you mean X0X_API_PORT?',
  ])
})

test('variables that Kubernetes sets for a Service named x0x or x0x-api are ignored', async () => {
  const services = {
    X0X_SERVICE_HOST: '10.96.0.12',
    X0X_SERVICE_PORT: '5483',
    X0X_SERVICE_PORT_MESH: '5483',
    X0X_PORT: 'tcp://10.96.0.12:5483',
    X0X_PORT_5483_TCP: 'tcp://10.96.0.12:5483',
    X0X_PORT_5483_TCP_PROTO: 'tcp',
    X0X_PORT_5483_TCP_PORT: '5483',
    X0X_PORT_5483_TCP_ADDR: '10.96.0.12',
    X0X_API_SERVICE_HOST: '10.96.0.13',
    X0X_API_PORT: 'tcp://10.96.0.13:12700',
    X0X_NAME: '/web/x0x',
    X0X_ENV_LANG: 'C',
  }
  const { config, problems } = await readConfig(flags('--data-dir', '/d'), services)
  assert.deepEqual(problems, [])
  assert.equal(config.name, null)
  assert.equal(config.api_port, 12_700)
})

test('variables that only resemble those of a Service are refused', async () => {
  for (const [name, value] of Object.entries({
    X0X_PORT: '5483',
    X0X_API_PORT: 'http://10.96.0.13',
    X0X_SERVICE: 'x',
    X0X_PORTS: 'tcp://10.96.0.12:5483',
  })) {
    assert.equal((await problemsOf(['--data-dir', '/d'], { [name]: value })).length, 1, name)
  }
})

test('all problems are reported at once, each with its source', async (t) => {
  const { dir, file } = await withFile(t, 'api_port = "x"\nmdns = 1\n')
  const problems = await problemsOf(['--data-dir', dir, '--listen', 'nowhere'], { X0X_LOG_LEVEL: 'loud' })
  assert.equal(problems.length, 4)
  assert.ok(problems.some((text) => text.startsWith(`${file}:1: api_port: `)))
  assert.ok(problems.some((text) => text.startsWith(`${file}:2: mdns: `)))
  assert.ok(problems.some((text) => text.startsWith('X0X_LOG_LEVEL: ')))
  assert.ok(problems.some((text) => text.startsWith('--listen: ')))
})

test('a value of the wrong type is refused for each key', async (t) => {
  for (const key of SETTING_KEYS) {
    const { dir, file } = await withFile(t, `${key} = 1.5\n`)
    const problems = await problemsOf(['--data-dir', dir])
    assert.equal(problems.length, 1, key)
    assert.ok(problems[0]?.startsWith(`${file}:1: ${key}: must be`), problems[0])
  }
})

test('ports and addresses just outside their valid range are refused', async () => {
  for (const port of ['-1', '65536', '1.5', '0x10', ''])
    assert.equal((await problemsOf(['--data-dir', '/d', `--api-port=${port}`])).length, 1, port)
  for (const port of ['0', '65535']) assert.deepEqual(await problemsOf(['--data-dir', '/d', `--api-port=${port}`]), [])
  for (const bad of ['/ip4/127.0.0.1/tcp/65536', '/ip4/127.0.0.1/udp/1', '127.0.0.1:1', '/ip4/127.0.0.1/tcp/1/ws']) {
    assert.equal((await problemsOf(['--data-dir', '/d', '--bootstrap', bad])).length, 1, bad)
  }
  for (const host of ['ip4/999.1.1.1', 'ip4/1.2.3', 'ip4/1.2.3.4.5', 'ip6/:::', 'ip6/1.2.3.4', 'ip6/12345::', 'ip4/::1'])
    assert.equal((await problemsOf(['--data-dir', '/d', '--listen', `/${host}/tcp/5`])).length, 1, host)
  for (const host of ['ip4/0.0.0.0', 'ip6/::', 'ip6/::ffff:1.2.3.4', 'dns4/a.example'])
    assert.deepEqual(await problemsOf(['--data-dir', '/d', '--listen', `/${host}/tcp/5`]), [], host)
})

test('an empty data directory is refused, and the working directory is not used', async () => {
  for (const [argv, env] of [
    [['--data-dir', ''], {}],
    [[], { X0X_DATA_DIR: '' }],
  ] as const)
    await assert.rejects(readConfig(flags(...argv), env), { code: 'bad_config', message: /is empty; leave it out/ })
})

test('a file that is not TOML is refused with its line and column', async (t) => {
  const { dir, file } = await withFile(t, 'api_port = \n')
  const problems = await problemsOf(['--data-dir', dir])
  assert.equal(problems.length, 1)
  assert.ok(problems[0]?.startsWith(`${file}:1:`))
})

test('a missing file is refused if it was named, but the default file may be missing', async (t) => {
  const dir = await tempDir(t)
  assert.deepEqual(await problemsOf(['--data-dir', dir]), [])
  const problems = await problemsOf(['--data-dir', dir, '--config', join(dir, 'other.toml')])
  assert.equal(problems.length, 1)
  assert.match(problems[0] ?? '', /other\.toml/)
})

test('a file that other users may write is refused with the command that fixes it', async (t) => {
  const { dir, file } = await withFile(t, 'mdns = false\n')
  await chmod(file, 0o666)
  const problems = await problemsOf(['--data-dir', dir])
  assert.equal(problems.length, 1)
  assert.match(problems[0] ?? '', /chmod go-w/)
})

test('a relative path in the file starts at its directory, and one in a flag at the working directory', async (t) => {
  const { dir } = await withFile(t, 'exec_acl = "acl.toml"\n')
  assert.equal((await loadConfig(flags('--data-dir', dir), {})).exec_acl, join(dir, 'acl.toml'))
  assert.equal((await loadConfig(flags('--data-dir', dir, '--exec-acl', 'b.toml'), {})).exec_acl, join(process.cwd(), 'b.toml'))
})

test('an instance name that could leave its directory is refused', async () => {
  for (const name of ['../x', 'a/b', '', '.x', 'a'.repeat(33), 'ä']) {
    await assert.rejects(
      readConfig(flags('--name', name), {}),
      (error) => isAppError(error, 'bad_config') && error.message.startsWith('--name'),
    )
  }
})

test('a data directory whose path is too long for a socket is refused', async (t) => {
  const dir = join(await tempDir(t), 'd'.repeat(100))
  await mkdir(dir)
  const problems = await problemsOf(['--data-dir', dir])
  assert.equal(problems.length, 1)
  assert.match(problems[0] ?? '', /shorter --data-dir/)
})

test('the error for a wrong command line is one line that refers to the help', () => {
  for (const argv of [['--bogus'], ['extra'], ['--listen'], ['--json'], ['--check', '--doctor']])
    assert.throws(() => flags(...argv), { code: 'bad_config', message: /^[^\n]+[^.]$/, data: { next: 'See: x0xd --help' } })
})

test('an approver has 120 seconds by default, and a setting can change this within its limits', async (t) => {
  const { dir, file } = await withFile(t, 'ask_timeout = 1800\n')
  assert.equal((await loadConfig(flags('--data-dir', '/nonexistent-x0x'), {})).ask_timeout, 120)
  assert.equal((await loadConfig(flags('--data-dir', dir), {})).ask_timeout, 1_800)
  for (const wrong of ['0', '1801', '1.5', 'true']) {
    await writeFile(file, `ask_timeout = ${wrong}\n`)
    assert.match((await problemsOf(['--data-dir', dir]))[0] ?? '', /ask_timeout: must be whole seconds, 1 to 1800/)
  }
})

test('an address that can never be dialled is refused with the name of its flag, variable or key', async (t) => {
  const text = '/ip6/fe80::1/tcp/5483/p2p/12D3KooWBCpcEXZJvNkuQmYyJX5n4tKcWwTb1nqWRx6GyKjQyZbh'
  const says = /"\/ip6\/fe80::1.*" is a link-local address without a zone: use an address that is valid beyond one link/
  const refused = (problems: readonly string[], by: string): void => {
    const [problem = ''] = problems
    assert.equal(problems.length, 1)
    assert.ok(problem.startsWith(`${by}: `), problem)
    assert.match(problem, says)
  }
  for (const key of ['bootstrap', 'relays', 'announce']) {
    const { dir, file } = await withFile(t, `${key} = [${JSON.stringify(text)}]\n`)
    refused(await problemsOf(['--data-dir', dir]), `${file}:1: ${key}`)
    const variable = `X0X_${key.toUpperCase()}`
    refused(await problemsOf(['--data-dir', '/none'], { [variable]: text }), variable)
  }
  refused(await problemsOf(['--data-dir', '/none', '--bootstrap', text]), '--bootstrap')
})
