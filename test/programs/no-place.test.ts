import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { cleanEnvironment, MeshOfDaemons } from '../support/mesh-of-daemons.ts'
import { mcpPlace } from '../support/mcp-server.ts'
import { tempDir } from '../support/temp-dir.ts'

const BIN = join(import.meta.dirname, '../../deploy/bin')
const X0XD = join(BIN, 'x0xd.mjs')
const X0X = join(BIN, 'x0x.cjs')
const REXD = join(BIN, 'rexd.mjs')
const REXEC = join(BIN, 'rexec.cjs')

const LINUX = { skip: process.platform !== 'linux' && 'elsewhere a directory in use cannot be removed' }

test('x0xd --check works in a deleted directory, and names the option that needs an absolute path', LINUX, async (t) => {
  const [gone, data] = [join(await tempDir(t), 'gone'), join(await tempDir(t), 'data')]
  const check = async (...flags: string[]) => {
    await mkdir(gone)
    const line = ['-c', `cd ${gone} && rmdir ${gone} && exec "$@"`, 'sh', process.execPath, X0XD, '--check', ...flags]
    return spawnSync('sh', line, { encoding: 'utf8', env: cleanEnvironment() })
  }
  const absolute = await check('--data-dir', data)
  assert.equal(absolute.status, 0, absolute.stderr + absolute.stdout)
  const acl = await check('--data-dir', data, '--exec-acl', 'acl.toml')
  assert.match(acl.stdout + acl.stderr, /--exec-acl: "acl.toml" is relative, and the working directory does not exist/)
  const relative = await check('--data-dir', 'data')
  assert.equal(relative.status, 2)
  assert.match(relative.stderr, /--data-dir, X0X_DATA_DIR\) "data" is relative, and the working directory does not exist/)
})

/** Runs programs in a deleted working directory. */
const goneIn = async (t: TestContext) => {
  const gone = join(await tempDir(t), 'gone')
  const home = await tempDir(t)
  return async (argv: readonly string[], input = '', more: Readonly<Record<string, string>> = {}) => {
    await mkdir(gone)
    const line = ['-c', `cd ${gone} && rmdir ${gone} && exec "$@"`, 'sh', process.execPath, ...argv]
    return spawnSync('sh', line, { encoding: 'utf8', env: { ...cleanEnvironment(), HOME: home, ...more }, input, timeout: 30_000 })
  }
}

