import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { join } from 'node:path'

import { makeDeb, relabelled } from '../../deploy/packages/deb.mjs'
import { VERSION } from '../../src/base/runtime.ts'
import { until } from '../../test/support/mesh-of-daemons.ts'
import type { DebianHost } from './debian-host.ts'

const ACL = '/etc/x0x/exec-acl.toml'
/** Audit log path of the ACL that the package installs. */
const JOURNAL = '/var/lib/x0x/exec.log'
const LATER = '99.0.0'
const EXECUTOR = 'x0xd-executor.service'
const TWO_UNITS = [EXECUTOR, 'x0xd-network.service', 'x0xd-api.socket', 'x0xd-executor.socket']
const KEPT = ['agent.key', 'machine.key', 'operator.key', 'contacts.json'].map((name) => `/var/lib/x0x/${name}`)

/** Builds the package for the architecture of this machine into `dir`. Returns its path. */
export const makeOwnDeb = async (dir: string): Promise<string> => {
  const { names } = await makeDeb([], process.arch, dir)
  return join(dir, names[0]!)
}

interface Ids {
  readonly agent_id: string
  readonly machine_id: string
}

let host: DebianHost
let deb: string
let later: string

const install = (file: string): string =>
  host.must('env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', 'install', '--yes', '--no-install-recommends', host.receive(file))

const installedVersion = (): string => host.must('dpkg-query', '--show', '--showformat=${Version}', 'x0x')

/** Runs the command line as this user, for the daemon in this directory. */
const x0x = (user: string, dir: string, ...argv: readonly string[]) =>
  host.run('runuser', ['-u', user, '--', 'x0x', '--data-dir', dir, ...argv])

/** Bob is the daemon of the package and uses the user of its unit. Alice is another daemon on this host, and asks bob. */
const bob = (...argv: readonly string[]) => x0x('x0x', '/var/lib/x0x', ...argv)
const executor = (...argv: readonly string[]) => x0x('x0x-exec', '/var/lib/x0x', ...argv)
const alice = (...argv: readonly string[]) => x0x('alice', '/home/alice/.x0x', ...argv)

type Daemon = typeof bob

const ok = ({ status, stdout, stderr }: ReturnType<Daemon>): string => {
  assert.equal(status, 0, stderr + host.journal('-u', 'x0xd*', '-n', '20'))
  return stdout
}

const idsOf = (daemon: Daemon): Ids => JSON.parse(ok(daemon('id', '--json'))) as Ids

const allow = (commands: readonly (readonly string[])[]): void => {
  const { agent_id, machine_id } = idsOf(alice)
  const argvs = commands.map((argv) => `[[exec.allow.commands]]\nargv = ${JSON.stringify(argv)}\n`).join('')
  host.write(
    ACL,
    `[exec]\nenabled = true\naudit_log_path = "${JOURNAL}"\ndefault_cwd = "/"\n[[exec.allow]]\nagent_id = "${agent_id}"\nmachine_id = "${machine_id}"\n${argvs}`,
  )
}

/** Processes of the package's users. */
const oursRun = (): string => {
  const each = 'for p in /proc/[0-9]*; do echo "$(stat -c %U $p) $(tr "\\0" " " < $p/cmdline)"; done 2>/dev/null'
  return host.must('sh', '-c', `${each} | grep -aE "^(x0x|rexd)" || true`)
}

const SERVED = [
  ['id', '--user', '--name'],
  ['sleep', '20'],
] as const

const meet = (daemon: Daemon): void => {
  ok(daemon('contacts', 'import', ok(alice('card')).trim(), '--as', 'alice'))
  ok(daemon('contacts', 'trust', 'alice', 'trusted'))
  ok(daemon('contacts', 'pin', 'alice', idsOf(alice).machine_id))
  ok(alice('contacts', 'import', ok(daemon('card')).trim(), '--as', 'bob'))
}

/** A daemon of the installed package that another user of this host runs outside its units. */
const startAlice = async (): Promise<void> => {
  host.must('useradd', '--create-home', 'alice')
  const listen = ['--listen', '/ip4/127.0.0.1/tcp/0', '--api-port', '0']
  host.must(
    'systemd-run',
    '--uid=alice',
    '--setenv=X0X_MDNS=false',
    '--unit=alice',
    'x0xd',
    '--init',
    '--data-dir',
    '/home/alice/.x0x',
    ...listen,
  )
  await until('alice answers', () => alice('id').status === 0, 10_000).catch((error: Error) => {
    throw new Error(`${error.message}: ${alice('id').stderr}${host.journal('-u', 'alice', '-n', '10')}`, { cause: error })
  })
}

const serves = (user: string): void => {
  assert.equal(ok(alice('exec', 'bob', '--', 'id', '--user', '--name')), `${user}\n`)
}

