import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { after, before, test, type TestContext } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'

import { FILES_OF_STOPPED } from '../../support/daemon-files.ts'
import { CLI, MeshOfDaemons, runDaemonCommand, TestDaemon, until } from '../../support/mesh-of-daemons.ts'

const meshOf = async (t: TestContext): Promise<MeshOfDaemons> => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  return mesh
}

/** A daemon without an ACL, which the first tests share. */
let alice: TestDaemon
let mesh: MeshOfDaemons

before(async () => {
  mesh = await MeshOfDaemons.create()
  alice = mesh.add('alice')
  await alice.start()
})

after(async () => mesh.stop())

test('the daemon keeps its identity across a restart and logs nothing', async () => {
  const { agentId, machineId } = alice
  assert.equal(await alice.log(), '')
  await alice.restart()
  assert.deepEqual([alice.agentId, alice.machineId], [agentId, machineId])
})

test('without an ACL file, the daemon starts and exec is disabled', async () => {
  const { enabled, acl_summary } = await alice.diagnostics()
  assert.equal(enabled, false)
  assert.equal(acl_summary['disabled_reason'], 'acl_missing')
  const own = await alice.exec(alice.agentId, ['echo', '1'])
  assert.equal(own.status, 255)
  assert.match(own.stderr, /exec_disabled/)
})

