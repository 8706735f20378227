import assert from 'node:assert/strict'
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'

import { checkAclFile, type AclCheck } from '../../../src/policy/mesh/check-acl.ts'
import { ESCAPES, programName } from '../../../src/policy/escapes.ts'
import { loadAcl } from '../../../src/policy/mesh/load-acl.ts'
import { aclText, commandText, entryText } from '../../support/acl-text.ts'

let dir: string
let path: string

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'x0x-check-'))
  path = join(dir, 'exec-acl.toml')
})
afterEach(() => rm(dir, { recursive: true }))

const check = async (commands: string[][], keys = ''): Promise<AclCheck> => {
  await writeFile(path, aclText([entryText(commands)], keys), { mode: 0o600 })
  return checked()
}

/** Of the file, but for where its programs start. */
const checked = async (): Promise<AclCheck> => {
  const { warnings, ...rest } = await checkAclFile(path)
  return { ...rest, warnings: warnings.filter((warning) => !warning.includes('default_cwd: is not set')) }
}

/** What `acl check` says of one command, but for whether the program is installed on this host. */
const warningsOf = async (...argv: string[]): Promise<string[]> =>
  (await check([argv])).warnings.filter((warning) => !warning.includes('is in no directory of') && !warning.includes('does not exist'))

test('a good file is ok and counted', async () => {
  assert.deepEqual(await check([['true'], ['echo', '<INT>']]), {
    ok: true,
    problems: [],
    warnings: [],
    summary: {
      enabled: true,
      allow_entry_count: 1,
      command_entry_count: 2,
      asking_entry_count: 0,
      ask_pattern_count: 0,
      always_ask_count: 0,
      approver_count: 0,
      approvals_needed: 0,
    },
  })
})

test('a missing file is not ok', async () => {
  const answer = await checked()
  assert.equal(answer.ok, false)
  assert.deepEqual(answer.problems, [`${path}: there is no such file`])
})

test('syntax and permissions are reported together', async () => {
  await writeFile(path, '[exec\n')
  await chmod(path, 0o666)
  const { ok, problems } = await checked()
  assert.equal(ok, false)
  assert.equal(problems.length, 2)
  assert.match(problems[0] ?? '', /writable by others/)
  assert.match(problems[1] ?? '', /:1:\d+:/)
})

test('an escape is a warning with line, key, program, risk and remedy, and the file stays ok', async () => {
  const answer = await check([['true'], ['bash', '/usr/bin/true']])
  assert.equal(answer.ok, true)
  assert.equal(answer.warnings.length, 1)
  assert.match(
    answer.warnings[0] ?? '',
    /exec-acl\.toml:12: exec\.allow\[0\]\.commands\[1\]\.argv: \["bash", "\/usr\/bin\/true"\]: bash is a shell: .*; say stdin = false, or allow a script of your own/,
  )
})

