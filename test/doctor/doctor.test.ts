import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, chown, copyFile, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { cleanEnvironment, isRunning, MeshOfDaemons, runDaemonCommand, until } from '../support/mesh-of-daemons.ts'
import { asOtherUser, NOBODY } from '../support/other-user.ts'

// The doctor's findings about running and dead daemons, as different users. Tests use real daemons.

const TIMEOUT = { timeout: 60_000 }
const IS_ROOT = process.geteuid?.() === 0
const namespaces = IS_ROOT && spawnSync('unshare', ['--pid', '--fork', '--mount-proc', 'true']).status === 0
const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const dist = (name: string): string => fileURLToPath(new URL(`../../dist/${name}`, import.meta.url))
const env = (): Record<string, string> => ({ ...cleanEnvironment(), X0X_MDNS: 'false' })
const quiet = ['--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']

const meshOf = async (t: TestContext): Promise<MeshOfDaemons> => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  return mesh
}

const doctor = async (dir: string, ...more: string[]): Promise<string> =>
  (await runDaemonCommand(['--doctor', '--data-dir', dir, ...more])).stdout

test('the doctor shows the loaded ACL, and whether its file has changed, disappeared or appeared since', TIMEOUT, async (t) => {
  // A daemon with a name has its ACL in its own directory, even if that does not exist yet.
  const choice = ['--name', 'lab']
  const daemon = (await meshOf(t)).add('alice', { flags: choice })
  await daemon.start()
  assert.match(await doctor(daemon.dir, ...choice), /ok {4}ACL +the running daemon found no ACL file/)
  await daemon.writeAcl([{ agent: daemon, commands: [['echo']] }])
  assert.match(await doctor(daemon.dir, ...choice), /warn {2}ACL +not in force: .* and it exists now\n +-> x0xd .*--replace &\n/)
  await daemon.restart()
  const loaded = /ok {4}ACL +the running daemon uses \S+, read \S+: exec enabled, 1 allow entry, 1 command\n/
  const before = await doctor(daemon.dir, ...choice)
  assert.match(before, loaded)
  assert.doesNotMatch(before, /since/)
  const text = await readFile(daemon.aclFile, 'utf8')
  await writeFile(daemon.aclFile, text.replace('enabled = true', 'enabled = false'))
  const off = await doctor(daemon.dir, ...choice)
  assert.match(off, loaded, 'it is on until the restart')
  assert.doesNotMatch(off, /disabled/)
  assert.match(off, /warn {2}ACL +not in force: x0xd read \S+ at \S+, and it has changed since\n +-> x0xd .*--replace &\n/)
  await rm(daemon.aclFile)
  const gone = await doctor(daemon.dir, ...choice)
  assert.match(gone, loaded)
  assert.match(gone, /warn {2}ACL +not in force: .* the file is gone; x0xd uses its copy/)
  await writeFile(daemon.aclFile, text, { mode: 0o600 })
  assert.doesNotMatch(await doctor(daemon.dir, ...choice), /since|gone/, 'the very text is back')
})

test('the doctor reports a changed groups.toml, unless only a comment has changed', TIMEOUT, async (t) => {
  const daemon = (await meshOf(t)).add('alice')
  const groups = join(daemon.dir, 'groups.toml')
  const changed = /warn {2}groups +not in force: \S+groups\.toml has changed since x0xd read it\n +-> x0xd .*--replace &\n/
  await daemon.start()
  assert.doesNotMatch(await doctor(daemon.dir), /^\w+ +groups /m)
  await writeFile(groups, '[groups]\nweb = ["web1"]\n', { mode: 0o600 })
  assert.match(await doctor(daemon.dir), changed)
  await daemon.restart()
  await writeFile(groups, '[groups]\n# the shop\nweb = ["web1"]\n')
  const same = await doctor(daemon.dir)
  assert.match(same, /ok {4}groups +1 group in/)
  assert.doesNotMatch(same, changed)
  await writeFile(groups, '[groups]\nweb = ["web1", "web2"]\n')
  assert.match(await doctor(daemon.dir), changed)
  await rm(groups)
  assert.match(await doctor(daemon.dir), changed)
})

