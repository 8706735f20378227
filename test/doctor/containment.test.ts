import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { groupsBelow } from '../../src/process/cgroup-tree.ts'
import { findCgroupPlaces } from '../../src/process/cgroup-tree.ts'
import { parentNamesOf } from '../../src/process/cgroups.ts'
import { descendantsOf } from '../../src/process/descendant-tracker.ts'
import { hasBwrap, isRoot, needs } from '../support/containment.ts'
import { MeshOfDaemons, runDaemonCommand, startCli, until, type CliResult, type TestDaemon } from '../support/mesh-of-daemons.ts'
import { isAlive } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

const ID = 'ab'.repeat(32)
/** An orphaned grandchild in a new process session that ignores SIGTERM and prints its PID. The program itself then sleeps. */
const ESCAPE = `( setsid sh -c "trap '' TERM; echo \\$\\$; exec >/dev/null 2>&1; while :; do sleep 0.1; done" & ) & wait; exec sleep 1000`

const meshOf = async (t: TestContext, config = ''): Promise<{ alice: TestDaemon; bob: TestDaemon; escape: string }> => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await alice.start()
  const escape = await mesh.program('escape', ESCAPE)
  await bob.writeAcl([
    { agent: alice, commands: [[escape], ['true']], keys: isRoot && needs.pids.skip === undefined ? 'max_processes = 50' : '' },
  ])
  await writeFile(join(bob.dir, 'config.toml'), config, { mode: 0o600 })
  await bob.start()
  await Promise.all([alice.meet(bob, 'known'), bob.meet(alice, 'trusted')])
  return { alice, bob, escape }
}

const recordOf = async ({ dir }: TestDaemon): Promise<{ in_force: string; parents: string[] }> =>
  JSON.parse(await readFile(join(dir, 'containment.json'), 'utf8')) as { in_force: string; parents: string[] }

/** Starts the escaping program on bob. Returns the PID of the escaped process and its control group. */
const escaping = async ({ alice, escape }: Awaited<ReturnType<typeof meshOf>>) => {
  const running = alice.startCli(['exec', 'bob', '--', escape])
  let text = ''
  running.child.stdout?.on('data', (chunk: Buffer) => (text += chunk.toString()))
  const pid = await until('it escapes', () => /^(\d+)\n/.exec(text)?.[1] ?? null)
  return { running, pid: Number(pid), group: readFileSync(`/proc/${pid}/cgroup`, 'utf8') }
}

test('processes that a run left end with a killed daemon, and their control groups disappear', needs.cgroup, async (t) => {
  const mesh = await meshOf(t)
  const { bob } = mesh
  const { running, pid, group } = await escaping(mesh)
  assert.match(group, /^0::.*\/x0x-[0-9a-f]{16}-[0-9a-f]{16}\/run-\d+$/m)
  const { in_force, parents } = await recordOf(bob)
  assert.equal(in_force, 'cgroup')
  await bob.stop('SIGKILL')
  await until('the cleanup process has ended it', () => !isAlive(pid))
  await until('… and taken the groups away', () => !parents.some(existsSync))
  await running.finished
  await bob.start()
  const next = (await recordOf(bob)).parents
  assert.ok(next.some(existsSync))
  await bob.stop()
  assert.deepEqual([next.filter(existsSync), existsSync(join(bob.dir, 'containment.json'))], [[], false])
})

test('a program in a control group gets one SIGTERM and time to end when its daemon is killed', needs.cgroup, async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const bob = mesh.add('bob')
  await bob.start()
  const log = join(mesh.root, 'asked')
  const program = await mesh.program('child', `exec 2>/dev/null\ntrap 'echo asked >> ${log}' TERM\necho $$\nwhile :; do sleep 0.05; done`)
  await bob.writeAcl([{ agent: bob, commands: [[program]] }])
  await bob.restart()
  const running = bob.startCli(['exec', bob.agentId, '--', program])
  await running.printed('\n')
  const [run] = await bob.journal()
  const pid = await bob.startedPid()
  assert.ok(run !== undefined && isAlive(pid))
  await bob.stop('SIGKILL')
  await until('the cleanup process has ended it', () => !isAlive(pid))
  assert.equal(await readFile(log, 'utf8'), 'asked\n')
  assert.equal((await running.finished).status, 255)
})

