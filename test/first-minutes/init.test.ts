import assert from 'node:assert/strict'
import { readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { loadAcl } from '../../src/policy/mesh/load-acl.ts'
import { fakeDaemon, json, runCli } from '../support/fake-daemon.ts'
import { tempDir } from '../support/temp-dir.ts'
import { typedCli } from '../support/typed-cli.ts'

const QUESTIONS = [/Name of this agent[^\n]*: $/, /Only send requests[^\n]*y\/N $/, /Run as a system service[^\n]*y\/N $/]

test('init asks three questions on a terminal and creates missing files, and leaves existing files alone', async (t) => {
  const dir = join(await tempDir(t), 'data')
  const init = (...options: string[]) => typedCli(['--data-dir', dir, 'init', ...options])
  const answered = async (...answers: string[]): Promise<string> => {
    const cli = init()
    for (const [at, answer] of answers.entries()) {
      await cli.until(QUESTIONS[at]!)
      cli.type(`${answer}\n`)
    }
    assert.equal(await cli.status, 0, cli.text())
    return cli.text()
  }
  const config = async (): Promise<string> => readFile(join(dir, 'config.toml'), 'utf8')

  const given = init()
  await given.until(QUESTIONS[0]!)
  given.interrupt()
  assert.notEqual(await given.status, 0)
  assert.match(given.text(), /nothing was changed/)
  await assert.rejects(stat(dir), 'Ctrl-C at a question leaves nothing')

  assert.match(await answered('laptop', 'y', 'n'), /next: x0xd --data-dir \S+ &/)
  assert.match(await config(), /^display_name = "laptop"$[^]*^listen = \[\]$[^]*^mdns = false$/m)
  const { acl, status } = await loadAcl({ path: join(dir, 'exec-acl.toml'), explicit: true })
  assert.deepEqual([status, acl.allow], ['enabled', []])
  const [before, key] = [await config(), await readFile(join(dir, 'agent.key'), 'utf8')]
  const again = init('--as', 'other', '--reachable')
  assert.equal(await again.status, 0)
  assert.match(again.text(), /config\.toml exists and stays[^]*was there[^]*next: /)
  assert.deepEqual([await config(), await readFile(join(dir, 'agent.key'), 'utf8')], [before, key])

  await rm(join(dir, 'config.toml'))
  assert.match(await answered('', '', 'yes'), /next: sudo systemctl enable --now x0xd/)
  assert.match(await config(), /^# display_name[^]*^listen = \["\/ip4\/0\.0\.0\.0\/tcp\/5483"\]$/m)
  assert.equal(await readFile(join(dir, 'agent.key'), 'utf8'), key)
})

test('init with --name configures port 0, because a host can have several named daemons', async (t) => {
  const dir = join(await tempDir(t), 'data')
  const { status, stderr } = await runCli(['--name', 'lab', '--data-dir', dir, 'init'])
  assert.equal(status, 0, stderr)
  assert.match(await readFile(join(dir, 'config.toml'), 'utf8'), /^listen = \["\/ip4\/0\.0\.0\.0\/tcp\/0"\]$/m)
})

test('init with a running daemon suggests --replace, or an invitation if its files existed before', async (t) => {
  const { dir } = await fakeDaemon(t, (_, response) => json(response, 503, { ok: false }))
  const next = async (): Promise<string> => {
    const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'init'])
    assert.equal(status, 0, stderr)
    return /^next: .*/m.exec(stdout)?.[0] ?? stdout
  }
  assert.match(await next(), /^next: x0xd --data-dir \S+ --replace & .*the running daemon does not have the new files\)$/)
  assert.match(await next(), /^next: x0x --data-dir \S+ invite .*\(the daemon runs\)$/)
})

test('init ends even if the running daemon does not answer', async (t) => {
  const { dir } = await fakeDaemon(t, () => undefined)
  const { status, stdout } = await runCli(['--data-dir', dir, 'init'])
  assert.equal(status, 0)
  assert.match(stdout, /^next: x0xd .* --replace &/m)
})

test('init with -q is silent, unless --dry-run shows what it would create', async (t) => {
  const dir = join(await tempDir(t), 'data')
  const init = async (...options: string[]) => runCli(['--data-dir', dir, '-q', 'init', ...options])
  assert.match((await init('--dry-run')).stdout, /config\.toml[^]*next: /)
  assert.deepEqual(await init(), { status: 0, stdout: '', stderr: '' })
  assert.ok((await stat(join(dir, 'agent.key'))).isFile())
})