/** Checks what an upgrade keeps under these units and what it restarts. `user` is the user that runs the commands. */
const upgradesLive = async (units: readonly string[], user: string): Promise<void> => {
  const daemon = user === 'x0x' ? bob : executor
  const state = () => [idsOf(daemon), ok(daemon('contacts', 'list', '--json')), host.must('sha256sum', ...KEPT), host.must('cat', ACL)]
  const pids = () => units.map((unit) => host.show(unit, 'MainPID'))
  const [kept, before, told] = [state(), pids(), host.must('cat', JOURNAL)]
  const asked = host.start('runuser', ['-u', 'alice', '--', 'x0x', '--data-dir', '/home/alice/.x0x', 'exec', 'bob', '--', 'sleep', '20'])
  await until('it sleeps', () => oursRun().includes('sleep 20'))
  install(later)
  assert.equal(installedVersion(), LATER)
  const isNew = (unit: string, i: number): boolean => host.state(unit) === 'active' && host.show(unit, 'MainPID') !== before[i]
  await until('its services are back', () => units.every(isNew))
  assert.equal(await asked, 0, 'the unit waits for what runs (X0X_DRAIN_TIMEOUT)')
  assert.doesNotMatch(oursRun(), /sleep/)
  const after = pids()
  units.forEach((unit, i) => {
    assert.notEqual(after[i], before[i], `${unit} was started again`)
    assert.equal(host.must('readlink', `/proc/${after[i]}/exe`), '/usr/lib/x0x/bin/node\n', 'of what is installed now')
  })
  assert.deepEqual(state(), kept, 'keys, contacts and configuration')
  serves(user)
  assert.ok(host.must('cat', JOURNAL).startsWith(told), 'the journal goes on')
  ok(daemon('audit', 'verify', JOURNAL))
}

const removed = (): void => {
  host.must('apt-get', 'remove', '--yes', 'x0x')
  for (const unit of ['x0xd.service', 'rexd.service', ...TWO_UNITS]) assert.equal(host.show(unit, 'LoadState'), 'not-found', unit)
  assert.equal(oursRun(), '')
  for (const gone of ['/usr/bin/x0x', '/usr/lib/x0x', '/usr/lib/systemd/user/x0xd.service', '/usr/share/man/man1/x0xd.1.gz'])
    assert.notEqual(host.run('stat', [gone]).status, 0, `${gone} is left`)
  host.must('stat', ...KEPT, JOURNAL, ACL, '/etc/logrotate.d/x0x')
  for (const user of ['x0x', 'x0x-exec', 'rexd']) host.must('id', user)
  assert.equal(links(), '')
}

/** Links that enable units of the package. */
const links = (): string => host.must('find', '/etc/systemd', '-name', 'x0x*', '-o', '-name', 'rexd*')

const tests = (): void => {
  test('a new installation runs nothing, and after it is enabled another daemon can run a command on it', async () => {
    assert.equal(await host.boot(), 'running')
    install(deb)
    assert.equal(installedVersion(), VERSION)
    assert.deepEqual([oursRun(), links()], ['', ''], 'nothing is started or enabled by itself')
    await startAlice()
    host.must('systemctl', 'enable', '--now', 'x0xd')
    assert.match(ok(bob('version')), new RegExp(`^x0x ${VERSION} .*\nx0xd ${VERSION}\n$`))
    meet(bob)
    assert.match(alice('exec', 'bob', '--', ...SERVED[0]).stderr, /denied .*\(exec_disabled\)/)
    allow(SERVED)
    host.must('systemctl', 'restart', 'x0xd')
    serves('x0x')
  })

  test('an upgrade of the running package keeps its data and restarts its services', async () => {
    await upgradesLive(['x0xd.service'], 'x0x')
  })

  test('a reload applies a narrower ACL', () => {
    allow(SERVED.slice(0, 1))
    host.must('systemctl', 'reload', 'x0xd')
    assert.match(host.show('x0xd', 'StatusText'), /; the new ACL is in force$/)
    assert.match(alice('exec', 'bob', '--', 'sleep', '20').stderr, /denied .*\(argv_not_allowed\)/)
    serves('x0x')
  })

  test('removing the package stops and disables everything and keeps its data', removed)

  test('after a reinstallation the two units use the existing data, and can be upgraded while they run', async () => {
    install(deb)
    host.must('systemctl', 'enable', '--now', 'x0xd-executor.socket', 'x0xd-api.socket', 'x0xd-network.service')
    allow(SERVED)
    host.must('systemctl', 'restart', EXECUTOR)
    await upgradesLive(TWO_UNITS.slice(0, 2), 'x0x-exec')
  })

  test('purging the running package removes everything', () => {
    host.must('apt-get', 'purge', '--yes', 'x0x')
    assert.deepEqual([oursRun(), links()], ['', ''])
    const left = host.must(
      'sh',
      '-c',
      "find / -xdev \\( -name '*x0x*' -o -name 'rexd*' \\) -not -path '/home/*' -not -path '/root/*' -not -path '/proc/*'",
    )
    assert.equal(left, '')
    assert.doesNotMatch(host.must('getent', 'passwd') + host.must('getent', 'group'), /^(x0x|rexd)/m)
    assert.equal(host.must('systemctl', 'is-system-running'), 'running\n')
  })
}

/** The tests of a suite. They need a host without any x0x, and the package. */
export const debOnSystemd = (given: () => { readonly host: DebianHost; readonly deb: string }): void => {
  before(async () => {
    ;({ host, deb } = given())
    later = await relabelled(deb, LATER)
  })
  after(() => host?.cutPower())
  tests()
}