test('the commands that are known to escape are named', async () => {
  for (const [argv, risk] of [
    [['sh'], /is a shell/],
    [['/bin/bash', '-s'], /is a shell/],
    [['python3'], /is an interpreter/],
    [['python3.12', '-'], /is an interpreter/],
    [['node'], /is an interpreter/],
    [['awk', '-f', '/etc/x.awk'], /start commands/],
    [['sed', '-i', 's/a/b/', '/etc/hosts'], /rewrite files/],
    [['sed', '-n', 's/a/b/w /tmp/x'], /rewrite files/],
    [['sed', 's/a/b/e'], /start commands/],
    [['vim', '/etc/hosts'], /is an editor/],
    [['less', '/var/log/syslog'], /is a pager/],
    [['man', 'ls'], /is a pager/],
    [['systemctl', 'status', 'x0xd'], /pager/],
    [['journalctl', '-n', '<INT>'], /pager/],
    [['journalctl', '--no-pager', '--vacuum-time=1s'], /journals/],
    [['git', 'status'], /hooks/],
    [['curl', '-q', '-o', '/tmp/x', 'http://h/'], /write and read local files/],
    [['curl', '-q', '-so/tmp/x', 'http://h/'], /write and read local files/],
    [['curl', '-q', 'file:///etc/shadow'], /write and read local files/],
    [['curl', '-q', '-d', '@/etc/shadow', 'http://h/'], /write and read local files/],
    [['curl', '-q', '-K', '/tmp/c'], /write and read local files/],
    [['curl', 'http://h/'], /curlrc/],
    [['wget', 'http://h/'], /writes files/],
    [['tar', '-cf', '/tmp/a.tar', '--checkpoint-action=exec=id', '/etc'], /checkpoint-action/],
    [['tar', '--to-command=id', '-xf', '/tmp/a.tar'], /checkpoint-action/],
    [['tar', '-xf', '-'], /unpacks/],
    [['tar', 'xzf', '/tmp/a.tgz'], /unpacks/],
    [['find', '/', '-exec', 'id', '{}', '+'], /starts programs/],
    [['find', '/tmp', '-delete'], /deletes/],
    [['xargs', 'rm'], /from its input/],
    [['env', 'LD_PRELOAD=/tmp/x', 'true'], /starts another program/],
    [['timeout', '5', 'true'], /starts another program/],
    [['sudo', 'true'], /another user/],
    [['ssh', 'host', 'uptime'], /ProxyCommand/],
    [['nc', '-l', '-p', '<INT>'], /network/],
    [['docker', 'ps'], /as good as root/],
    [['apt-get', 'update'], /packages/],
    [['make', 'test'], /build files/],
    [['tee', '/etc/motd'], /stdin that the caller sends into a file/],
    [['crontab', '-'], /runs later/],
    [['sqlite3', '/var/lib/x.db'], /commands from stdin/],
    [['sort', '-o', '/etc/x', '/etc/y'], /writes a file/],
    [['tcpdump', '-w', '/tmp/x'], /writes files/],
    [['ip', 'netns', 'exec', 'a', 'id'], /starts programs/],
    [['kill', '<INT>'], /any process/],
    [['/lib64/ld-linux-x86-64.so.2', '/bin/true'], /starts another program/],
    [['editor', '/etc/x'], /is an editor/],
    [['sensible-editor'], /is an editor/],
    [['/usr/bin/vim.tiny', '/x'], /is an editor/],
    [['rvim'], /is an editor/],
    [['pager', '/var/log/syslog'], /is a pager/],
    [['nc.openbsd', 'h', '1'], /network/],
    [['perl5.36-x86_64-linux-gnu', '-e', '1'], /is an interpreter/],
    [['pypy3', '-c', ''], /is an interpreter/],
    [['bash5'], /is a shell/],
    [['x86_64-linux-gnu-gcc-12', '-x', 'c', '-'], /compiles/],
    [['java', '-jar', '/srv/x.jar'], /class path/],
    [['patch', '-p1'], /changes the files/],
    [['split', '-b', '1'], /into a file/],
    [['install', '/dev/stdin', '/etc/cron.d/x'], /for a file/],
    [['sendmail', '-t'], /to whom/],
    [['nft', '-f', '-'], /rules/],
    [['gpg', '--import'], /keys/],
    [['bwrap', '--', 'sh'], /starts another program/],
    [['firejail', 'sh'], /starts another program/],
    [['run0', 'id'], /another user/],
    [['sg', 'root', 'x'], /another user/],
    [['dbus-run-session', 'sh'], /starts another program/],
    [['prlimit', '--nofile=1', 'sh'], /starts another program/],
    [['ldd', '/usr/bin/true'], /may run the program/],
    [['modprobe', 'x'], /changes the kernel/],
    [['pkill', '-f', 'x'], /ends every process/],
    [['uv', 'run', 'x'], /build files/],
    [['tsx', 'x'], /is an interpreter/],
    [['ansible-playbook', 'x'], /playbooks/],
    [['machinectl', '--no-pager', 'shell', 'h'], /shell in a machine/],
    [['busctl', '--no-pager', 'call', 'a', 'b'], /any service/],
    [['hostnamectl', '--no-pager', '-H', 'root@h'], /another host/],
    [['sed', '-Ei', 's/a/b/', '/srv/f'], /rewrite files/],
    [['curl', '-q', '-d@/etc/passwd', 'http://h/'], /write and read local files/],
    [['curl', '-q', '--unix-socket', '/run/docker.sock', 'http://h/'], /write and read local files/],
  ] as const) {
    const warnings = await warningsOf(...argv)
    assert.ok(
      warnings.some((warning) => risk.test(warning)),
      `${argv.join(' ')}: ${warnings.join('\n')}`,
    )
  }
})

