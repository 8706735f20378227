import assert from 'node:assert/strict'
import { after, before, suite, test } from 'node:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { until } from '../../test/support/mesh-of-daemons.ts'
import { debOnSystemd, makeOwnDeb } from './deb-on-systemd.ts'
import { cannotBoot, DebianHost } from './debian-host.ts'

// The units of deploy/, installed and enabled on a Debian whose systemd is PID 1, and checked again after reboots.

const TWO_UNITS = ['x0xd-executor.service', 'x0xd-network.service', 'x0xd-api.socket', 'x0xd-executor.socket']
const CONFIG = '/etc/x0x/config.toml'
const ACL = '/etc/x0x/exec-acl.toml'
const PACKAGE = '/usr/lib/node_modules/x0x'

/** A command that the ACL allows and that tries to send systemd messages in the name of its unit. */
const SPOOF = ['env', 'NOTIFY_SOCKET=/run/systemd/notify', 'systemd-notify', '--stopping', '--status=spoofed']

const skip = cannotBoot()
const dir = skip === false ? mkdtempSync(join(tmpdir(), 'x0x-debian-')) : ''
let fresh: DebianHost
let deb: string
let host: DebianHost
/** Card of the agent of the two units, a contact for the agent of the single unit later. */
let formerCard = ''

const x0x = (user: string, ...argv: readonly string[]) =>
  host.run('runuser', ['-u', user, '--', 'x0x', '--data-dir', '/var/lib/x0x', ...argv])

const allActive = async (units: readonly string[]): Promise<void> => {
  await until(`${units.join(', ')} run`, () => units.every((unit) => host.state(unit) === 'active'), 30_000)
}

const answers = async (user: string): Promise<{ agent_id: string; machine_id: string }> =>
  JSON.parse(
    await until('the daemon answers', () => {
      const { status, stdout } = x0x(user, 'id', '--json')
      return status === 0 && stdout
    }).catch((error: Error) => {
      const { stderr } = x0x(user, 'id', '--json')
      throw new Error(`${error.message}: ${stderr}\n${host.journal('-u', 'x0xd*', '-n', '40')}`, { cause: error })
    }),
  ) as { agent_id: string; machine_id: string }

const aclFor = ({ agent_id, machine_id }: { agent_id: string; machine_id: string }): string =>
  `[exec]
enabled = true
audit_log_path = "/var/lib/x0x/exec.log"
[[exec.allow]]
description = "this host itself"
agent_id = "${agent_id}"
machine_id = "${machine_id}"
[[exec.allow.commands]]
argv = ["id", "--user", "--name"]
[[exec.allow.commands]]
argv = ${JSON.stringify(SPOOF)}
[[exec.allow.commands]]
argv = ["sleep", "<INT>"]
`

/** Asks only once. The unit is ready when `systemctl start` returns. */
const serves = (user: string, agentId: string): void => {
  const { status, stdout, stderr } = x0x(user, 'exec', agentId, '--', 'id', '--user', '--name')
  assert.deepEqual({ status, stdout }, { status: 0, stdout: `${user}\n` }, stderr)
}

/** Checks that the daemon loads the ACL, and which user runs its commands. */
const runs = async (user: string, restart: string): Promise<void> => {
  const self = await answers(user)
  host.write(ACL, aclFor(self))
  host.must('systemctl', 'restart', restart)
  await answers(user)
  serves(user, self.agent_id)
  assert.equal(x0x(user, 'exec', self.agent_id, '--', 'id').status, 255)
}

/** Checks that a unit with a wrong configuration is started at most `most` times. Then it stays failed until the file is fixed. */
const staysDown = async (unit: string, most: number): Promise<void> => {
  const good = host.read(CONFIG)
  host.write(CONFIG, `${good}\nno_such_key = 1\n`)
  host.run('systemctl', ['restart', unit])
  const starts = (): number => host.journal('-u', unit).split('no_such_key: unknown key').length - 1
  await until(`${unit} failed`, () => host.state(unit) === 'failed')
  await sleep(8_000)
  const told = starts()
  assert.ok(told >= 1 && told <= most, `${told} starts of at most ${most}:\n${host.journal('-u', unit, '-n', '30')}`)
  await sleep(8_000)
  assert.equal(starts(), told, 'nobody tries again and again')
  assert.equal(host.state(unit), 'failed')
  host.write(CONFIG, good)
  host.must('systemctl', 'restart', unit)
}

before(async () => {
  if (skip !== false) return
  ;[fresh, deb] = await Promise.all([DebianHost.make(join(dir, 'root')), makeOwnDeb(dir)])
})
after(() => rmSync(dir, { recursive: true, force: true }))

suite('the .deb on a real systemd', { skip, timeout: 300_000 }, () => debOnSystemd(() => ({ host: fresh.copy(join(dir, 'deb')), deb })))