test('a second daemon on the same data directory is refused with the pid of the first', async () => {
  const second = await runDaemonCommand(['--data-dir', alice.dir, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0'])
  assert.equal(second.status, 1)
  assert.match(second.stderr, new RegExp(`in use by the daemon with pid ${alice.pid} .*\nx0xd: {3}Try: x0xd --data-dir \\S+ .*--replace &`))
  assert.equal((await alice.cli(['id'])).status, 0, 'the first goes on')
})

test('x0xd --doctor queries a running daemon', async () => {
  const { status, stdout } = await runDaemonCommand(['--doctor', '--data-dir', alice.dir])
  assert.equal(status, 0, stdout)
  assert.match(stdout, new RegExp(`ok {4}daemon .*runs with pid ${alice.pid}: agent ${alice.agentId.slice(0, 8)}`))
  assert.match(stdout, /warn {2}peers .*none is connected/)
  assert.ok(stdout.includes(`${join(alice.dir, 'requests.jsonl')}; the running daemon can write it`), stdout)
})

test('the files of a daemon are private, and only the identity and the request log remain after a stop', async () => {
  for (const name of ['agent.key', 'machine.key', 'operator.key', 'api-token', 'api.sock', 'api.port']) {
    assert.equal((await stat(join(alice.dir, name))).mode & 0o077, 0, name)
  }
  assert.match(await readFile(join(alice.dir, 'api.port'), 'utf8'), new RegExp(`^127\\.0\\.0\\.1:${alice.apiPort}\n$`))
  assert.equal(await alice.stop(), 0)
  assert.deepEqual((await readdir(alice.dir)).toSorted(), [...FILES_OF_STOPPED, 'x0xd.log'])
})

test('after a kill the daemon starts again despite a stale lock and socket', async () => {
  await alice.start()
  await alice.stop('SIGKILL')
  assert.ok((await readdir(alice.dir)).includes('api.sock'))
  const left = '.network.pid.0123456789ab.tmp'
  await writeFile(join(alice.dir, left), '1 ')
  await alice.start()
  assert.equal((await alice.cli(['id'])).status, 0)
  assert.ok(!(await readdir(alice.dir)).includes(left), 'what it was writing is gone')
})

test('a malformed ACL, groups file, contacts file or key stops the start with status 2 and its path', async (t) => {
  const daemon = (await meshOf(t)).add('alice')
  await mkdir(daemon.dir, { mode: 0o700 })
  for (const [name, text] of [
    ['exec-acl.toml', '[exec]\nenabeld = true\n'],
    ['groups.toml', '[groups]\nweb = ["@web"]\n'],
    ['contacts.json', '{"contacts": 7}'],
    ['agent.key', 'nonsense\n'],
  ] as const) {
    const path = join(daemon.dir, name)
    await writeFile(path, text, { mode: 0o600 })
    const flags = name === 'exec-acl.toml' ? ['--exec-acl', path] : []
    const result = await runDaemonCommand(['--data-dir', daemon.dir, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0', ...flags])
    assert.equal(result.status, 2, `${name}: ${result.stderr}`)
    assert.ok(result.stderr.includes(path), result.stderr)
    await rm(path)
  }
  assert.ok(!(await readdir(daemon.dir)).includes('x0xd.pid'), 'the lock is given back')
})

test('SIGHUP does not end the daemon, even during its start, and loads only an ACL that narrows the current one', async (t) => {
  const daemon = (await meshOf(t)).add('alice')
  await daemon.start()
  const write = async (...commands: string[][]): Promise<void> => daemon.writeAcl([{ agent: daemon, commands }])
  await write(['sleep', '1000'], ['echo', '1'], ['echo', '<INT>'])
  await daemon.stop()
  const starting = daemon.start()
  await until('it has its data directory', async () => readFile(join(daemon.dir, 'x0xd.pid')).catch(() => null))
  process.kill(daemon.pid, 'SIGHUP')
  await starting
  const reloads = async (count: number) =>
    until(`reload ${count}`, async () => {
      const lines = (await daemon.journal()).filter(({ event }) => event === 'reload')
      return lines.length >= count && lines.map(({ outcome }) => outcome)
    })
  assert.deepEqual(await reloads(1), ['unchanged'])
  const copy = async (): Promise<string> => readFile(join(daemon.dir, 'exec-acl.loaded.toml'), 'utf8')
  const diff = async () => daemon.cli(['acl', 'diff', daemon.aclFile])
  assert.equal((await diff()).status, 0)

  const long = daemon.startCli(['exec', daemon.agentId, '--', 'sleep', '1000'])
  await daemon.startedPid()
  await write(['echo', '7'], ['true'])
  const wider = await diff()
  assert.equal(wider.status, 4, wider.stderr)
  assert.match(wider.stdout.toString(), /^widens[^]*\n\+ .*"true"[^]*\n- .*"sleep", "1000"/)
  process.kill(daemon.pid, 'SIGHUP')
  assert.deepEqual((await reloads(2)).at(-1), 'refused')
  assert.match(await daemon.log(), /the ACL was not reloaded/)
  assert.match(await daemon.log(), /true.{1,6}: no single command of the old file has all of this/)
  assert.match(await daemon.log(), /a restart is needed/)
  assert.equal((await daemon.exec(daemon.agentId, ['true'])).status, 255)
  assert.equal((await daemon.exec(daemon.agentId, ['echo', '1'])).status, 0, 'the one in force stays')

  await writeFile(daemon.aclFile, '[exec')
  process.kill(daemon.pid, 'SIGHUP')
  assert.deepEqual((await reloads(3)).at(-1), 'invalid')
  await writeFile(daemon.aclFile, '')
  process.kill(daemon.pid, 'SIGHUP')
  assert.deepEqual((await reloads(4)).at(-1), 'invalid')
  await rm(daemon.aclFile)
  execFileSync('mkfifo', [daemon.aclFile])
  process.kill(daemon.pid, 'SIGHUP')
  assert.deepEqual((await reloads(5)).at(-1), 'invalid')
  await rm(daemon.aclFile)
  assert.equal((await daemon.exec(daemon.agentId, ['echo', '1'])).status, 0)

  await write(['echo', '7'])
  assert.equal((await diff()).status, 3)
  process.kill(daemon.pid, 'SIGHUP')
  assert.deepEqual((await reloads(6)).at(-1), 'taken')
  assert.match((await long.finished).stderr, /access_revoked/)
  assert.equal((await daemon.exec(daemon.agentId, ['echo', '1'])).status, 255)
  assert.equal((await daemon.exec(daemon.agentId, ['echo', '7'])).status, 0)
  assert.equal(await copy(), await readFile(daemon.aclFile, 'utf8'))
  assert.equal((await stat(join(daemon.dir, 'exec-acl.loaded.toml'))).mode & 0o777, 0o600)
  assert.equal(await daemon.stop(), 0)
})

test('two daemons of one user run with different --name, and each is addressed by its name', async (t) => {
  const mesh = await meshOf(t)
  const names = ['a', 'b'].map((letter) => `x0x-test-${process.pid}-${letter}`)
  const daemons = names.map((name) => new TestDaemon(name, join(userInfo().homedir, `.x0x-${name}`), { instance: name }))
  mesh.daemons.push(...daemons)
  t.after(async () => Promise.all(daemons.map(async ({ dir }) => rm(dir, { recursive: true, force: true }))))
  await Promise.all(daemons.map(async (daemon) => daemon.start()))
  const [first, second] = daemons as [TestDaemon, TestDaemon]
  assert.notEqual(first.agentId, second.agentId)
  for (const daemon of daemons) assert.equal((await daemon.json<{ agent_id: string }>('id')).agent_id, daemon.agentId)

  // The child knows only HOME, so the ACL rule names the daemon whose diagnostics it prints.
  const argv = [
    await mesh.program('x0x', `exec '${process.execPath}' '${CLI}' "$@"`),
    '--name',
    first.name,
    'diagnostics',
    'exec',
    '--json',
  ]
  await first.writeAcl([{ agent: second, commands: [argv] }])
  await first.restart()
  await second.meet(first, 'known')
  await first.meet(second, 'trusted')
  const result = await second.exec(first, argv)
  assert.equal(result.status, 0, result.stderr)
  assert.equal((JSON.parse(result.stdout.toString()) as { enabled: boolean }).enabled, true)
  await until('both stop', async () => (await Promise.all(daemons.map(async (daemon) => daemon.stop()))).every((status) => status === 0))
})

test('the daemon stops when its launcher is killed, and its channel to the launcher is closed on exec', async (t) => {
  const daemon = (await meshOf(t)).add('alice')
  const [runtime, bundle] = ['../../../deploy/runtime.mjs', '../../../dist/x0xd.mjs'].map((path) =>
    fileURLToPath(new URL(path, import.meta.url)),
  )
  const argv = [bundle, '--data-dir', daemon.dir, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  const code = `import { runInstead } from '${pathToFileURL(runtime!).href}'
    await runInstead(process.execPath, ${JSON.stringify(argv)}, process.env, { tied: true })`
  const launcher = spawn(process.execPath, ['--input-type=module', '-e', code], {
    env: { ...process.env, X0X_MDNS: 'false' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => launcher.kill('SIGKILL'))
  await once(launcher.stdout, 'data')
  const { pid } = launcher
  const held = Number((await readFile(join(daemon.dir, 'x0xd.pid'), 'utf8')).split(' ')[0])
  assert.notEqual(held, pid)
  const flags = /^flags:\s*([0-7]+)$/m.exec(await readFile(`/proc/${held}/fdinfo/3`, 'utf8'))?.[1]
  assert.notEqual(Number.parseInt(flags ?? '0', 8) & 0o2000000, 0, 'the channel is closed on exec')
  launcher.kill('SIGKILL')
  // The daemon holds the same pipe, which closes when both processes have ended.
  await once(launcher, 'close')
  assert.deepEqual((await readdir(daemon.dir)).toSorted(), [...FILES_OF_STOPPED])
})

test('a port in use gives one line with the address and the option to change', async (t) => {
  const server = createServer()
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.after(() => server.close())
  const { port } = server.address() as { port: number }
  const { dir } = (await meshOf(t)).add('alice')
  const free = '/ip4/127.0.0.1/tcp/0'
  const taken = `/ip4/127.0.0.1/tcp/${port}`
  const mesh = await runDaemonCommand(['--data-dir', dir, '--api-port', '0', '--listen', free, '--listen', taken])
  assert.equal(mesh.status, 1)
  assert.match(mesh.stderr, /^x0xd: cannot listen on \S+: the port is in use; .*--listen.*\n$/)
  assert.ok(mesh.stderr.includes(`listen on ${taken}: `))
  const api = await runDaemonCommand(['--data-dir', dir, '--api-port', String(port), '--listen', free])
  assert.equal(api.status, 1)
  assert.match(api.stderr, new RegExp(`^x0xd: the API cannot listen on 127\\.0\\.0\\.1:${port}: .*--api-port.*\\n$`))
})

test('a revocation is visible to the agent itself, to its doctor, and to its contacts', async (t) => {
  const mesh = await meshOf(t)
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await Promise.all([alice.start(), bob.start()])
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
  const before = await alice.ok('card')
  // No program listens on bob, but the two agents are linked now.
  await alice.cli(['direct', 'send', 'bob', 'hello'])
  await alice.ok('id', 'revoke', '--yes')
  assert.equal((await alice.json<{ revoked: boolean }>('id')).revoked, true)
  const card = await alice.cli(['card'])
  assert.equal(card.status, 1)
  assert.match(card.stderr, /revoked for ever.*new data directory/)
  const doctor = await runDaemonCommand(['--doctor', '--data-dir', alice.dir])
  assert.equal(doctor.status, 2)
  assert.match(doctor.stdout, /fail {2}revocations +this agent has been revoked/)
  await until('bob hears of it', async () => /alice +revoked \(was trusted\)/.test(await bob.ok('contacts', 'list')))
  for (const argv of [
    ['contacts', 'trust', 'alice', 'trusted'],
    ['contacts', 'import', before.trim()],
  ]) {
    const refused = await bob.cli(argv)
    assert.equal(refused.status, 1)
    assert.match(refused.stderr, /revoked its key for ever/)
  }
})
