import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { tempDir } from '../support/temp-dir.ts'

const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy')
const security = (unit: string) =>
  spawnSync('systemd-analyze', ['security', '--offline=yes', '--no-pager', join(DEPLOY, unit)], { encoding: 'utf8' })
const needsSystemd = { skip: security('x0xd.service').status === 0 ? false : 'needs systemd-analyze' }

/**
 * Exposure from `systemd-analyze security`, up to 10. The rest comes from the network, a runtime that compiles while it runs, and control
 * groups for runs.
 */
const MOST = { 'x0xd-network.service': 1.5, 'x0xd-executor.service': 2, 'x0xd.service': 2.1, 'rexd.service': 2.1 }

for (const [unit, most] of Object.entries(MOST)) {
  test(`the exposure of ${unit} is at most ${most} of 10`, needsSystemd, () => {
    const { stdout } = security(unit)
    const exposure = Number(/Overall exposure level for \S+: ([0-9.]+)/.exec(stdout)?.[1])
    assert.ok(exposure <= most, stdout)
  })
}

const settings = (unit: string): Map<string, string> =>
  new Map(
    readFileSync(join(DEPLOY, unit), 'utf8')
      .split('\n')
      .filter((line) => /^[A-Z]\w+=/.test(line))
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)] as const),
  )

test('the network unit can execute only the runtime, write no files, and has another user than the executor', () => {
  const [network, executor, socket] = ['x0xd-network.service', 'x0xd-executor.service', 'x0xd-executor.socket'].map(settings)
  assert.equal(network?.get('NoExecPaths'), '/')
  assert.equal(network?.get('ProtectSystem'), 'strict')
  assert.equal(network?.get('ReadWritePaths') ?? network?.get('StateDirectory'), undefined)
  assert.match(
    network?.get('ExecStart') ?? '',
    /^\/usr\/bin\/node --permission --allow-fs-read=\S+\/x0xd-network\.mjs \S+\/x0xd-network\.mjs --executor \S+$/,
  )
  assert.ok(network?.get('ExecPaths')?.startsWith('/usr/bin/node '))
  assert.equal(executor?.get('RestrictAddressFamilies'), 'AF_UNIX')
  assert.equal(executor?.get('Delegate'), 'memory pids')
  assert.notEqual(network?.get('User'), executor?.get('User'))
  assert.equal(socket?.get('SocketUser'), network?.get('User'))
  assert.equal(socket?.get('SocketMode'), '0600')
  const path = socket?.get('ListenStream') ?? ''
  for (const unit of [network, executor]) assert.ok(unit?.get('ExecStart')?.includes(` ${path}`))
})

for (const unit of ['x0xd.service', 'x0xd-executor.service', 'x0xd-network.service', 'rexd.service']) {
  test(`${unit} reports when it is ready if systemd supports that, and does not restart after a configuration error`, () => {
    const text = readFileSync(join(DEPLOY, unit), 'utf8')
    // The order matters, because a systemd that does not know the second type uses the first one.
    assert.match(text, /^Type=exec\nType=notify-reload$/m)
    const of = settings(unit)
    assert.equal(of.get('OpenFile'), '/run/systemd/notify:x0x-notify')
    assert.equal(of.get('NotifyAccess'), undefined, 'nobody but the main process is heard')
    assert.equal(of.get('WatchdogSec'), undefined, 'a systemd that hears nothing would end it')
    assert.ok(of.get('RestartPreventExitStatus')?.split(' ').includes('2'))
    assert.deepEqual([of.get('WatchdogSignal'), of.get('LimitCORE')], ['SIGKILL', '0'])
  })
}

test('the network unit has limits for tasks, memory and processor time', () => {
  const network = settings('x0xd-network.service')
  assert.deepEqual(
    ['TasksMax', 'MemoryMax', 'CPUQuota'].map((key) => network.get(key)),
    ['64', '1G', '200%'],
  )
})

