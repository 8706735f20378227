import assert from 'node:assert/strict'
import { chmod, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { Home, runRexd, type ConfigOptions, type Finished } from './server.ts'

// Configurations with which rexd serves, and its errors about all others.

const OPEN = '{"jsonrpc":"2.0","id":1,"method":"session.open","params":{"client_name":"test"}}\n'

const homeWith = async (t: TestContext, options: ConfigOptions | string): Promise<Home> => {
  const home = await Home.create()
  t.after(async () => home.remove())
  if (typeof options === 'string') await writeFile(home.configFile, options, { mode: 0o600 })
  else await home.configure(options)
  return home
}

const serve = async (home: Home): Promise<Finished> => runRexd(home, undefined, OPEN)

/** Checks that rexd does not serve, and that each line of its error has its prefix. */
const refuses = async (home: Home, why: RegExp): Promise<void> => {
  const { status, stdout, stderr } = await serve(home)
  assert.deepEqual([status, stdout], [2, ''])
  assert.match(stderr, why)
  for (const line of stderr.trimEnd().split('\n')) assert.match(line, /^rexd: /)
}

test('rexd serves with a valid configuration, and --check shows what it grants', async (t) => {
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

test('rexd and --check report all problems of a configuration at once', async (t) => {
  const home = await homeWith(t, { limits: ['max_output_bytes = 0'], security: ['allow_pty = 1'], roots: ['/no/such/directory'] })
  const { stderr } = await serve(home)
  const check = await runRexd(home, ['--check', '--config', home.configFile])
  assert.equal(check.status, 2)
  for (const key of ['max_output_bytes', 'allow_pty', 'allowed_roots'])
    for (const text of [stderr, check.stdout]) assert.ok(text.includes(key), text)
})

test('a configuration or directory that other users can write is refused with the command to fix it', async (t) => {
  const home = await homeWith(t, {})
  for (const [path, mode] of [
    [home.configFile, 0o620],
    [home.configFile, 0o602],
    [home.dir, 0o770],
  ] as const) {
    await chmod(path, mode)
    await refuses(home, /writable by other users .*chmod go-w/)
    await chmod(path, mode & 0o700)
  }
  assert.equal((await serve(home)).status, 0)
})

test('with server.stdio = false rexd does not serve standard input', async (t) => {
  const { status, stdout, stderr } = await serve(await homeWith(t, { server: ['stdio = false'] }))
  assert.deepEqual([status, stdout], [2, ''])
  assert.match(stderr, /server\.stdio is false/)
})
