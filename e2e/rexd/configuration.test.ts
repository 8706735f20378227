import assert from 'node:assert/strict'
import { chmod, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test, type TestContext } from 'node:test'

import { Home, runRexd, type ConfigOptions, type Finished } from './server.ts'

// With what configuration rexd serves, and what it says of every other.

const OPEN = '{"jsonrpc":"2.0","id":1,"method":"session.open","params":{"client_name":"test"}}\n'

const homeWith = async (t: TestContext, options: ConfigOptions | string): Promise<Home> => {
  const home = await Home.create()
  t.after(async () => home.remove())
  if (typeof options === 'string') await writeFile(home.configFile, options, { mode: 0o600 })
  else await home.configure(options)
  return home
}

const serve = async (home: Home): Promise<Finished> => runRexd(home, undefined, OPEN)

/** It does not serve, and says why in lines of its own. */
const refuses = async (home: Home, why: RegExp): Promise<void> => {
  const { status, stdout, stderr } = await serve(home)
  assert.deepEqual([status, stdout], [2, ''])
  assert.match(stderr, why)
  for (const line of stderr.trimEnd().split('\n')) assert.match(line, /^rexd: /)
}

test('a good configuration serves, and --check says what it grants', async (t) => {
  const home = await homeWith(t, { security: ['allow_shell = true', 'allow_commands = [{ argv = ["true"] }]'] })
  const { status, stdout, stderr } = await serve(home)
  assert.deepEqual([status, stderr], [0, ''])
  assert.equal((JSON.parse(stdout) as { result: { protocol: string } }).result.protocol, 'rexd/1')
  const check = await runRexd(home, ['--check', '--config', home.configFile])
  assert.equal(check.status, 0)
  for (const what of [home.root, 'exec.shell', '1 commands']) assert.ok(check.stdout.includes(what), check.stdout)
  const json = await runRexd(home, ['--check', '--json', '--config', home.configFile])
  assert.equal((JSON.parse(json.stdout) as { ok: boolean }).ok, true)
})

test('--check says that a journal cannot be written, and what mends it', async (t) => {
  const home = await homeWith(t, {})
  const saysOf = async (path: string): Promise<string> => {
    await home.configure({ audit: [`path = ${JSON.stringify(path)}`] })
    const { status, stdout } = await runRexd(home, ['--check', '--config', home.configFile])
    assert.equal(status, 2, stdout)
    return stdout
  }
  assert.match(await saysOf(home.root), /audit\.path: .* is no regular file; every session would be refused/)
  assert.match(await saysOf('/dev/full'), /is no regular file/)
  const open = join(home.dir, 'open.jsonl')
  await writeFile(open, '')
  await chmod(open, 0o666)
  assert.match(await saysOf(open), /others may write it; every session would be refused; chmod go-w/)
})

test('without a configuration nothing is served', async (t) => {
  const home = await homeWith(t, {})
  await rm(home.configFile)
  await refuses(home, /config\.toml/)
})

const WRONG: readonly (readonly [string, ConfigOptions | string, RegExp])[] = [
  ['no TOML', '[security\n', /config\.toml:1:/],
  ['no UTF-8 text in it', '\u0000', /config\.toml/],
  ['no root', {}, /security\.allowed_roots: is required/],
  ['an unknown section', '[surprise]\n', /:1: surprise: unknown key/],
  ['an unknown key', { security: ['allow_everything = true'] }, /:\d+: security\.allow_everything: unknown key/],
  ['an unknown limit', { limits: ['max_everything = 1'] }, /limits\.max_everything: unknown key/],
  ['a limit of zero', { limits: ['max_output_bytes = 0'] }, /limits\.max_output_bytes: must be a whole number from 1/],
  ['a limit that is no whole number', { limits: ['hard_timeout_ms = 1.0'] }, /limits\.hard_timeout_ms: must be a whole number/],
  ['more of a file than one message holds', { limits: ['max_file_read_bytes = 2097153'] }, /max_file_read_bytes: must be a whole number/],
  ['a default above the hard limit', { limits: ['default_timeout_ms = 2', 'hard_timeout_ms = 1'] }, /default_timeout_ms: is 2, above/],
  ['a grant that is no truth value', { security: ['allow_shell = "yes"'] }, /security\.allow_shell: must be true or false/],
  ['a relative root', { roots: ['work'] }, /allowed_roots\[0\]\.path: "work" must be an absolute path/],
  ['a root that is not there', { roots: ['/no/such/directory'] }, /allowed_roots\[0\]\.path/],
  ['a root that is a file', { roots: ['/etc/hostname'] }, /is no directory/],
  ['a rule without a program', { security: ['deny_commands = [{ argv = [] }]'] }, /deny_commands\[0\]\.argv: is empty: it names at least/],
  ['a rule for a relative program', { security: ['allow_commands = [{ argv = ["./x"] }]'] }, /must be an absolute path or a bare name/],
  ['a template for a program', { security: ['allow_commands = [{ argv = ["<INT>"] }]'] }, /allow_commands\[0\]\.argv/],
  ['an unknown template', { security: ['allow_commands = [{ argv = ["x", "<ANY>"] }]'] }, /unknown template/],
  ['a level that there is not', { server: ['log_level = "loud"'] }, /server\.log_level: must be one of/],
  ['a relative journal', { audit: ['path = "audit.log"'] }, /audit\.path: "audit\.log" must be an absolute path/],
  ['a relative directory of programs', { security: ['path = ["bin"]'] }, /security\.path\[0\]/],
]

