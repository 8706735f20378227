import assert from 'node:assert/strict'
import { once } from 'node:events'
import { chmod, readdir, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { MeshOfDaemons, processesNaming, runDaemonCommand, type TestDaemon } from '../../support/mesh-of-daemons.ts'

// The network process starts before the executor process. It must end if the start fails at any point.

const TIMEOUT = { timeout: 60_000 }

let mesh: MeshOfDaemons
let daemon: TestDaemon
const taken = createServer()
let port = 0

before(async () => {
  mesh = await MeshOfDaemons.create()
  daemon = mesh.add('alice')
  // Creates the keys, so that a failed start has nothing to create.
  await daemon.start()
  await daemon.stop()
  await once(taken.listen(0, '127.0.0.1'), 'listening')
  port = (taken.address() as { port: number }).port
})
after(async () => {
  taken.close()
  await mesh.stop()
})

/** Causes a failure and returns the function that undoes it. */
type Make = (dir: string) => Promise<() => Promise<void>>

const withFile =
  (name: string, text = 'x\n'): Make =>
  async (dir) => {
    await writeFile(join(dir, name), text, { mode: 0o600 })
    return async () => rm(join(dir, name))
  }

const loose =
  (name: string): Make =>
  async (dir) => {
    await chmod(join(dir, name), 0o644)
    return async () => chmod(join(dir, name), 0o600)
  }

const nothing: Make = async () => async () => undefined

const looseText = (file: string): string => `${file} has mode 0644, so other users can access it; fix it with: chmod 0600 ${file}`

const FAILURES: readonly [what: string, make: Make, flags: () => string[], status: number, said: (dir: string) => string][] = [
  [
    'a configuration with an unknown key',
    withFile('config.toml', 'foo = 1\n'),
    () => [],
    2,
    (dir) => `${dir}/config.toml:1: foo: unknown key`,
  ],
  ['a machine key that others can read', loose('machine.key'), () => [], 2, (dir) => looseText(`${dir}/machine.key`)],
  ['an agent key that others can read', loose('agent.key'), () => [], 2, (dir) => looseText(`${dir}/agent.key`)],
  ['an operator key that others can read', loose('operator.key'), () => [], 2, (dir) => looseText(`${dir}/operator.key`)],
  ['a missing ACL that --exec-acl names', nothing, () => ['--exec-acl', '/nowhere/acl'], 2, () => 'cannot read /nowhere/acl: no such file'],
  [
    'an ACL that cannot be read',
    withFile('acl', 'nonsense\n'),
    () => ['--exec-acl', join(daemon.dir, 'acl')],
    2,
    (dir) => `${dir}/acl:1:9: illegal character in key`,
  ],
  [
    'a regular file at the path of the socket',
    withFile('api.sock'),
    () => [],
    1,
    (dir) => `${dir}/api.sock exists and is not a socket; move it away`,
  ],
  [
    'a port of the API that is in use',
    nothing,
    () => ['--api-port', String(port)],
    1,
    () =>
      `the API cannot listen on 127.0.0.1:${port}: the port is in use by another program; choose another port with --api-port (0 = any free port) or stop that program`,
  ],
  [
    'a port of the mesh that is in use',
    nothing,
    () => ['--listen', `/ip4/127.0.0.1/tcp/${port}`],
    1,
    () =>
      `cannot listen on /ip4/127.0.0.1/tcp/${port}: the port is in use; choose another address with --listen, or listen in config.toml, or stop the program that uses it`,
  ],
]

for (const [what, make, flags, status, said] of FAILURES)
  test(`${what} fails the start with a status and message, and leaves no process and no file`, TIMEOUT, async (t) => {
    const { dir } = daemon
    const undo = await make(dir)
    t.after(undo)
    const before = await readdir(dir)
    const outcome = await runDaemonCommand(['--data-dir', dir, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0', ...flags()])
    const lines = outcome.stderr.split('\n').filter((line) => !line.startsWith('{'))
    assert.deepEqual([outcome.status, lines], [status, [`x0xd: ${said(dir)}`, '']])
    assert.deepEqual(await processesNaming(dir), [])
    assert.deepEqual(await readdir(dir), before)
  })

test('a directory in use fails the start, and the daemon that uses it keeps its network process', TIMEOUT, async () => {
  await daemon.start()
  const network = await daemon.networkPid()
  const { status, stderr } = await runDaemonCommand(['--data-dir', daemon.dir, '--api-port', '0'])
  assert.equal(status, 1)
  const [first] = stderr.split('\n')
  assert.equal(first, `x0xd: the data directory is in use by the daemon with pid ${daemon.pid} (${daemon.dir}/daemon.lock)`)
  assert.deepEqual((await processesNaming(daemon.dir)).sort(), [daemon.pid, network].sort())
  assert.equal(await daemon.networkPid(), network)
  assert.ok(await daemon.answers())
  await daemon.stop()
})