test('a restart of the executor unit does not restart the network unit before the executor starts again', () => {
  const required = new Set(['x0xd-network.service'])
  // systemd restarts the units that require a restarted unit.
  for (const unit of required) for (const one of (settings(unit).get('Requires') ?? '').split(' ').filter(Boolean)) required.add(one)
  assert.ok(required.has('x0xd-api.socket'))
  assert.ok(!required.has('x0xd-executor.service'))
  assert.match(settings('x0xd-executor.service').get('ExecStartPost') ?? '', /systemctl restart --no-block x0xd-network\.service/)
  const [restart] = /^.*try-restart.*$/m.exec(readFileSync(join(DEPLOY, 'packages/debian/postinst'), 'utf8')) ?? []
  assert.match(restart ?? '', / x0xd\.service x0xd-executor\.service /)
  assert.doesNotMatch(restart ?? '', /network/)
})

const PLIST = 'import json, plistlib, sys; print(json.dumps(plistlib.load(open(sys.argv[1], "rb"))))'
const parsedPlist = spawnSync('python3', ['-c', PLIST, join(DEPLOY, 'x0xd.plist')], { encoding: 'utf8' })

test('the launchd file is a valid property list', { skip: parsedPlist.error === undefined ? false : 'needs python3' }, () => {
  assert.equal(parsedPlist.status, 0, parsedPlist.stderr)
  const { Label, ProgramArguments, KeepAlive, RunAtLoad } = JSON.parse(parsedPlist.stdout) as Record<string, unknown>
  assert.deepEqual([Label, RunAtLoad, KeepAlive], ['org.x0x.x0xd', true, { SuccessfulExit: false }])
  assert.match(String(ProgramArguments), /^\S+\/node,\S+\/x0x\/dist\/x0xd\.mjs$/)
})

/** Makes the link that `systemctl enable` would make for this unit. */
const enable = (dir: string, unit: string): void => {
  const target = /^WantedBy=(\S+)$/m.exec(readFileSync(join(dir, unit), 'utf8'))?.[1]
  assert.ok(target, `${unit} has no [Install]`)
  mkdirSync(join(dir, `${target}.wants`), { recursive: true })
  symlinkSync(`../${unit}`, join(dir, `${target}.wants`, unit))
}

/** Lines that systemd versions before 253 or 254 do not know and ignore. */
const NEWER = /DelegateSubgroup|notify-reload|OpenFile/

/** Output of systemd about a boot of this host with these units and another service's socket enabled. */
const bootProblems = async (t: TestContext, units: readonly string[], change: (text: string) => string = String): Promise<string> => {
  const dir = await tempDir(t)
  for (const file of readdirSync(DEPLOY).filter((name) => /\.(?:service|socket)$/.test(name)))
    copyFileSync(join(DEPLOY, file), join(dir, file))
  const socket = join(dir, 'x0xd-api.socket')
  writeFileSync(socket, change(readFileSync(socket, 'utf8')))
  writeFileSync(join(dir, 'beside.socket'), '[Socket]\nListenStream=/run/beside.sock\n[Install]\nWantedBy=sockets.target\n')
  writeFileSync(join(dir, 'beside.service'), '[Service]\nExecStart=/bin/true\n')
  for (const unit of [...units, 'beside.socket']) enable(dir, unit)
  // The trailing colon adds systemd's default directories.
  const env = { ...process.env, SYSTEMD_UNIT_PATH: `${dir}:` }
  const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', 'multi-user.target'], { encoding: 'utf8', env })
  assert.equal(status, 0, stderr)
  return (stdout + stderr)
    .split('\n')
    .filter((line) => line.includes('ordering cycle') || (/x0xd?|rexd|beside/.test(line) && !NEWER.test(line)))
    .join('\n')
}

const TWO_UNITS = ['x0xd-executor.socket', 'x0xd-api.socket', 'x0xd-network.service']
for (const units of [['x0xd.service'], TWO_UNITS, [...TWO_UNITS, 'x0xd-executor.service'], ['x0xd-network.service']]) {
  test(`a host with ${units.join(', ')} enabled boots without an ordering cycle`, needsSystemd, async (t) => {
    assert.equal(await bootProblems(t, units), '')
  })
}

test('a socket of the API in sockets.target would cause an ordering cycle', needsSystemd, async (t) => {
  const inSockets = (text: string): string => text.replace('DefaultDependencies=no\n', '')
  assert.match(await bootProblems(t, TWO_UNITS, inSockets), /ordering cycle/)
})