describe('what is wrong is refused with file, line and key', { concurrency: 4 }, () => {
  for (const [what, options, why] of WRONG)
    test(what, async (t) => {
      const noRoot = what === 'no root' ? { roots: [] } : {}
      await refuses(await homeWith(t, typeof options === 'string' ? options : { ...options, ...noRoot }), why)
    })
})

test('every problem is told at once, and --check tells the same', async (t) => {
  const home = await homeWith(t, { limits: ['max_output_bytes = 0'], security: ['allow_pty = 1'], roots: ['/no/such/directory'] })
  const { stderr } = await serve(home)
  const check = await runRexd(home, ['--check', '--config', home.configFile])
  assert.equal(check.status, 2)
  for (const key of ['max_output_bytes', 'allow_pty', 'allowed_roots'])
    for (const text of [stderr, check.stdout]) assert.ok(text.includes(key), text)
})

test('a configuration that others may write, or whose directory they may, is refused with the remedy', async (t) => {
  const home = await homeWith(t, {})
  for (const [path, mode] of [
    [home.configFile, 0o620],
    [home.configFile, 0o602],
    [home.dir, 0o770],
  ] as const) {
    await chmod(path, mode)
    await refuses(home, /writable by others .*chmod go-w/)
    await chmod(path, mode & 0o700)
  }
  assert.equal((await serve(home)).status, 0)
})

test('a link to a configuration is judged by what it leads to', async (t) => {
  const home = await homeWith(t, {})
  const link = join(home.root, 'link.toml')
  await symlink(home.configFile, link)
  assert.equal((await runRexd(home, ['--stdio', '--config', link], OPEN)).status, 0)
  await chmod(home.configFile, 0o666)
  const { status, stderr } = await runRexd(home, ['--stdio', '--config', link], OPEN)
  assert.equal(status, 2)
  assert.match(stderr, /writable by others/)
})

test('with server.stdio = false standard input is not served', async (t) => {
  const { status, stdout, stderr } = await serve(await homeWith(t, { server: ['stdio = false'] }))
  assert.deepEqual([status, stdout], [2, ''])
  assert.match(stderr, /server\.stdio is false/)
})

test('the whole file system as a root is possible, and warned of', async (t) => {
  const home = await homeWith(t, { roots: ['/'] })
  const check = await runRexd(home, ['--check', '--config', home.configFile])
  assert.equal(check.status, 0)
  assert.match(check.stdout, /warn .*whole file system/)
  const read = `{"jsonrpc":"2.0","id":2,"method":"fs.stat","params":{"session_id":"x","path":"/etc"}}\n`
  assert.equal((await runRexd(home, undefined, OPEN + read)).status, 0)
})

test('a journal that is switched off is warned of, and the server works', async (t) => {
  const home = await homeWith(t, { audit: ['enabled = false'] })
  const check = await runRexd(home, ['--check', '--config', home.configFile])
  assert.match(check.stdout, /warn .*audit\.enabled/)
  assert.match((await serve(home)).stdout, /"session_id"/)
  assert.deepEqual(await home.journal(), [])
})

test('flags that do not fit are refused in one line', async (t) => {
  const home = await homeWith(t, {})
  const wrong = [[], ['--stdoi'], ['--stdio', 'more'], ['--stdio', '--check'], ['--stdio', '--json'], ['--stdio', '--config']]
  for (const [at, { status, stdout, stderr }] of (await Promise.all(wrong.map(async (argv) => runRexd(home, argv)))).entries()) {
    const argv = wrong[at]!
    assert.deepEqual([status, stdout], [2, ''], argv.join(' '))
    assert.match(stderr, /^rexd: [^\n]+\n$/)
  }
  assert.match((await runRexd(home, ['--version'])).stdout, /^rexd \d+\.\d+\.\d+/)
  assert.match((await runRexd(home, ['--help'])).stdout, /--stdio/)
})