test(
  "root examines another user's daemon as that user, and a third user only learns who can examine it",
  { ...TIMEOUT, skip: IS_ROOT ? false : 'needs root' },
  async (t) => {
    const place = await mkdtemp(join(tmpdir(), 'x0x-test-'))
    t.after(async () => rm(place, { recursive: true, force: true }))
    await chmod(place, 0o755)
    for (const name of ['x0xd.mjs', 'x0xd.cjs', 'x0xd-network.mjs']) await copyFile(dist(name), join(place, name))
    const dir = join(place, 'data')
    await mkdir(dir, { mode: 0o700 })
    await chown(dir, NOBODY.uid, NOBODY.gid)
    const argv = [join(place, 'x0xd.mjs'), '--data-dir', dir, ...quiet]
    const daemon = spawn('/proc/self/exe', argv, { ...NOBODY, stdio: ['ignore', 'pipe', 'inherit'], env: { X0X_MDNS: 'false' }, cwd: '/' })
    t.after(() => daemon.kill('SIGKILL'))
    const exited = once(daemon, 'exit')
    assert.match(String((await Promise.race([once(daemon.stdout, 'data'), exited]))[0]), / ready: /)
    const root = await runDaemonCommand(['--doctor', '--data-dir', dir])
    assert.equal(root.status, 0, root.stdout)
    assert.match(root.stdout, /ok {4}user +checked as (nobody|65534), the owner of /)
    assert.match(root.stdout, new RegExp(`ok {4}daemon +runs with pid ${daemon.pid}: agent`))
    assert.doesNotMatch(root.stdout, /chown|fail/)
    const third = asOtherUser([join(place, 'x0xd.mjs'), '--doctor', '--data-dir', dir], { uid: 4321, gid: 4321 })
    assert.equal(third.status, 0, third.stdout)
    assert.match(third.stdout, /warn {2}user .*\n +-> run this as (nobody|65534): sudo -u/)
    assert.match(third.stdout, /warn {2}daemon +does not answer this user/)
    assert.doesNotMatch(third.stdout, /chown|fail|does not run|is free/)
    const start = await runDaemonCommand(['--data-dir', dir, ...quiet])
    assert.equal(start.status, 2)
    assert.match(start.stderr, /belongs to uid 65534, not to this user; run this as uid 65534/)
    daemon.kill('SIGTERM')
    assert.deepEqual(await exited, [0, null])
  },
)

test(
  'a killed daemon that remains a zombie does not count as running, and the next one starts',
  { ...TIMEOUT, skip: process.platform !== 'linux' },
  async (t) => {
    const daemon = (await meshOf(t)).add('alice')
    await mkdir(daemon.dir, { mode: 0o700 })
    // The daemon becomes a child of a program that never waits for it.
    const line = [process.execPath, dist('x0xd.mjs'), '--data-dir', daemon.dir, ...quiet].map((word) => `'${word}'`).join(' ')
    const parent = spawn('sh', ['-c', `${line} & exec sleep 600`], { stdio: ['ignore', 'pipe', 'inherit'], env: env(), detached: true })
    t.after(() => isRunning(parent.pid!) && process.kill(-parent.pid!, 'SIGKILL'))
    await once(parent.stdout, 'data')
    const pid = Number((await readFile(join(daemon.dir, 'x0xd.pid'), 'utf8')).split(' ')[0])
    const network = await daemon.networkPid()
    process.kill(pid, 'SIGKILL')
    await until('it is a zombie', async () => /^State:\s+Z/m.test(await readFile(`/proc/${pid}/status`, 'utf8')))
    await until('its network half is gone', () => !isRunning(network))
    assert.match(await doctor(daemon.dir, ...quiet), /ok {4}daemon +does not run\n/)
    await daemon.start()
    assert.ok(daemon.pid !== pid)
    // End the parent, so that init reaps the daemon before the mesh looks for leftover processes.
    process.kill(-parent.pid!, 'SIGKILL')
  },
)

test(
  'a second daemon from another PID namespace is refused and harms neither the first nor its run',
  { ...TIMEOUT, skip: namespaces ? false : 'needs root and PID namespaces' },
  async (t) => {
    const mesh = await meshOf(t)
    const daemon = mesh.add('alice')
    const marker = join(mesh.root, 'go')
    const program = await mesh.program('wait', `echo begun; while [ ! -e ${marker} ]; do sleep 0.05; done; echo done`)
    await daemon.start()
    await daemon.writeAcl([{ agent: daemon, commands: [[program]] }])
    await daemon.restart()
    const running = daemon.startCli(['exec', daemon.agentId, '--', program])
    await running.printed('begun')
    const before = (await readdir(daemon.dir, { recursive: true })).toSorted()
    const argv = ['--pid', '--fork', '--mount-proc', process.execPath, dist('x0xd.mjs'), '--data-dir', daemon.dir, ...quiet]
    const second = spawnSync('unshare', [...argv, '--exec-acl', daemon.aclFile], { encoding: 'utf8', env: env(), timeout: 30_000 })
    assert.equal(second.status, 1, second.stderr)
    assert.match(second.stderr, /in use by a daemon of another container or host/)
    assert.deepEqual((await readdir(daemon.dir, { recursive: true })).toSorted(), before, 'all that was there is there')
    const look = spawnSync('unshare', [...argv, '--doctor'], { encoding: 'utf8', env: env(), timeout: 30_000 })
    assert.match(look.stdout, /ok {4}daemon +runs in another container or on another host: agent/, look.stderr)
    await writeFile(marker, '')
    const { status, stdout } = await running.finished
    assert.deepEqual([status, stdout.toString()], [0, 'begun\ndone\n'])
    assert.ok(!(await daemon.journal()).some(({ event }) => event === 'lost'), 'and nobody called it lost')
    assert.equal((await daemon.cli(['audit', 'verify'])).status, 0)
  },
)