test('commands without a known escape are left alone', async () => {
  for (const argv of [
    ['uptime'],
    ['cat', '/etc/hostname'],
    ['systemctl', '--no-pager', 'status', 'x0xd'],
    ['journalctl', '--no-pager', '-u', 'x0xd', '-n', '<INT>'],
    ['curl', '-q', '-fsS', 'http://127.0.0.1:12600<URL_PATH>'],
    ['tar', '-tf', '/srv/a.tar'],
    ['find', '/srv', '-name', 'core', '-print'],
    ['sed', '-n', '1p', '/etc/hosts'],
    ['ip', '-o', 'addr'],
    ['sort', '-f', '/etc/passwd'],
    ['kill', '-0', '1234'],
    ['x0x', 'diagnostics', 'exec'],
  ])
    assert.deepEqual(await warningsOf(...argv), [], argv.join(' '))
})

test('a slot that names files is a warning, one behind an address is none', async () => {
  assert.match((await warningsOf('cat', '<URL_PATH>')).join(), /<URL_PATH> lets the caller name any absolute path of this host/)
  assert.match((await warningsOf('cat', '/var/log<URL_PATH>')).join(), /any path that begins with "\/var\/log\/"/)
  assert.deepEqual(await warningsOf('echo', 'https://h<URL_PATH>'), [])
  for (const prefix of ['http://', 'http:', 'http:/', 'https:///', '--url=http://'])
    assert.match((await warningsOf('echo', `${prefix}<URL_PATH>`)).join(), /lets the caller name the host/, prefix)
  for (const prefix of ['https://h/', '/var/log/'])
    assert.match((await warningsOf('echo', `${prefix}<URL_PATH>`)).join(), /with two of them only/, prefix)
})

test(
  'a journal where this user may not look is a warning: the daemon may be another user',
  { skip: process.getuid?.() === 0 && 'root may look everywhere' },
  async () => {
    const closed = join(dir, 'closed')
    await mkdir(closed)
    await chmod(closed, 0)
    const text = aclText([entryText([['true']])], 'default_cwd = "/"')
    await writeFile(path, text.replace(/audit_log_path = .*/, `audit_log_path = "${closed}/a/exec.log"`), { mode: 0o600 })
    const { ok, problems, warnings } = await checkAclFile(path)
    assert.deepEqual([ok, problems, warnings.length], [true, [], 1])
    assert.match(warnings[0] ?? '', /audit_log_path: EACCES.*\(as this user; a daemon that cannot either would not start\)/)
    await assert.rejects(loadAcl({ path, explicit: true }), /audit_log_path: EACCES/)
  },
)

test('a script that others may write or that is looked up is a warning', async () => {
  const script = join(dir, 'job.sh')
  await writeFile(script, 'true\n')
  await chmod(script, 0o666)
  assert.match((await warningsOf('sh', '-e', script)).join('\n'), /job\.sh is writable by others/)
  assert.match((await warningsOf('sh', 'job.sh')).join('\n'), /"job\.sh" is looked up where the program starts/)
  for (const argv of [
    ['bash', '--rcfile', '/etc/profile', script],
    ['node', `--require=${script}`, '/usr/bin/env'],
    ['node', '--import', '/usr/bin/env', script],
  ])
    assert.match((await warningsOf(...argv)).join('\n'), /job\.sh is writable by others/, argv.join(' '))
  assert.match((await warningsOf('node', '--require=./x.js', '/usr/bin/env')).join('\n'), /"\.\/x\.js" is looked up/)
  await chmod(script, 0o600)
  assert.equal((await warningsOf('sh', script)).length, 1)
})

test('a command that is never reached is a warning that names the earlier line', async () => {
  const { warnings } = await check([['true'], ['echo', 'a'], ['true']])
  assert.equal(warnings.length, 1)
  assert.match(
    warnings[0] ?? '',
    /:14: exec\.allow\[0\]\.commands\[2\]\.argv: is never reached: line 10 allows the same to .*; leave one of the two out$/,
  )
})

