import assert from 'node:assert/strict'
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'

import { checkAclFile, type AclCheck } from '../../../src/policy/mesh/check-acl.ts'
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

/** The report for the file, without the warning about default_cwd. */
const checked = async (): Promise<AclCheck> => {
  const { warnings, ...rest } = await checkAclFile(path)
  return { ...rest, warnings: warnings.filter((warning) => !warning.includes('default_cwd: is not set')) }
}

/** The warnings for one command, except those about a program that is not installed on this host. */
const warningsOf = async (...argv: string[]): Promise<string[]> =>
  (await check([argv])).warnings.filter((warning) => !warning.includes('is in no directory of') && !warning.includes('does not exist'))

test('a valid file is ok, and the report counts its entries', async () => {
  assert.deepEqual(await check([['true'], ['echo', '<INT>']]), {
    ok: true,
    problems: [],
    warnings: [],
    signature: null,
    summary: {
      enabled: true,
      allow_entry_count: 1,
      command_entry_count: 2,
      files_entry_count: 0,
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
  assert.deepEqual(answer.problems, [`cannot read ${path}: no such file`])
})

test('problems of syntax and of permissions are reported together', async () => {
  await writeFile(path, '[exec\n')
  await chmod(path, 0o666)
  const { ok, problems } = await checked()
  assert.equal(ok, false)
  assert.equal(problems.length, 2)
  assert.match(problems[0] ?? '', /writable by other users/)
  assert.match(problems[1] ?? '', /:1:\d+:/)
})

test('a program that may run others gives a warning with line, key and program, and the file stays ok', async () => {
  const answer = await check([['true'], ['bash', '/usr/bin/true']])
  assert.equal(answer.ok, true)
  assert.equal(answer.warnings.length, 1)
  assert.match(
    answer.warnings[0] ?? '',
    /exec-acl\.toml:12: exec\.allow\[0\]\.commands\[1\]\.argv: \["bash", "\/usr\/bin\/true"\]: bash may start other programs, or run code that its words do not show/,
  )
})

test('the check warns about every program that is not transparent, under any name', async () => {
  for (const argv of [
    ['sh'],
    ['/bin/bash', '-s'],
    ['python3.12', '-'],
    ['git', 'status'],
    ['make', 'test'],
    ['systemctl', '--no-pager', 'status', 'x0xd'],
    ['curl', '-q', 'http://h/'],
    ['curl', '--engine', '/w/e.so', 'http://h/'],
    ['tar', '-tf', '/srv/a.tar'],
    ['apt-cache', 'policy'],
    ['json_pp', '-f', 'eval'],
    ['fakeroot-sysv', 'touch', 'x'],
    ['c99-gcc', '-c', 'x.c'],
    ['direnv', 'exec', '.', 'x'],
    ['/opt/acme/bin/ls'],
    ['/usr/bin/vim.tiny', '/x'],
    ['busybox', 'ls'],
    ['never-heard-of'],
  ])
    assert.match(
      (await warningsOf(...argv)).join('\n'),
      new RegExp(`${argv[0]?.split('/').at(-1)} may start other programs`),
      argv.join(' '),
    )
})

test('the check does not warn about transparent programs', async () => {
  for (const argv of [['uptime'], ['cat', '/etc/hostname'], ['df', '-h'], ['/bin/ls', '/srv'], ['tail', '-n', '<INT>', '/var/log/x']])
    assert.deepEqual(await warningsOf(...argv), [], argv.join(' '))
})

test('a template that can name files gives a warning, unless it is after a complete address', async () => {
  assert.match((await warningsOf('cat', '<URL_PATH>')).join(), /<URL_PATH> lets the caller name any absolute path of this host/)
  assert.match((await warningsOf('cat', '/var/log<URL_PATH>')).join(), /any path that begins with "\/var\/log\/"/)
  assert.deepEqual(await warningsOf('echo', 'https://h<URL_PATH>'), [])
  for (const prefix of ['http://', 'http:', 'http:/', 'https:///', '--url=http://'])
    assert.match((await warningsOf('echo', `${prefix}<URL_PATH>`)).join(), /lets the caller name the host/, prefix)
  for (const prefix of ['https://h/', '/var/log/'])
    assert.match((await warningsOf('echo', `${prefix}<URL_PATH>`)).join(), /with two slashes/, prefix)
})

test(
  'an audit log that this user cannot reach is a warning, because the daemon may be another user',
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

test('a script that others may write, or whose path is relative, gives a warning', async () => {
  const script = join(dir, 'job.sh')
  await writeFile(script, 'true\n')
  await chmod(script, 0o666)
  assert.match((await warningsOf('sh', '-e', script)).join('\n'), /job\.sh is writable by other users/)
  assert.match((await warningsOf('sh', 'job.sh')).join('\n'), /"job\.sh" is looked up where the program starts/)
  for (const argv of [
    ['bash', '--rcfile', '/etc/profile', script],
    ['node', `--require=${script}`, '/usr/bin/env'],
    ['node', '--import', '/usr/bin/env', script],
  ])
    assert.match((await warningsOf(...argv)).join('\n'), /job\.sh is writable by other users/, argv.join(' '))
  assert.match((await warningsOf('node', '--require=./x.js', '/usr/bin/env')).join('\n'), /"\.\/x\.js" is looked up/)
  await chmod(script, 0o600)
  assert.equal((await warningsOf('sh', script)).length, 1)
})

test('a command that can never match gives a warning that names the earlier line', async () => {
  const { warnings } = await check([['true'], ['echo', 'a'], ['true']])
  assert.equal(warnings.length, 1)
  assert.match(
    warnings[0] ?? '',
    /:14: exec\.allow\[0\]\.commands\[2\]\.argv: has no effect: line 10 allows the same to .*; remove one of the two$/,
  )
})

test('values that cannot be read are each a problem and never count as duplicates of each other', async () => {
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

test('a stricter command after a wider one gives a warning with the line of the wider one', async () => {
  const wide = entryText([['tail', '-n', '<INT>', '/etc/hostname']])
  const covered: string[][] = [
    ['tail', '-n', '5', '/etc/hostname'],
    ['tail', '-n', '<INT>', '/etc/hostname'],
  ]
  for (const argv of covered) {
    await writeFile(path, aclText([wide, entryText([argv], { max_duration_secs: 5 })]), { mode: 0o600 })
    assert.match(
      (await checked()).warnings.join(),
      /allow\[1\].*has no effect: line 10 allows (this and more to .*; remove this one, or move it before that line|the same to .*; remove one of the two)$/,
    )
  }
  const apart: string[][] = [
    ['tail', '-n', '05', '/etc/hostname'],
    ['tail', '-n', '5'],
    ['tail', '-n', '5', '<URL_PATH>'],
  ]
  for (const argv of apart) {
    await writeFile(path, aclText([wide, entryText([argv])]), { mode: 0o600 })
    assert.doesNotMatch((await checked()).warnings.join(), /has no effect/, argv.join(' '))
  }
  await writeFile(path, aclText([entryText([['tail', '-n', '5', '/etc/hostname']]), wide]), { mode: 0o600 })
  assert.doesNotMatch((await checked()).warnings.join(), /has no effect/, 'the stricter one first')
})

test('a command that reads instructions from stdin gives a warning only while stdin is open', async () => {
  const closed = (argv: string[]): string => `${commandText(argv)}stdin = false\n`
  for (const argv of [
    ['sh', '/usr/bin/true'],
    ['tee', '/srv/x'],
    ['psql', 'db'],
    ['patch', '-p1', '/srv/x'],
    ['kubectl', 'apply', '-f', '-'],
    ['cp', '/dev/fd/0', '/srv/x'],
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

test('a link with the name of a transparent program to another program is not transparent', async () => {
  const link = join(dir, 'ls')
  await symlink('/bin/sh', link)
  assert.match((await warningsOf(link)).join(), /ls may start other programs/)
})

test('a working directory that is missing, not a directory, or writable by others gives a warning', async () => {
  const warningFor = async (cwd: string): Promise<string> =>
    (await check([['true']], `default_cwd = ${JSON.stringify(cwd)}`)).warnings.join('\n')
  assert.match(await warningFor(join(dir, 'gone')), /exec\.default_cwd: no program can start in it: ENOENT/)
  assert.match(await warningFor(path), /exec\.default_cwd: .* is not a directory/)
  const open = await mkdtemp(join(dir, 'open-'))
  await chmod(open, 0o777)
  assert.match(await warningFor(open), /exec\.default_cwd: .*writable by other users.*their working directory/)
  assert.equal(await warningFor('/'), '')
})

test('a file with commands but without default_cwd gives a warning', async () => {
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

test('the report shows warnings together with problems', async () => {
  const { ok, problems, warnings } = await check([['less', '/etc/hosts']], 'max_stdout_bytes = 0')
  assert.equal(ok, false)
  assert.equal(problems.length, 1)
  assert.ok(warnings.some((warning) => warning.includes('less may start other programs')))
})

test('a literal with invisible characters gives a warning', async () => {
  for (const hidden of ['\u202e', '\u200b', '\u3164', '\ufe0f', '\u{e0041}']) {
    const [warning = ''] = await warningsOf('echo', `a${hidden}b`)
    assert.match(warning, /has invisible characters/)
    assert.ok(!warning.includes(hidden), 'and not shown as it is')
  }
  assert.deepEqual(await warningsOf('echo', 'Grüße, 世界'), [])
})

test('a discoverable entry without a description gives a warning', async () => {
  const told = entryText([['true']]).replace('[[exec.allow]]\n', '[[exec.allow]]\ndiscoverable = true\n')
  await writeFile(path, aclText([told, told.replace(/description = .*\n/, '')]), { mode: 0o600 })
  const { ok, warnings } = await checked()
  assert.equal(ok, true)
  const about = warnings.filter((warning) => warning.includes('discoverable'))
  assert.equal(about.length, 1)
  assert.match(about[0] ?? '', /exec-acl\.toml:\d+: exec\.allow\[1\]\.description: is missing/)
})