test('share_with_group opens an existing installation, and the doctor names the files that are still closed', TIMEOUT, async (t) => {
  const mesh = await meshOf(t)
  const daemon = mesh.add('alice')
  await daemon.start()
  await daemon.stop()
  const config = join(daemon.dir, 'config.toml')
  await writeFile(config, 'share_with_group = true\n', { mode: 0o600 })
  const modes = async (): Promise<string[]> =>
    Promise.all(
      ['', 'api-token', 'operator.key', 'agent.key', 'machine.key'].map(async (name) =>
        ((await stat(join(daemon.dir, name))).mode & 0o777).toString(8),
      ),
    )
  assert.deepEqual(await modes(), ['700', '600', '600', '600', '600'])
  assert.match(
    await doctor(daemon.dir, ...quiet),
    /warn {2}group +share_with_group = true, but the group may not read \S+, \S+api-token, \S+operator\.key\n/,
  )
  await daemon.start()
  assert.deepEqual(await modes(), ['750', '640', '640', '600', '600'])
  assert.equal((await stat(join(daemon.dir, 'api.port'))).mode & 0o777, 0o640)
  assert.doesNotMatch(await doctor(daemon.dir, ...quiet), /share_with_group/)
  if (!IS_ROOT) return
  await chmod(mesh.root, 0o755)
  const readAs = (gid: number): number | null =>
    asOtherUser(['-e', `require('fs').readFileSync(${JSON.stringify(join(daemon.dir, 'api-token'))})`], { uid: NOBODY.uid, gid }).status
  assert.equal(readAs(0), 0, 'a member of the group has the token')
  assert.equal(readAs(NOBODY.gid), 1)
  assert.ok(existsSync(join(daemon.dir, 'api.sock')))
})

test(
  'the doctor warns if the daemon or its launcher is process 1, but not if an init is',
  { ...TIMEOUT, skip: namespaces ? false : 'needs root and PID namespaces' },
  async (t) => {
    const mesh = await meshOf(t)
    const told = /^warn {2}process 1 +x0xd is process 1 of its container\. .*\n +-> start it by an init: /m
    const launcher = join(ROOT, 'deploy/bin/x0xd.mjs')
    const cases: readonly (readonly [isTold: boolean, program: readonly string[]])[] = [
      [true, [process.execPath, dist('x0xd.mjs')]],
      // A launcher that cannot replace itself with the daemon.
      [
        true,
        [
          process.execPath,
          '-e',
          `require('child_process').spawn(process.argv[1], process.argv.slice(2), { stdio: 'inherit' })`,
          process.execPath,
          dist('x0xd.mjs'),
        ],
      ],
      // A shell as the init. It reaps processes and remains.
      [false, ['sh', '-c', '"$@" & wait', 'sh', process.execPath, dist('x0xd.mjs')]],
    ]
    for (const [at, [isTold, program]] of cases.entries()) {
      const daemon = mesh.add(`alice${at}`, { program: ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc', ...program] })
      await daemon.start()
      // unshare(1) ignores SIGTERM and SIGINT.
      try {
        const [inside = ''] = (await readFile(`/proc/${daemon.pid}/task/${daemon.pid}/children`, 'utf8')).split(' ')
        const argv = ['--target', inside, '--mount', '--pid', process.execPath, dist('x0xd.mjs'), '--doctor', '--data-dir', daemon.dir]
        const { stdout, stderr } = spawnSync('nsenter', argv, { encoding: 'utf8', env: env(), timeout: 60_000 })
        assert.match(stdout, /ok {4}daemon +runs with pid/, stderr)
        assert.equal(told.test(stdout), isTold, stdout)
      } finally {
        await daemon.stop('SIGKILL')
      }
    }
    // Before a start, the doctor judges its own process.
    const words = ['--doctor', '--data-dir', join(mesh.root, 'none'), ...quiet]
    const first = spawnSync('unshare', ['--pid', '--fork', '--mount-proc', process.execPath, launcher, ...words], {
      encoding: 'utf8',
      env: env(),
      timeout: 60_000,
    })
    assert.match(first.stdout, told, first.stderr)
    assert.doesNotMatch(await doctor(join(mesh.root, 'none'), ...quiet), told)
  },
)