test('what could not be read is like no other: each is a problem that shows how it is written, and no warning of the others', async () => {
  const agent = { agent_id: 'alice', machine_id: 'her laptop' }
  const unread = ['stdin = true', 'stdin = false', 'argv = []', 'argv = ["df", 3]', 'argv = "df"']
  const rows = (key: string, more = ''): string => unread.map((line) => `[[exec.${key}]]\n${line}\n${more}`).join('')
  const entries = [
    `${entryText([])}ask = "on-miss"\n${rows('allow.commands')}${rows('allow.ask_patterns')}[[exec.allow.ask_patterns]]\nargv = ["<ANY...>"]\n`,
    entryText([['true']], agent),
    entryText([['true']], agent),
    rows('always_ask', 'reason = "it matters"\n').replaceAll('stdin', '#'),
  ]
  await writeFile(path, aclText(entries), { mode: 0o600 })
  const { problems, warnings } = await checked()
  assert.deepEqual(warnings, [])
  const required = problems.filter((problem) =>
    problem.endsWith('argv: is required: the program and each of its arguments, as in argv = ["df", "-h"]'),
  )
  assert.equal(required.length, 6, problems.join('\n'))
  assert.match(problems.join('\n'), /commands\[3\]\.argv: must be a list of strings, not a list with 3\n/)
})

test('a stricter command behind a wider one is never reached, and is named with the line that takes its calls', async () => {
  const wide = entryText([['tail', '-n', '<INT>', '/etc/hostname']])
  const covered: string[][] = [
    ['tail', '-n', '5', '/etc/hostname'],
    ['tail', '-n', '<INT>', '/etc/hostname'],
  ]
  for (const argv of covered) {
    await writeFile(path, aclText([wide, entryText([argv], { max_duration_secs: 5 })]), { mode: 0o600 })
    assert.match(
      (await checked()).warnings.join(),
      /allow\[1\].*is never reached: line 10 allows (this and more to .*; leave this one out, or put it before that line|the same to .*; leave one of the two out)$/,
    )
  }
  const apart: string[][] = [
    ['tail', '-n', '05', '/etc/hostname'],
    ['tail', '-n', '5'],
    ['tail', '-n', '5', '<URL_PATH>'],
  ]
  for (const argv of apart) {
    await writeFile(path, aclText([wide, entryText([argv])]), { mode: 0o600 })
    assert.doesNotMatch((await checked()).warnings.join(), /never reached/, argv.join(' '))
  }
  await writeFile(path, aclText([entryText([['tail', '-n', '5', '/etc/hostname']]), wide]), { mode: 0o600 })
  assert.doesNotMatch((await checked()).warnings.join(), /never reached/, 'the stricter one first')
})

test('what reads its orders from stdin is named while stdin is open, and not when it is closed', async () => {
  const closed = (argv: string[]): string => `${commandText(argv)}stdin = false\n`
  for (const argv of [
    ['sh', '/usr/bin/true'],
    ['tee', '/srv/x'],
    ['psql', 'db'],
    ['patch', '-p1', '/srv/x'],
    ['kubectl', 'apply', '-f', '-'],
    ['cp', '/dev/stdin', '/srv/x'],
    ['iptables-restore'],
    ['sendmail', '-t'],
    ['xargs', 'echo'],
  ]) {
    const told = (warnings: readonly string[]): boolean => warnings.some((warning) => /stdin/.test(warning.split('argv: ')[1] ?? ''))
    assert.ok(told((await check([argv])).warnings), argv.join(' '))
    await writeFile(path, aclText([`${entryText([])}${closed(argv)}`]), { mode: 0o600 })
    assert.ok(!told((await checked()).warnings), `${argv.join(' ')} without stdin`)
    assert.ok(!told((await check([argv], 'max_stdin_bytes = 0')).warnings), `${argv.join(' ')} in a file without stdin`)
  }
})

test('a program is known by what its name leads to here', async () => {
  const link = join(dir, 'show')
  await symlink('/bin/sh', link)
  const [shell] = (await warningsOf(link)).filter((warning) => warning.includes('is a shell'))
  assert.match(shell ?? '', /show leads to (dash|bash|ash|sh) here, which is a shell/)
})