test('the next start ends the processes in a control group that a crash left, even without a cleanup process', needs.cgroup, async (t) => {
  const mesh = await meshOf(t)
  const { bob } = mesh
  const { running, pid } = await escaping(mesh)
  const { parents } = await recordOf(bob)
  const children = readFileSync(`/proc/${bob.pid}/task/${bob.pid}/children`, 'latin1').split(' ').filter(Boolean).map(Number)
  const cleanup = children.find((child) => readFileSync(`/proc/${child}/cmdline`, 'latin1').endsWith('x0x-cleanup\0'))
  assert.ok(cleanup)
  // A running daemon would start another cleanup process.
  process.kill(bob.pid, 'SIGSTOP')
  process.kill(cleanup, 'SIGKILL')
  await bob.stop('SIGKILL')
  assert.ok(isAlive(pid))
  await running.finished
  await bob.start()
  assert.equal(isAlive(pid), false)
  await bob.stop()
  assert.deepEqual(parents.filter(existsSync), [])
})

test('with PID namespaces no process survives a killed daemon', needs.bwrap, async (t) => {
  const { alice, bob, escape } = await meshOf(t, 'containment = "pid_namespace"\n')
  const running = alice.startCli(['exec', 'bob', '--', escape])
  // The printed PID counts only inside the namespace, so find the processes by their parents.
  await running.printed('\n')
  const daemon = bob.pid
  const inside = descendantsOf(daemon).map(({ pid }) => pid)
  assert.ok(inside.length >= 4, String(inside))
  await bob.stop('SIGKILL')
  await until('all are gone', () => !inside.some(isAlive))
  await running.finished
})

test('the audit log and the doctor name the containment, and a cancelled run leaves no process', needs.cgroup, async (t) => {
  const mesh = await meshOf(t)
  const { running, pid } = await escaping(mesh)
  const { stdout } = await runDaemonCommand(['--doctor', '--data-dir', mesh.bob.dir])
  assert.match(stdout, /ok {4}containment +the running daemon contains runs by cgroup\n/)
  running.child.kill('SIGINT')
  const result: CliResult = await running.finished
  assert.equal(isAlive(pid), false)
  assert.doesNotMatch(result.stderr, /may still be running/)
  const lines = await mesh.bob.journal()
  assert.equal(lines.find(({ event }) => event === 'started')?.['containment'], 'cgroup')
  assert.deepEqual(
    lines.filter(({ event }) => event === 'warning').map((line) => line['kind']),
    ['cancelled'],
  )
  await mesh.bob.stop()
})

for (const end of ['a cancelled run', 'a daemon that is killed'] as const)
  test(`with process groups as containment, ${end} leaves no process that kept its environment`, async (t) => {
    const mesh = await meshOf(t, 'containment = "group"\n')
    const { running, pid } = await escaping(mesh)
    t.after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'))
    if (end === 'a cancelled run') {
      running.child.kill('SIGINT')
      const { stderr } = await running.finished
      assert.equal(isAlive(pid), false)
      assert.doesNotMatch(stderr, /may still be running/)
    } else {
      await mesh.bob.stop('SIGKILL')
      await until('the cleanup process has ended it', () => !isAlive(pid))
      await running.finished
    }
    assert.equal((await mesh.bob.journal()).find(({ event }) => event === 'started')?.['containment'], 'group')
  })

