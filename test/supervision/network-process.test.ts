import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, chown, copyFile, mkdir, readdir, readFile, readlink, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { NETWORK_RIGHTS } from '../../src/supervision/network-supervisor.ts'
import { checkUnreadable, networkUserOf } from '../../src/supervision/network-user.ts'
import { FILES_OF_STOPPED } from '../support/daemon-files.ts'
import { DIST, MeshOfDaemons, runDaemonCommand } from '../support/mesh-of-daemons.ts'
import { tempDir } from '../support/temp-dir.ts'

const IS_ROOT = process.geteuid?.() === 0
const asRoot = { skip: IS_ROOT ? false : 'needs root' }
const hasAcls = IS_ROOT && spawnSync('setfacl', ['--version']).status === 0
const quiet = ['--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']

test('code in the network process cannot start programs, read or write files, or load native code', async (t) => {
  const dir = await tempDir(t)
  const key = join(dir, 'agent.key')
  await writeFile(key, 'secret')
  const probe = `import child from 'node:child_process'
import fs from 'node:fs'
import { Worker } from 'node:worker_threads'
const tries = {
  spawn: () => child.spawnSync('/bin/true'),
  exec: () => child.execSync('true'),
  fork: () => child.fork(${JSON.stringify(key)}),
  read: () => fs.readFileSync(${JSON.stringify(key)}),
  passwd: () => fs.readFileSync('/etc/passwd'),
  list: () => fs.readdirSync(${JSON.stringify(dir)}),
  write: () => fs.writeFileSync(${JSON.stringify(join(dir, 'new'))}, 'x'),
  memory: () => fs.openSync('/proc/self/mem', 'r+'),
  unlink: () => fs.unlinkSync(${JSON.stringify(key)}),
  worker: () => new Worker('0', { eval: true }),
  addon: () => process.dlopen({ exports: {} }, ${JSON.stringify(key)}),
  inspector: async () => (await import('node:inspector')).open(0),
}
const outcome = {}
for (const [name, attempt] of Object.entries(tries)) {
  try { await attempt(); outcome[name] = 'allowed' } catch (error) { outcome[name] = error.code }
}
console.log(JSON.stringify(outcome))`
  const argv = [...NETWORK_RIGHTS, '--input-type=module', '-']
  const { stdout, stderr } = spawnSync(process.execPath, argv, { encoding: 'utf8', env: {}, cwd: '/', input: probe })
  assert.notEqual(stdout, '', stderr)
  const outcome = JSON.parse(stdout) as Record<string, string>
  assert.equal(Object.keys(outcome).length, 12)
  for (const [name, code] of Object.entries(outcome)) assert.match(code, /^ERR_(ACCESS_DENIED|DLOPEN_DISABLED)$/, name)
})

test('the network process has only its defined rights, an empty environment, and another user if possible', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const daemon = mesh.add('alice')
  await daemon.start()
  const pid = await daemon.networkPid()
  const argv = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0')
  assert.deepEqual(argv, ['x0xd-network', ...NETWORK_RIGHTS, '--input-type=module', '-', '--of', daemon.dir, ''])
  assert.equal(await readFile(`/proc/${pid}/environ`, 'utf8'), '')
  const targets = (await readdir(`/proc/${pid}/fd`)).map(async (fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => ''))
  const open = (await Promise.all(targets)).filter((target) => target.startsWith('/') && !target.startsWith('/dev/'))
  assert.deepEqual(open, [join(DIST, 'x0xd-network-start.mjs')], 'of its files only standard input stays open')
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  const ids = (name: string): string[] => new RegExp(`^${name}:[ \\t]*(.*)$`, 'm').exec(status)?.[1]?.split(/\s+/).filter(Boolean) ?? []
  if (!IS_ROOT) return
  assert.ok([...ids('Uid'), ...ids('Gid')].every((id) => id !== '0'))
  assert.ok(
    ids('Groups').every((group) => group === ids('Gid')[0]),
    'none of the groups of root',
  )
  for (const set of ['CapPrm', 'CapEff', 'CapInh', 'CapAmb']) assert.match(ids(set)[0] ?? '', /^0+$/, set)
  const doctor = await runDaemonCommand(['--doctor', '--data-dir', daemon.dir])
  assert.match(doctor.stdout, new RegExp(`ok {4}processes +executor pid ${daemon.pid} as root; network pid ${pid} as (?!root)`))
})

test('the API listens on the socket of the executor, with the mode and owner that the executor set', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const daemon = mesh.add('alice', { flags: ['--config', join(mesh.root, 'shared.toml')] })
  await writeFile(join(mesh.root, 'shared.toml'), 'share_with_group = true\n', { mode: 0o600 })
  await daemon.start()
  const socket = await stat(join(daemon.dir, 'api.sock'))
  assert.ok(socket.isSocket())
  assert.equal(socket.mode & 0o777, 0o660)
  assert.equal(socket.uid, process.geteuid?.())
})

test('network_user selects an existing user, and a missing user is refused with the command to create it', asRoot, async (t) => {
  const nobody = networkUserOf('nobody', '/d')
  assert.equal(nobody?.name, 'nobody')
  assert.equal(networkUserOf('root', '/d'), null)
  assert.throws(() => networkUserOf('no-such-user', '/d'), { code: 'bad_config', message: /useradd --system .* no-such-user/ })
  const dir = join(await tempDir(t), 'data')
  await mkdir(dir, { mode: 0o700 })
  await writeFile(join(dir, 'config.toml'), 'network_user = "no-such-user"\n', { mode: 0o600 })
  const refused = await runDaemonCommand(['--data-dir', dir, ...quiet])
  assert.equal(refused.status, 2)
  assert.match(refused.stderr, /no user no-such-user; create it with: useradd/)
})