suite('the units on a real systemd', { skip, timeout: 600_000 }, () => {
  before(() => {
    host = fresh
    host.installByNpm()
  })
  after(() => host?.cutPower())

  test('the commands in the comments install the two units next to another socket', async () => {
    assert.equal(await host.boot(), 'running')
    host.write(
      '/etc/systemd/system/beside.socket',
      '[Socket]\nListenStream=/run/beside.sock\nAccept=yes\n[Install]\nWantedBy=sockets.target\n',
    )
    host.write('/etc/systemd/system/beside@.service', '[Service]\nExecStart=/bin/true\n')
    host.install('x0xd-executor.service')
    host.must('systemctl', 'enable', 'beside.socket')
    assert.equal(x0x('x0x-exec', 'id').status, 0, 'what is started serves')
    await allActive(TWO_UNITS)
    await runs('x0x-exec', 'x0xd-executor.service')
    assert.equal(host.show('x0xd-network.service', 'StatusText'), 'api 127.0.0.1:12700, connections to other machines: 0')
  })

  test('after each reboot all units run, without an ordering cycle', async () => {
    for (let boot = 0; boot < 3; boot++) {
      await host.cutPower()
      assert.equal(await host.boot(), 'running')
      await allActive([...TWO_UNITS, 'beside.socket', 'sockets.target'])
      assert.doesNotMatch(host.journal('-t', 'systemd'), /ordering cycle/)
    }
    const { agent_id } = await answers('x0x-exec')
    assert.equal(x0x('x0x-exec', 'exec', agent_id, '--', 'id', '--user', '--name').status, 0)
  })

  test('systemd restarts a killed or hanging executor process or network process', async () => {
    const { agent_id } = await answers('x0x-exec')
    const soon = '[Service]\nWatchdogSec=3\nRestartSec=100ms\n'
    host.dropIn('x0xd-executor.service', soon)
    // This test restarts the unit more often than the start limit of systemd permits.
    host.dropIn('x0xd-network.service', `${soon}[Unit]\nStartLimitIntervalSec=0\n`)
    host.must('systemctl', 'restart', 'x0xd-executor.service')
    await allActive(TWO_UNITS)
    for (const signal of ['KILL', 'STOP'])
      for (const unit of ['x0xd-network.service', 'x0xd-executor.service']) {
        const pid = host.show(unit, 'MainPID')
        host.must('systemctl', 'kill', `--signal=${signal}`, '--kill-who=main', unit)
        await until(`${unit} is another process after ${signal}`, () => {
          const now = host.show(unit, 'MainPID')
          return now !== pid && now !== '0'
        })
        await allActive(TWO_UNITS)
        await answers('x0x-exec')
        serves('x0x-exec', agent_id)
      }
    for (const unit of ['x0xd-network.service', 'x0xd-executor.service'])
      assert.match(host.journal('-u', unit), /Watchdog timeout \(limit 3s\)/)
    await until('the executor says so', () =>
      /^agent [0-9a-f]{64}, executor \/run\/x0x\/executor\.sock, exec enabled, network process up$/.test(
        host.show('x0xd-executor.service', 'StatusText'),
      ),
    )
  })

  test('a command of an ACL cannot send systemd messages for its unit', async () => {
    const { agent_id } = await answers('x0x-exec')
    const { status, stderr } = x0x('x0x-exec', 'exec', agent_id, '--', ...SPOOF)
    assert.equal(status, 0, `systemd has its message: ${stderr}`)
    assert.doesNotMatch(host.show('x0xd-executor.service', 'StatusText'), /spoofed/)
    assert.equal(host.state('x0xd-executor.service'), 'active')
  })

  test('a reload applies a narrower ACL, and reports that a wider one needs a restart', async () => {
    const unit = 'x0xd-executor.service'
    const { agent_id } = await answers('x0x-exec')
    const wide = host.read(ACL)
    const reload = async (acl: string, says: string): Promise<void> => {
      host.write(ACL, acl)
      host.must('systemctl', 'reload', unit)
      await until(`the unit says ${says}`, () => host.show(unit, 'StatusText').endsWith(says))
    }
    await reload(wide.slice(0, wide.lastIndexOf('[[exec.allow.commands]]')), '; the new ACL is in force')
    assert.equal(x0x('x0x-exec', 'exec', agent_id, '--', 'sleep', '1').status, 255)
    await reload(wide, '; the ACL file allows more than the loaded one and was not loaded: restart x0xd')
    assert.equal(x0x('x0x-exec', 'exec', agent_id, '--', 'sleep', '1').status, 255)
    const told = host.journal('-u', unit, '--output=cat').match(/"msg":"the ACL was (reloaded|not reloaded)"/g)
    assert.equal(told?.length, 2, 'one for each reload')
    host.must('systemctl', 'restart', unit)
    await answers('x0x-exec')
    const { status, stderr } = x0x('x0x-exec', 'exec', agent_id, '--', 'sleep', '1')
    assert.equal(status, 0, stderr)
  })

  test('a run survives a restart of the executor, which then gets a new network process', async () => {
    const { agent_id } = await answers('x0x-exec')
    const pids = (): string[] => TWO_UNITS.slice(0, 2).map((unit) => host.show(unit, 'MainPID'))
    const before = pids()
    const argv = ['exec', agent_id, '--', 'sleep', '12']
    const asked = host.start('runuser', ['-u', 'x0x-exec', '--', 'x0x', '--data-dir', '/var/lib/x0x', ...argv])
    await until('it sleeps', () => /^sleep$/m.test(host.run('sh', ['-c', 'cat /proc/[0-9]*/comm']).stdout))
    host.must('systemctl', 'restart', 'x0xd-executor.service')
    assert.equal(await asked, 0, host.journal('-u', 'x0xd*', '-n', '40'))
    await until('both are others', () => pids().every((pid, i) => pid !== before[i] && pid !== '0'))
    await allActive(TWO_UNITS)
    await answers('x0x-exec')
    serves('x0x-exec', agent_id)
  })

  test('systemd tries a wrong configuration only a few times, and a restart works after the fix', async () => {
    // Each connection of the network process and each client that waits on the socket starts the executor again, up to the start limit of
    // systemd.
    await staysDown('x0xd-executor.service', 6)
    await allActive(TWO_UNITS)
    await answers('x0x-exec')
  })

  test('a stop ends the executor and the network process', async () => {
    formerCard = host.must('runuser', '-u', 'x0x-exec', '--', 'x0x', '--data-dir', '/var/lib/x0x', 'card').trim()
    host.must('systemctl', 'stop', 'x0xd-executor.socket', 'x0xd-executor.service')
    for (const unit of TWO_UNITS) assert.equal(host.state(unit), 'inactive', unit)
    const users = host.must('sh', '-c', 'stat -c %U /proc/[0-9]* 2>/dev/null | sort -u')
    assert.doesNotMatch(users, /x0x/)
  })

  test('the single unit replaces the two units and also starts after a reboot', async () => {
    host.must('systemctl', 'disable', ...TWO_UNITS)
    host.must('rm', '-rf', '/var/lib/x0x', '/var/log/x0x')
    host.install('x0xd.service')
    await allActive(['x0xd.service'])
    await runs('x0x', 'x0xd.service')
    await host.cutPower()
    assert.equal(await host.boot(), 'running')
    await allActive(['x0xd.service', 'beside.socket'])
    assert.doesNotMatch(host.journal('-t', 'systemd'), /ordering cycle/)
    await answers('x0x')
  })

  test('an upgrade under a running daemon keeps its identity, contacts and audit log', async () => {
    const before = await answers('x0x')
    host.must('runuser', '-u', 'x0x', '--', 'x0x', '--data-dir', '/var/lib/x0x', 'contacts', 'import', formerCard, '--as', 'former')
    const contacts = (): string => x0x('x0x', 'contacts', 'list', '--json').stdout
    const list = contacts()
    assert.match(list, /former/)
    host.must('sh', '-c', `cp -a ${PACKAGE} ${PACKAGE}.new && mv ${PACKAGE} ${PACKAGE}.old && mv ${PACKAGE}.new ${PACKAGE}`)
    serves('x0x', before.agent_id)
    host.must('systemctl', 'restart', 'x0xd')
    serves('x0x', before.agent_id)
    assert.deepEqual(await answers('x0x'), before)
    assert.equal(contacts(), list)
    const { status, stdout, stderr } = x0x('x0x', 'audit', 'verify', '/var/lib/x0x/exec.log')
    assert.equal(status, 0, stdout + stderr)
  })

  test('the single unit starts only after a wrong configuration or ACL is fixed', async () => {
    for (const [file, wrong] of [
      [CONFIG, 'no_such_key = 1'],
      [ACL, '[exec'],
    ] as const) {
      const good = host.read(file)
      host.write(file, `${good}\n${wrong}\n`)
      assert.notEqual(host.run('systemctl', ['restart', 'x0xd']).status, 0)
      assert.deepEqual(
        ['ActiveState', 'ExecMainStatus', 'NRestarts'].map((property) => host.show('x0xd', property)),
        ['failed', '2', '0'],
      )
      host.write(file, good)
      // The test starts the unit more often than an operator would. It resets the start limit.
      host.must('systemctl', 'reset-failed', 'x0xd')
      host.must('systemctl', 'start', 'x0xd')
      assert.equal(x0x('x0x', 'id').status, 0)
    }
  })

  test('the unit of rexd is ready when rexd listens on a private socket', async () => {
    host.must('mkdir', '-p', '/srv/myapp')
    host.install('rexd.service')
    const http = 'http_listen = "unix:/run/rexd/rexd.sock"\ntoken_file = "/var/lib/rexd/token"\n'
    host.write('/etc/rexd/config.toml', host.read('/etc/rexd/config.toml').replace('[server]\n', `[server]\n${http}`))
    host.must('systemctl', 'start', 'rexd')
    assert.equal(host.show('rexd', 'StatusText'), 'unix:/run/rexd/rexd.sock')
    assert.equal(host.must('stat', '-c', '%U %a', '/run/rexd/rexd.sock'), 'rexd 600\n')
    host.must('systemctl', 'reload', 'rexd')
    host.must('systemctl', 'stop', 'rexd')
    assert.equal(host.show('rexd', 'Result'), 'success')
  })
})