const check = async (t: TestContext, mode: '--check' | '--doctor', entry: string, config = '') => {
  const dir = await tempDir(t)
  await mkdir(join(dir, 'data'), { mode: 0o700 })
  await writeFile(join(dir, 'data', 'config.toml'), config, { mode: 0o600 })
  const file = join(dir, 'acl.toml')
  await writeFile(
    file,
    `[exec]\naudit_log_path = "${dir}/exec.log"\n\n[[exec.allow]]\ndescription = "somebody"\nagent_id = "${ID}"\nmachine_id = "${ID}"\n${entry}\n\n[[exec.allow.commands]]\nargv = ["true"]\n`,
  )
  const flags = ['--data-dir', join(dir, 'data'), '--exec-acl', file, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  return { ...(await runDaemonCommand([mode, ...flags])), flags, file }
}

test('--check and --doctor show the containment that would be used, and why no stronger one is', async (t) => {
  for (const mode of ['--check', '--doctor'] as const) {
    const weak = await check(t, mode, '', 'containment = "group"\n')
    assert.match(
      weak.stdout,
      /warn {2}containment +runs would be contained by process groups only.*; not cgroup: containment = "group" is configured/,
    )
    if (needs.cgroup.skip !== undefined) continue
    const strong = await check(t, mode, '')
    assert.match(strong.stdout, /ok {4}containment +runs would be contained by cgroup\n/)
  }
})

test('an ACL entry that cannot be enforced prevents the start, and the error names the entry and key', async (t) => {
  const cases: [string, RegExp][] = [
    ['run_as = "x0x-no-such-user"', /:8: exec\.allow\[0\]\.run_as: cannot be enforced on this host for "somebody": /],
    ...(isRoot ? [['run_as = "root"', /\.run_as: .*is root \(uid 0\)/] satisfies [string, RegExp]] : []),
    ['contain = "required"', /:8: exec\.allow\[0\]\.contain: cannot be enforced .*cgroup: containment = "group" is configured/],
    ...(hasBwrap
      ? []
      : [['no_network = true', /\.no_network: .*bwrap is not installed \(package bubblewrap\)/] satisfies [string, RegExp]]),
  ]
  for (const [entry, says] of cases) {
    const { status, stdout, flags, file } = await check(t, '--check', entry, 'containment = "group"\n')
    assert.equal(status, 2)
    assert.match(stdout, says)
    const start = await runDaemonCommand(flags)
    assert.equal(start.status, 2)
    assert.match(start.stderr, says)
    const acl = await startCli(['acl', 'check', file]).finished
    if (!entry.startsWith('contain')) assert.match(acl.stdout.toString(), says)
  }
})

test('an unknown containment is refused', async (t) => {
  const { status, stdout } = await check(t, '--check', '', 'containment = "docker"\n')
  assert.equal(status, 2)
  assert.match(stdout, /config\.toml:1: containment: must be one of auto, cgroup, pid_namespace, group/)
})

test('a refused start leaves no control groups', needs.cgroup, async (t) => {
  const [mine] = findCgroupPlaces().filter(({ version }) => version === 2)
  const dir = await tempDir(t)
  const data = join(dir, 'data')
  await mkdir(data, { mode: 0o700 })
  const { prefix } = await parentNamesOf(data)
  const acl = join(dir, 'acl.toml')
  const flags = ['--data-dir', data, '--exec-acl', acl, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  const good = `[exec]\naudit_log_path = "${dir}/exec.log"\n`
  for (const [file, text] of [
    [acl, '[exec]\nenabeld = true\n'],
    [
      acl,
      `${good}\n[[exec.allow]]\nagent_id = "${ID}"\nmachine_id = "${ID}"\nrun_as = "x0x-no-such-user"\ncommands = [{ argv = ["true"] }]\n`,
    ],
    [join(data, 'contacts.json'), '{"contacts": 7}'],
    [join(data, 'api-token'), 'no token'],
  ] as const) {
    await writeFile(acl, good, { mode: 0o600 })
    await writeFile(file, text, { mode: 0o600 })
    const { status, stderr } = await runDaemonCommand(flags)
    assert.notEqual(status, 0)
    assert.ok(stderr.includes(file), stderr)
    await rm(file)
    assert.deepEqual(
      groupsBelow(mine!.own).filter((path) => path.includes(prefix)),
      [],
      file,
    )
    assert.equal(existsSync(join(data, 'containment.json')), false, file)
  }
})
