import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { appendFile, mkdir, readFile, realpath, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { startMcp, X0X } from '../../test/support/mcp-server.ts'
import { tempDir } from '../../test/support/temp-dir.ts'

/** A working directory next to a home directory. */
const placeOf = async (t: TestContext) => {
  const dir = await realpath(await tempDir(t))
  const [home, work] = [join(dir, 'home'), join(dir, 'my app')]
  for (const one of [home, work]) await mkdir(one)
  const x0x = (...args: string[]) =>
    spawnSync(process.execPath, [X0X, 'mcp', ...args], { encoding: 'utf8', env: { PATH: process.env['PATH'], HOME: home }, cwd: dir })
  return { dir, home, work, x0x, config: join(home, '.config/x0x/mcp/my_app.toml') }
}

test('--init writes a configuration for one directory, and the server reads and runs only there', async (t) => {
  const { dir, work, x0x, config } = await placeOf(t)
  const made = x0x('--init', 'my app', '--whoami', 'reviewer')
  assert.equal(made.status, 0, made.stderr)
  assert.deepEqual(JSON.parse(made.stdout), {
    mcpServers: { x0x: { command: 'x0x', args: ['mcp', '--whoami', 'reviewer', '--config', config] } },
  })
  assert.equal((await stat(config)).mode & 0o777, 0o600)
  const checked = x0x('--check', '--json', '--config', config)
  assert.deepEqual([checked.status, JSON.parse(checked.stdout).ok], [0, true], checked.stdout)
  assert.doesNotMatch(x0x('--check', '--config', config).stdout, /^(?:warn|fail)/m, 'nothing that --init allows is warned of')
  const journal = config.replace('.toml', '.log')
  const { ask, run, client } = await startMcp(t, {}, { place: { dir, root: work, config, journal } })
  await writeFile(join(work, 'a'), 'inside')
  assert.equal(((await ask('read_file', { path: 'a' })).structuredContent as { content: string }).content, 'inside')
  assert.equal((await ask('write_file', { path: 'b', content: 'x' })).isError, false)
  assert.deepEqual(
    [(await run('exec_status', { command: 'true' })).success, (await run('exec_capture', { command: 'pwd' })).stdout],
    [true, `${work}\n`],
  )
  for (const path of [config, '../home', '/etc/passwd']) assert.equal((await ask('read_file', { path })).isError, true, path)
  assert.equal((await run('exec_capture', { command: 'pwd', cwd: dir })).denial_reason, 'forbidden_path')
  for (const command of ['sh', '/bin/sh', 'bash', 'cat', 'env', 'git'])
    assert.equal((await run('exec_status', { command, args: ['-c', 'true'] })).denial_reason, 'command_denied', command)
  assert.equal((await run('exec_status', { command: 'ls', args: ['-la', '/'] })).denial_reason, 'command_denied')
  assert.equal((await run('exec_status', { command: 'true', target: 'bob' })).denial_reason, 'unsupported_capability')
  await client.close()
  assert.match(await readFile(journal, 'utf8'), /"client_name":"a test"/)
})

test('--init passes the data directory and the name of a daemon other than the default one', async (t) => {
  const { dir, work, home } = await placeOf(t)
  const env = { PATH: process.env['PATH'], HOME: home, X0X_DATA_DIR: 'lab', X0X_NAME: 'lab' }
  const { stdout } = spawnSync(process.execPath, [X0X, 'mcp', '--init', work], { encoding: 'utf8', env, cwd: dir })
  assert.deepEqual(JSON.parse(stdout).mcpServers.x0x.env, { X0X_NAME: 'lab', X0X_DATA_DIR: join(dir, 'lab') })
})

test('--init overwrites no file, and writes no configuration that its AI agent could change', async (t) => {
  const { dir, home, work, x0x, config } = await placeOf(t)
  assert.equal(x0x('--init', work).status, 0)
  const before = await readFile(config, 'utf8')
  const again = x0x('--init', work)
  assert.deepEqual([again.status, again.stdout], [1, ''])
  assert.match(again.stderr, /exists already and stays unchanged; name another file with --config/)
  assert.equal(await readFile(config, 'utf8'), before)
  await symlink(work, join(dir, 'link'))
  await mkdir(join(home, '.x0x', 'below'), { recursive: true })
  const refusals: readonly (readonly [RegExp, ...string[]])[] = [
    [/where the AI agent may write/, home],
    [/where the AI agent may write/, '/'],
    [/where the AI agent may write/, work, '--config', join(work, 'mcp.toml')],
    [/where the AI agent may write/, work, '--config', join(dir, 'link', 'below', 'mcp.toml')],
    [/could read the keys of x0x/, join(home, '.x0x', 'below'), '--config', join(dir, 'mcp.toml')],
    [/could read the keys of x0x/, home, '--config', join(dir, 'mcp.toml')],
    [/is not a directory/, join(dir, 'none')],
    [/is not a directory/, config],
  ]
  for (const [pattern, directory, ...more] of refusals) {
    const { status, stdout, stderr } = x0x('--init', directory!, ...more)
    assert.deepEqual([status, stdout], [2, ''], directory)
    assert.match(stderr, pattern)
  }
})

test('a server does not start if its AI agent could change its configuration, journal or record, and --check says so', async (t) => {
  const { dir, work, x0x } = await placeOf(t)
  const config = join(dir, 'mcp.toml')
  assert.equal(x0x('--init', work, '--config', config).status, 0)
  const text = await readFile(config, 'utf8')
  const [inside, link] = [join(work, 'mcp.toml'), join(dir, 'link.toml')]
  await writeFile(inside, text, { mode: 0o600 })
  await symlink(inside, link)
  const journal = join(dir, 'journal.toml')
  await writeFile(journal, text.replace(join(dir, 'mcp.log'), join(work, 'mcp.log')), { mode: 0o600 })
  for (const file of [inside, link, journal])
    for (const flags of [['--check'], ['--whoami', 'a']]) {
      const { status, stdout, stderr } = x0x(...flags, '--config', file)
      assert.equal(status, 2, file)
      assert.match(stdout + stderr, /is below .*, where the AI agent may write/)
    }
  const recorded = x0x('--whoami', 'a', '--config', config, '--record', join(work, 'record.jsonl'))
  assert.deepEqual([recorded.status, /record.jsonl is below .*, where the AI agent may write/.test(recorded.stderr)], [2, true])
  // An agent without write permission cannot change the file.
  await writeFile(inside, text.replace('allow_write = true', 'allow_write = false'), { mode: 0o600 })
  assert.equal(x0x('--check', '--config', inside).status, 0)
})

test('with approvals, a server does not start if its AI agent could read the operator key, and --check says so', async (t) => {
  const { dir, work, x0x } = await placeOf(t)
  const config = join(dir, 'mcp.toml')
  assert.equal(x0x('--init', work, '--config', config).status, 0)
  await appendFile(config, `\n[tools.exec]\n[[security.allowed_roots]]\npath = ${JSON.stringify(dir)}\n`)
  const text = (await readFile(config, 'utf8')).replace('allow_write = true', 'allow_write = false')
  await writeFile(config, text, { mode: 0o600 })
  for (const flags of [['--check'], ['--whoami', 'a']]) {
    const { status, stdout, stderr } = x0x(...flags, '--config', config)
    assert.equal(status, 2, stdout + stderr)
    assert.match(stdout + stderr, /the root .* and the data directory .*operator\.key/)
  }
})