test('rexd, x0x mcp, --doctor and init work in a deleted working directory', LINUX, async (t) => {
  const run = await goneIn(t)
  const { config, root, dir } = await mcpPlace(t)
  const data = join(dir, 'data')
  const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
  for (const [argv, input, says] of [
    [[REXD, '--check', '--config', config], '', /^ok +configuration/],
    [[REXD, '--stdio', '--config', config], ping, /"id":1/],
    [[X0X, 'mcp', '--check', '--whoami', 'tester', '--config', config], '', /^ok +configuration/],
    [[X0X, 'mcp', '--whoami', 'tester', '--config', config], ping, /"result":\{\},.*"id":1/],
    [[X0X, 'mcp', '--init', root, '--whoami', 'tester', '--config', join(dir, 'first.toml')], '', /"mcpServers"/],
    [[X0XD, '--doctor', '--data-dir', data, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0'], '', /^ok +daemon +does not run$/m],
    [[X0X, '--data-dir', data, 'init'], '', /machine\.key .* made$/m],
  ] as const) {
    const { status, stdout, stderr } = await run(argv, input)
    assert.equal(status, 0, `${argv.join(' ')}: ${stderr}${stdout}`)
    assert.match(stdout, says, argv.join(' '))
  }
})

test('in a deleted working directory, every program names the relative path that it refuses', LINUX, async (t) => {
  const run = await goneIn(t)
  const { config } = await mcpPlace(t)
  for (const [argv, name] of [
    [[REXD, '--check', '--config', 'c.toml'], 'the configuration "c.toml"'],
    [[REXD, '--stdio', '--config', 'c.toml'], 'the configuration "c.toml"'],
    [[X0X, 'mcp', '--check', '--whoami', 'tester', '--config', 'c.toml'], 'the configuration "c.toml"'],
    [[X0X, 'mcp', '--whoami', 'tester', '--config', config, '--record', 'file'], '--record "file"'],
    [[X0X, 'mcp', '--init', 'project', '--whoami', 'tester'], '--init "project"'],
    [[X0XD, '--check', '--config', 'c.toml'], '--config "c.toml"'],
    [[X0XD, '--doctor', '--data-dir', 'data'], 'the data directory (--data-dir, X0X_DATA_DIR) "data"'],
    [[X0X, '--data-dir', 'data', 'init'], 'the data directory (--data-dir, X0X_DATA_DIR) "data"'],
    [[X0X, 'desk', '--data-dir', 'data'], 'the data directory (--data-dir, X0X_DATA_DIR) "data"'],
    [[X0X, 'bundle', 'file.json'], 'the file "file.json"'],
    [[X0X, 'acl', 'check', 'acl.toml'], 'the ACL "acl.toml"'],
    [[REXEC, '--whoami', 'tester', '--dir', 'project', '--', 'true'], '--dir "project"'],
  ] as const) {
    const { status, stdout, stderr } = await run(argv)
    const said = `${name} is relative, and the working directory does not exist or cannot be read: give an absolute path`
    assert.ok((stderr + stdout).includes(said), `${argv.join(' ')}: ${stderr}${stdout}`)
    assert.equal(status, 2, argv.join(' '))
  }
})

test('a daemon and x0x desk start in a deleted directory, where commands run only with default_cwd', LINUX, async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const gone = join(mesh.root, 'gone')
  const through = ['sh', '-c', `mkdir ${gone} && cd ${gone} && rmdir ${gone} && exec "$@"`, 'sh', process.execPath] as const
  const daemon = mesh.add('alice', { program: [...through, X0XD] })
  await daemon.start()
  await daemon.writeAcl([{ agent: daemon, commands: [['pwd']] }])
  await daemon.restart()
  const { status, stdout } = await daemon.exec(daemon.agentId, ['pwd'])
  assert.deepEqual([status, stdout.toString()], [0, '/\n'])

  const acl = await readFile(daemon.aclFile, 'utf8')
  await writeFile(daemon.aclFile, acl.replace(/^default_cwd = "\/"\n/m, ''))
  await daemon.restart()
  const refused = await daemon.exec(daemon.agentId, ['pwd'])
  assert.equal(refused.status, 255)
  assert.match(refused.stderr, /spawn_failed/)
  const journal = JSON.stringify(await daemon.journal())
  assert.ok(
    journal.includes("default_cwd is not set in the ACL, and the daemon's working directory does not exist or cannot be read"),
    journal,
  )

  const data = join(mesh.root, 'desk')
  await mkdir(data, { mode: 0o700 })
  const [shell, ...words] = [...through, X0X, 'desk', '--data-dir', data]
  const desk = spawn(shell, words, { stdio: ['ignore', 'pipe', 'inherit'], env: cleanEnvironment() })
  const ended = once(desk, 'exit')
  t.after(() => desk.kill('SIGKILL'))
  const [said] = await once(desk.stdout, 'data')
  assert.match(String(said), /^x0x desk: approval service for /)
  desk.kill('SIGTERM')
  assert.deepEqual(await ended, [143, null])
})

const NO_HOME = { skip: process.geteuid?.() !== 0 && 'only root can become a user without a passwd entry' }

test('without HOME and a passwd entry, the message names --data-dir', NO_HOME, () => {
  for (const argv of [
    [X0XD, '--check'],
    [X0X, 'id'],
    [X0X, 'desk'],
  ]) {
    const line = ['--reuid', '54321', '--regid', '54321', '--clear-groups', process.execPath, ...argv]
    const { status, stderr, stdout } = spawnSync('setpriv', line, { encoding: 'utf8', cwd: '/', env: { PATH: process.env['PATH'] ?? '' } })
    assert.match(stderr + stdout, /home directory is unknown[^]*--data-dir or X0X_DATA_DIR/, argv.join(' '))
    assert.equal(status, 2, stderr)
  }
})