test('a working directory that is not there, no directory, or open to others is a warning', async () => {
  const warningFor = async (cwd: string): Promise<string> =>
    (await check([['true']], `default_cwd = ${JSON.stringify(cwd)}`)).warnings.join('\n')
  assert.match(await warningFor(join(dir, 'gone')), /exec\.default_cwd: nothing can start there: ENOENT/)
  assert.match(await warningFor(path), /exec\.default_cwd: .* is not a directory/)
  const open = await mkdtemp(join(dir, 'open-'))
  await chmod(open, 0o777)
  assert.match(await warningFor(open), /exec\.default_cwd: .*writable by others.*where they start/)
  assert.equal(await warningFor('/'), '')
})

test('a file that does not say where programs start is warned of, and one that lets none start is not', async () => {
  const told = async (entries: readonly string[], keys = ''): Promise<string[]> => {
    await writeFile(path, aclText(entries, keys), { mode: 0o600 })
    return (await checkAclFile(path)).warnings.filter((warning) => warning.includes('default_cwd'))
  }
  assert.deepEqual(await told([entryText([['true']])]), [
    `${path}: exec.default_cwd: is not set: programs start where x0xd was started, wherever that was; "/" is the same for all`,
  ])
  assert.deepEqual(await told([entryText([['true']])], 'default_cwd = "/"'), [])
  assert.deepEqual(await told([]), [])
})

test('warnings are given beside problems', async () => {
  const { ok, problems, warnings } = await check([['less', '/etc/hosts']], 'max_stdout_bytes = 0')
  assert.equal(ok, false)
  assert.equal(problems.length, 1)
  assert.ok(warnings.some((warning) => warning.includes('is a pager')))
})

test('a program is known by its name, wherever it lies and whatever its version', () => {
  for (const [argv0, name] of [
    ['/usr/bin/python3.12', 'python'],
    ['/usr/local/bin/perl5.36.0', 'perl'],
    ['lua5.4', 'lua'],
    ['sqlite3', 'sqlite3'],
    ['7z', '7z'],
    ['nc.openbsd', 'nc'],
    ['perl5.36-x86_64-linux-gnu', 'perl'],
    ['/usr/local/bin/git.sh', 'git.sh'],
    ['/lib64/ld-linux-x86-64.so.2', 'ld.so'],
    ['/lib/ld-musl-x86_64.so.1', 'ld.so'],
    ['ls', 'ls'],
  ] as const)
    assert.equal(programName(argv0), name)
})

test('each escape says a risk and a remedy in one line', () => {
  assert.ok(ESCAPES.length > 30)
  for (const { programs, risk, remedy } of ESCAPES) {
    assert.ok(programs.length > 0 && new Set(programs).size === programs.length)
    assert.match(`${risk}; ${remedy}`, /^[a-z][^\n;]+; [a-z][^\n]+$/)
    assert.doesNotMatch(remedy, /\.$/)
  }
})

test('a program is what its name says only where the system keeps its programs', async () => {
  for (const argv0 of ['ex', '/usr/bin/ex', '/sbin/ex']) assert.match((await warningsOf(argv0))[0] ?? '', /: ex is an editor: /, argv0)
  for (const argv0 of ['/opt/acme/bin/ex', '/usr/lib/acme/ex', '/usr/bin/../lib/ex'])
    assert.match((await warningsOf(argv0))[0] ?? '', /: has the name of ex, which is an editor: /, argv0)
})

test('a literal with characters that nobody sees is warned of', async () => {
  for (const hidden of ['\u202e', '\u200b', '\u3164', '\ufe0f', '\u{e0041}']) {
    const [warning = ''] = await warningsOf('echo', `a${hidden}b`)
    assert.match(warning, /has characters that nobody sees/)
    assert.ok(!warning.includes(hidden), 'and not shown as it is')
  }
  assert.deepEqual(await warningsOf('echo', 'Grüße, 世界'), [])
})

test('a discoverable entry without a description is a warning, and one with it is none', async () => {
  const told = entryText([['true']]).replace('[[exec.allow]]\n', '[[exec.allow]]\ndiscoverable = true\n')
  await writeFile(path, aclText([told, told.replace(/description = .*\n/, '')]), { mode: 0o600 })
  const { ok, warnings } = await checked()
  assert.equal(ok, true)
  const about = warnings.filter((warning) => warning.includes('discoverable'))
  assert.equal(about.length, 1)
  assert.match(about[0] ?? '', /exec-acl\.toml:\d+: exec\.allow\[1\]\.description: is not given/)
})
