import assert from 'node:assert/strict'
import { after, before, suite, test } from 'node:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { until } from '../../test/support/mesh-of-daemons.ts'
import { cannotBoot, DebianHost } from './debian-host.ts'

// The units of deploy/, installed and enabled on a Debian whose systemd is PID 1, and the host booted again.

const TWO_UNITS = ['x0xd-executor.service', 'x0xd-network.service', 'x0xd-api.socket', 'x0xd-executor.socket']
const CONFIG = '/etc/x0x/config.toml'

const skip = cannotBoot()
const dir = skip === false ? mkdtempSync(join(tmpdir(), 'x0x-debian-')) : ''
let host: DebianHost

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
argv = ["sleep", "<INT>"]
`

/** That the ACL is taken up, and who a command is. */
const runs = async (user: string, restart: string): Promise<void> => {
  const self = await answers(user)
  host.write('/etc/x0x/exec-acl.toml', aclFor(self))
  host.must('systemctl', 'restart', restart)
  await answers(user)
  const { status, stdout, stderr } = x0x(user, 'exec', self.agent_id, '--', 'id', '--user', '--name')
  assert.deepEqual({ status, stdout }, { status: 0, stdout: `${user}\n` }, stderr)
  assert.equal(x0x(user, 'exec', self.agent_id, '--', 'id').status, 255)
}

/** A configuration that is wrong: so many starts, and then no more, while nobody mends it. */
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

suite('the units on a real systemd', { skip, timeout: 600_000 }, () => {
  before(() => {
    host = DebianHost.make(join(dir, 'root'))
  })
  after(async () => {
    await host?.cutPower()
    rmSync(dir, { recursive: true, force: true })
  })

  test('the two units are installed by the words that head them, beside the socket of another service', async () => {
    assert.equal(await host.boot(), 'running')
    host.write(
      '/etc/systemd/system/beside.socket',
      '[Socket]\nListenStream=/run/beside.sock\nAccept=yes\n[Install]\nWantedBy=sockets.target\n',
    )
    host.write('/etc/systemd/system/beside@.service', '[Service]\nExecStart=/bin/true\n')
    host.install('x0xd-executor.service')
    host.must('systemctl', 'enable', 'beside.socket')
    await allActive(TWO_UNITS)
    await runs('x0x-exec', 'x0xd-executor.service')
  })

  test('after the next boot everything runs, and no unit of the host was left out', async () => {
    for (let boot = 0; boot < 3; boot++) {
      await host.cutPower()
      assert.equal(await host.boot(), 'running')
      await allActive([...TWO_UNITS, 'beside.socket', 'sockets.target'])
      assert.doesNotMatch(host.journal('-t', 'systemd'), /ordering cycle/)
    }
    const { agent_id } = await answers('x0x-exec')
    assert.equal(x0x('x0x-exec', 'exec', agent_id, '--', 'id', '--user', '--name').status, 0)
  })

  test('whichever half is killed comes back, and takes the other along', async () => {
    const { agent_id } = await answers('x0x-exec')
    for (const unit of ['x0xd-network.service', 'x0xd-executor.service']) {
      const pid = host.must('systemctl', 'show', '--value', '--property=MainPID', unit)
      host.must('systemctl', 'kill', '--signal=KILL', '--kill-who=main', unit)
      await until(`${unit} is another process`, () => {
        const now = host.must('systemctl', 'show', '--value', '--property=MainPID', unit)
        return now !== pid && now !== '0\n'
      })
      await allActive(TWO_UNITS)
      await answers('x0x-exec')
      assert.equal(x0x('x0x-exec', 'exec', agent_id, '--', 'id', '--user', '--name').status, 0, unit)
    }
  })

  test('a wrong configuration is tried a few times and then left alone, and mended by a restart', async () => {
    // Each connection of the network half, and what waits on the socket, starts it once more, up to systemd's own limit.
    await staysDown('x0xd-executor.service', 6)
    await allActive(TWO_UNITS)
    await answers('x0x-exec')
  })

  test('a stop ends both halves and leaves no process', async () => {
    host.must('systemctl', 'stop', 'x0xd-executor.socket', 'x0xd-executor.service')
    for (const unit of TWO_UNITS) assert.equal(host.state(unit), 'inactive', unit)
    const users = host.must('sh', '-c', 'stat -c %U /proc/[0-9]* 2>/dev/null | sort -u')
    assert.doesNotMatch(users, /x0x/)
  })

  test('the single unit runs in their place', async () => {
    host.must('systemctl', 'disable', ...TWO_UNITS)
    host.must('userdel', 'x0x')
    host.must('rm', '-rf', '/var/lib/x0x', '/var/log/x0x')
    host.install('x0xd.service')
    await allActive(['x0xd.service'])
    await runs('x0x', 'x0xd.service')
    await host.cutPower()
    assert.equal(await host.boot(), 'running')
    await allActive(['x0xd.service', 'beside.socket'])
    assert.doesNotMatch(host.journal('-t', 'systemd'), /ordering cycle/)
    await answers('x0x')
    await staysDown('x0xd.service', 1)
    await allActive(['x0xd.service'])
    await answers('x0x')
  })
})