test('without a user x0x, the network process gets an unused user ID that is the same at each start', asRoot, () => {
  const [first, again, other] = ['/var/lib/a', '/var/lib/a', '/var/lib/b'].map((dir) => networkUserOf(null, dir))
  assert.deepEqual(first, again)
  if (first?.name === 'x0x') return
  assert.notEqual(first?.uid, other?.uid)
  assert.ok(first !== null && first !== undefined && first.uid >= 60_578 && first.uid < 61_184)
})

test('only root can name another network user', asRoot, () => {
  const code = `import { networkUserOf } from ${JSON.stringify(join(import.meta.dirname, '../../src/supervision/network-user.ts'))}
    process.setuid(65534)
    console.log(networkUserOf(null, '/d'), networkUserOf('nobody', '/d'))
    try { networkUserOf('daemon', '/d') } catch (error) { console.log(error.code, error.message) }`
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', code], { encoding: 'utf8' })
  assert.match(stdout, /^null null\nbad_config .*only root can/, stderr)
})

test('a start, --check and --doctor report a runtime that the network user cannot execute, with the fix', asRoot, async (t) => {
  const dir = await tempDir(t)
  const runtime = join(dir, 'node')
  await copyFile(process.execPath, runtime)
  const run = (...words: string[]) =>
    spawnSync(runtime, [join(DIST, 'x0xd.mjs'), '--data-dir', join(dir, 'data'), ...quiet, ...words], { encoding: 'utf8' })
  const refusal = `may not execute ${runtime} (mode 700)`
  await chmod(runtime, 0o700)
  const refused = run()
  assert.equal(refused.status, 2)
  for (const said of [refused.stderr, run('--check').stdout, run('--doctor').stdout]) {
    assert.ok(said.includes(refusal), said)
    assert.ok(said.includes(`chmod go+rx ${runtime}`), said)
  }
  await chmod(runtime, 0o755)
  assert.doesNotMatch(run('--check').stdout, /network user/)
})

test('a network user that can read a key of the executor is refused', asRoot, async (t) => {
  const key = join(await tempDir(t), 'operator.key')
  await writeFile(key, 'x', { mode: 0o640 })
  await chown(key, 0, 65_534)
  const nobody = { name: 'nobody', uid: 65_534, gid: 65_534 }
  await assert.rejects(checkUnreadable([key], nobody), {
    code: 'loose_permissions',
    message: /nobody, the user of the network process, can read .*operator\.key/,
  })
  await chown(key, 0, 0)
  await checkUnreadable([key], nobody)
  await chmod(key, 0o604)
  await assert.rejects(checkUnreadable([key], nobody), { code: 'loose_permissions' })
})

test(
  'a network user that can read a key through a file access control list is refused',
  { skip: hasAcls ? false : 'needs root and setfacl' },
  async (t) => {
    const dir = await tempDir(t)
    await chmod(dir, 0o711)
    const key = join(dir, 'operator.key')
    await writeFile(key, 'x', { mode: 0o640 })
    const nobody = { name: 'nobody', uid: 65_534, gid: 65_534 }
    await checkUnreadable([key], nobody)
    const { status, stderr } = spawnSync('setfacl', ['-m', 'u:65534:r', key], { encoding: 'utf8' })
    if (status !== 0) return t.skip(`no access control lists here: ${stderr}`)
    await assert.rejects(checkUnreadable([key], nobody), {
      code: 'loose_permissions',
      message: /nobody, the user of the network process, can read .*operator\.key/,
    })
    // The entry has no effect for other users.
    await checkUnreadable([key], { name: null, uid: 60_999, gid: 60_999 })
  },
)

test('the doctor drops the groups of root when it becomes a user whose group is unknown', asRoot, async (t) => {
  const dir = await tempDir(t)
  await chown(dir, 60_998, 0)
  const code = `import { examinerOf } from ${JSON.stringify(join(import.meta.dirname, '../../src/doctor/examiner.ts'))}
    console.log((await examinerOf(process.argv[1])).kind, process.getuid(), process.getgid(), process.getgroups().join())`
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', code, dir], { encoding: 'utf8' })
  assert.equal(stdout, 'became 60998 65534 65534\n', stderr)
})

const hasSetpriv = IS_ROOT && spawnSync('setpriv', ['--version']).status === 0

test(
  'a root user that cannot change users gets the next step, and no runtime files are left',
  { skip: hasSetpriv ? false : 'needs root and setpriv' },
  async (t) => {
    const dir = join(await tempDir(t), 'data')
    const daemon = fileURLToPath(new URL('../../dist/x0xd.mjs', import.meta.url))
    const argv = ['--bounding-set=-setuid,-setgid', process.execPath, daemon, '--data-dir', dir, ...quiet]
    // If the group may read a key, the access is tested as that user first.
    for (const X0X_SHARE_WITH_GROUP of ['false', 'true']) {
      const env = { ...process.env, X0X_MDNS: 'false', X0X_SHARE_WITH_GROUP }
      const { status, stderr } = spawnSync('setpriv', argv, { encoding: 'utf8', timeout: 30_000, env })
      assert.equal(status, 2, stderr)
      assert.match(stderr, /^x0xd: cannot start the network process as .*EPERM.*network_user = "root"/)
    }
    assert.deepEqual((await readdir(dir)).toSorted(), [...FILES_OF_STOPPED])
  },
)
