import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { chmod, chown, link, mkdir, readdir, writeFile } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { readRexdConfig } from '../../src/config/rexd-config.ts'
import { loadOrCreateMachineKey } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { checkAclFile } from '../../src/policy/mesh/check-acl.ts'
import { inspectAcl } from '../../src/policy/mesh/load-acl.ts'
import { runDaemonCommand } from '../support/mesh-of-daemons.ts'
import { tempDir } from '../support/temp-dir.ts'

const ID = 'ab'.repeat(32)

const acl = ({ agent = ID, argv = '["echo", "<INT>"]', head = 'enabled = true\naudit_log_path = "/var/lib/x0x/exec.log"' } = {}): string =>
  `[exec]\n${head}\n\n[[exec.allow]]\ndescription = "somebody"\nagent_id = "${agent}"\nmachine_id = "${ID}"\n\n[[exec.allow.commands]]\nargv = ${argv}\n`

const checkAcl = async (t: TestContext, text: string) => {
  const dir = await tempDir(t)
  const file = join(dir, 'acl.toml')
  await writeFile(file, text)
  const result = await runDaemonCommand(['--check', '--data-dir', join(dir, 'data'), '--exec-acl', file])
  return { ...result, file, dir }
}

test('--check accepts a good ACL without a configuration file and creates no files', async (t) => {
  const { status, stdout, dir } = await checkAcl(t, acl())
  assert.equal(status, 0, stdout)
  assert.match(stdout, /ok {4}ACL .*: exec enabled, 1 allow entry, 1 command/)
  assert.deepEqual(await readdir(dir), ['acl.toml'])
})

test('--check reports a file that share_with_group cannot open to the group, but not one that it can', async (t) => {
  const dir = await tempDir(t)
  const [data, config, token] = [join(dir, 'data'), join(dir, 'config.toml'), join(dir, 'data', 'api-token')]
  await mkdir(data, { mode: 0o700 })
  await writeFile(config, 'share_with_group = true\n', { mode: 0o600 })
  const checked = async () => runDaemonCommand(['--check', '--data-dir', data, '--config', config])
  await writeFile(token, 'x', { mode: 0o600 })
  const opened = await checked()
  assert.doesNotMatch(opened.stdout, /(ok|warn|fail) +group /)
  await link(token, join(dir, 'other'))
  const refused = await checked()
  assert.deepEqual([opened.status, refused.status], [0, 2])
  assert.match(refused.stdout, /fail {2}group .*api-token is not opened to the group: it has another name, as a hard link; .*: mv /)
})

test('--check and --doctor report each problem of groups.toml with file, line and key', async (t) => {
  const data = join(await tempDir(t), 'data')
  const file = join(data, 'groups.toml')
  await mkdir(data, { mode: 0o700 })
  const tell = async (flag: string, text: string) => {
    await writeFile(file, text, { mode: 0o600 })
    return runDaemonCommand([flag, '--data-dir', data])
  }
  const wrong = '[groups]\nweb = ["@web"]\ndb = ["@none", "db[3-1]"]\n"a b" = []\nweb2 = "web1"\n[other]\n'
  for (const flag of ['--check', '--doctor']) {
    const { status, stdout } = await tell(flag, wrong)
    assert.equal(status, 2, stdout)
    for (const [line, says] of [
      [4, /groups\."?a b"?: /],
      [5, /groups\.web2: /],
      [6, /other: /],
    ] as const)
      assert.match(stdout, new RegExp(`fail {2}groups +\\S+/groups\\.toml:${line}: ${says.source}`))
    // References and ranges are checked only if all groups are lists of words.
    const circle = await tell(flag, '[groups]\nweb = ["@web"]\ndb = ["@none"]\nx = ["db[3-1]"]\n')
    assert.match(circle.stdout, /groups\.toml:2: groups\.web: this group contains itself: @web has @web\n/)
    assert.match(circle.stdout, /groups\.toml:3: groups\.db: unknown group @none\n/)
    assert.match(circle.stdout, /groups\.toml:4: groups\.x: .*goes backwards/)
    assert.match((await tell(flag, '[groups\n')).stdout, /fail {2}groups +\S+groups\.toml/)
    assert.match((await tell(flag, '[groups]\nweb = ["web1"]\nnone = []\n')).stdout, /ok {4}groups +2 groups in \S+groups\.toml\n/)
  }
})

test('a missing syslog socket is reported, but does not prevent a start', async (t) => {
  const dir = await tempDir(t)
  await writeFile(join(dir, 'config.toml'), 'syslog = "no-socket"\notlp = "http://collector.example:4318/v1/traces"\n', { mode: 0o600 })
  const { status, stdout } = await runDaemonCommand(['--check', '--data-dir', join(dir, 'data'), '--config', join(dir, 'config.toml')])
  assert.match(stdout, existsSync('/usr/bin/perl') ? /warn {2}syslog .*no-socket is not a socket, / : /fail {2}syslog .*perl is missing/)
  assert.equal(status, 2)
  assert.match(stdout, /config\.toml:2: otlp: must be an address on this machine/)
})

test('--check refuses a bad ACL file with the position and the reason', async (t) => {
  const cases = [
    { text: acl({ head: 'enabled = true' }), line: 1, says: /audit_log_path/ },
    { text: acl().replace(/^agent_id.*\n/m, ''), line: 5, says: /agent_id/ },
    { text: acl().replace(/^machine_id.*\n/m, ''), line: 5, says: /machine_id/ },
    { text: acl().replace(/^argv.*\n/m, ''), line: 10, says: /argv/ },
    { text: acl({ agent: 'xyz' }), line: 7, says: /agent_id.*hex/ },
    { text: acl({ agent: ID.toUpperCase() }), line: 7, says: /agent_id.*hex/ },
    { text: acl({ argv: '["echo", "<WORD>"]' }), line: 11, says: /<WORD>/ },
    { text: acl({ argv: '[]' }), line: 11, says: /argv/ },
    { text: acl({ head: 'enabled = true\naudit_log_path = "/x"\nmax_stdout_bytes = 0' }), line: 4, says: /max_stdout_bytes/ },
    { text: '[exec\n', line: 1, says: /./ },
  ]
  const file = join(await tempDir(t), 'acl.toml')
  for (const { text, line, says } of cases) {
    await writeFile(file, text)
    const [problem = ''] = (await checkAclFile(file)).problems
    assert.ok(problem.includes(`${file}:${line}:`), `${line}: ${problem}`)
    assert.match(problem, says)
  }
  const started = await checkAcl(t, cases[0]!.text)
  assert.equal(started.status, 2)
  assert.ok(started.stdout.includes(`fail  ACL`) && started.stdout.includes(`${started.file}:1:`), started.stdout)
})

test('--check reports all problems of the configuration and the ACL together', async (t) => {
  const dir = await tempDir(t)
  const [config, file] = [join(dir, 'config.toml'), join(dir, 'acl.toml')]
  await writeFile(config, 'api_prot = 1\nmdns = "yes"\n')
  await writeFile(file, acl({ agent: 'xyz', argv: '["<INT>"]' }))
  await chmod(file, 0o666)
  const { status, stdout } = await runDaemonCommand([
    '--check',
    '--json',
    '--config',
    config,
    '--exec-acl',
    file,
    '--data-dir',
    join(dir, 'data'),
  ])
  assert.equal(status, 2)
  const { ok, findings } = JSON.parse(stdout) as { ok: boolean; findings: { standing: string; topic: string; text: string }[] }
  assert.equal(ok, false)
  const failures = findings.filter(({ standing }) => standing === 'fail')
  assert.equal(failures.filter(({ topic }) => topic === 'configuration').length, 2)
  assert.ok(failures.filter(({ topic }) => topic === 'ACL').length >= 3, stdout)
})

test('--check refuses an ACL file that is named but missing', async (t) => {
  const dir = await tempDir(t)
  const named = await runDaemonCommand(['--check', '--data-dir', dir, '--exec-acl', join(dir, 'none.toml')])
  assert.equal(named.status, 2)
  assert.match(named.stdout, /none\.toml/)
})

test('--check refuses a data directory that other users can enter, and shows the command that fixes it', async (t) => {
  const dir = join(await tempDir(t), 'data')
  await mkdir(dir)
  await chmod(dir, 0o755)
  const { status, stdout } = await runDaemonCommand(['--check', '--data-dir', dir])
  assert.equal(status, 2)
  assert.match(stdout, new RegExp(`chmod 700 ${dir}`))
})

test('invalid flags give exit status 2, a message on stderr and no output on stdout', async () => {
  for (const argv of [['--exec-alc', 'x'], ['--chekc'], ['extra'], ['--check', '--doctor'], ['--name', '../x']]) {
    const { status, stdout, stderr } = await runDaemonCommand(argv)
    assert.equal(status, 2, argv.join(' '))
    assert.equal(stdout, '')
    assert.match(stderr, /^x0xd: .+\n(?:x0xd: {3}See: x0xd --help\n)?$/)
  }
})

test('--help and --version write to stdout', async () => {
  assert.match((await runDaemonCommand(['--help'])).stdout, /--exec-acl[\s\S]*Examples:/)
  assert.match((await runDaemonCommand(['--version'])).stdout, /^x0xd \d+\.\d+\.\d+\n$/)
})

test('on a machine without an installation the doctor reports each part and finds no problem', async (t) => {
  const dir = join(await tempDir(t), 'data')
  const { status, stdout } = await runDaemonCommand([
    '--doctor',
    '--json',
    '--data-dir',
    dir,
    '--api-port',
    '0',
    '--listen',
    '/ip4/127.0.0.1/tcp/0',
  ])
  assert.equal(status, 0, stdout)
  const { findings } = JSON.parse(stdout) as { findings: { topic: string }[] }
  const topics = new Set(findings.map(({ topic }) => topic))
  for (const topic of [
    'runtime',
    'configuration',
    'data',
    'agent key',
    'machine key',
    'API token',
    'contacts',
    'revocations',
    'detached runs',
    'unlisted peers',
    'ACL',
    'audit log',
    'request log',
    'clock',
    'daemon',
    'API port',
    'mesh port',
  ])
    assert.ok(topics.has(topic), topic)
})

test('the doctor reports a key with loose permissions and the command that fixes it', async (t) => {
  const dir = join(await tempDir(t), 'data')
  await mkdir(dir, { mode: 0o700 })
  await writeFile(join(dir, 'agent.key'), `x0x-agent-key-v1\n${'00'.repeat(32)}\n`)
  await chmod(join(dir, 'agent.key'), 0o644)
  const { status, stdout } = await runDaemonCommand(['--doctor', '--data-dir', dir, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0'])
  assert.equal(status, 2)
  assert.match(stdout, /fail {2}agent key .*\n.*-> chmod 0600/)
})

test('the doctor warns about a bootstrap address of this machine, but not of another machine', async (t) => {
  const dir = join(await tempDir(t), 'data')
  const { machineId } = await loadOrCreateMachineKey(dir)
  const checked = async (id: string) =>
    runDaemonCommand([
      '--doctor',
      '--data-dir',
      dir,
      '--api-port',
      '0',
      '--listen',
      '/ip4/127.0.0.1/tcp/0',
      '--bootstrap',
      `/ip4/192.0.2.7/tcp/1/p2p/${peerIdOf(id)}`,
    ])
  const [own, other] = [await checked(machineId), await checked(ID)]
  assert.match(own.stdout, /warn {2}bootstrap .*\/p2p\/\w+ is an address of this machine/)
  assert.doesNotMatch(other.stdout, /warn {2}bootstrap/)
})

test('the doctor reports an API port that another program uses', async (t) => {
  const { createServer } = await import('node:net')
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const { port } = server.address() as { port: number }
  const { status, stdout } = await runDaemonCommand(['--doctor', '--data-dir', join(await tempDir(t), 'd'), '--api-port', String(port)])
  assert.equal(status, 2)
  assert.match(stdout, new RegExp(`fail {2}API port .*127\\.0\\.0\\.1:${port} cannot be taken: EADDRINUSE`))
})

test('an unwritable audit log and a missing default_cwd are warnings in --check and failures in --doctor, with a remedy', async (t) => {
  const dir = await tempDir(t)
  const file = join(dir, 'acl.toml')
  await writeFile(join(dir, 'file'), '')
  const [journal, cwd] = [join(dir, 'file', 'logs', 'exec.log'), join(dir, 'gone')]
  await writeFile(file, acl({ head: `enabled = true\naudit_log_path = "${journal}"\ndefault_cwd = "${cwd}"` }))
  const flags = ['--data-dir', join(dir, 'data'), '--exec-acl', file, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  for (const [mode, standing, status] of [
    ['--check', 'warn', 0],
    ['--doctor', 'fail', 2],
  ] as const) {
    const result = await runDaemonCommand([mode, '--json', ...flags])
    assert.equal(result.status, status, result.stdout)
    const { findings } = JSON.parse(result.stdout) as { findings: Record<'standing' | 'topic' | 'text' | 'remedy', string>[] }
    for (const [topic, place] of [
      ['audit log', join(dir, 'file', 'logs')],
      ['default_cwd', cwd],
    ] as const) {
      const finding = findings.find((one) => one.topic === topic)
      assert.equal(finding?.standing, standing)
      assert.ok(finding.text.includes(place), finding.text)
      assert.equal(finding.remedy, `sudo install -d -o ${userInfo().username} -m 0700 ${place}`)
    }
  }
})

test('an unwritable request log is a warning in --check and a failure in --doctor', async (t) => {
  const file = join(await tempDir(t), 'file')
  await writeFile(file, '')
  const dir = join(file, 'data')
  const flags = ['--json', '--data-dir', dir, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  for (const [mode, standing, status] of [
    ['--check', 'warn', 0],
    ['--doctor', 'fail', 2],
  ] as const) {
    const result = await runDaemonCommand([mode, ...flags])
    assert.equal(result.status, status, result.stdout)
    const { findings } = JSON.parse(result.stdout) as { findings: Record<'standing' | 'topic' | 'text', string>[] }
    const finding = findings.find(({ topic }) => topic === 'request log')
    assert.equal(finding?.standing, standing)
    assert.match(finding.text, /requests\.jsonl cannot be written: .*; this agent could not send requests/)
  }
})

test('x0xd and rexd refuse an audit log that other users can replace', async (t) => {
  const dir = await tempDir(t)
  const [open, root] = [join(dir, 'open'), join(dir, 'root')]
  for (const one of [open, join(open, 'private'), root]) await mkdir(one, { mode: 0o700 })
  await chmod(open, 0o775)
  const [file, rexd] = [join(dir, 'acl.toml'), join(dir, 'rexd.toml')]
  // Directly in the open directory, in a private directory below it, and in one that does not exist yet.
  for (const path of ['exec.log', 'private/exec.log', 'private/new/exec.log'].map((name) => join(open, name))) {
    await writeFile(file, acl({ head: `enabled = true\naudit_log_path = ${JSON.stringify(path)}` }))
    await writeFile(rexd, `[[security.allowed_roots]]\npath = ${JSON.stringify(root)}\n[audit]\npath = ${JSON.stringify(path)}\n`)
    const place = ['--data-dir', join(dir, 'data'), '--exec-acl', file]
    const told = /audit_log_path: .*\/open is writable by other users \(mode 0775\); use a directory/
    for (const flags of [['--check'], ['--doctor'], ['--api-port', '0']]) {
      const { status, stdout, stderr } = await runDaemonCommand([...flags, ...place])
      assert.notEqual(status, 0, flags.join())
      assert.match(stdout + stderr, told)
    }
    assert.deepEqual((await checkAclFile(file)).problems.length, 1)
    const { problems } = await readRexdConfig(rexd, {})
    assert.equal(problems.length, 1)
    assert.match(problems[0] ?? '', /rexd.toml:4: audit.path: .*\/open is writable by other users/)
  }
  await chmod(open, 0o755)
  assert.deepEqual((await checkAclFile(file)).problems, [])
  assert.deepEqual((await readRexdConfig(rexd, {})).problems, [])
})

test(
  "acl check accepts that the directory of the log belongs to the daemon's user",
  { skip: process.geteuid?.() === 0 ? false : 'needs root, to give a directory away' },
  async (t) => {
    const dir = await tempDir(t)
    await chown(dir, 1234, 1234)
    const file = join(dir, 'acl.toml')
    await mkdir(join(dir, 'log'), { mode: 0o700 })
    await chown(join(dir, 'log'), 1234, 1234)
    await writeFile(file, acl({ head: `enabled = true\naudit_log_path = ${JSON.stringify(join(dir, 'log', 'exec.log'))}` }))
    const { problems, warnings } = await checkAclFile(file)
    assert.ok(
      problems.every((problem) => !problem.includes('audit_log_path')),
      problems.join('\n'),
    )
    assert.ok(
      warnings.some((text) => /audit_log_path: .*belongs to uid 1234.*as this user/.test(text)),
      warnings.join('\n'),
    )
    assert.match((await inspectAcl(file)).problems.join('\n'), /audit_log_path: .*belongs to uid 1234/)
  },
)

test('the doctor warns about an unused ACL in the data directory and shows the line that activates it', async (t) => {
  const data = join(await tempDir(t), 'data')
  await mkdir(data, { mode: 0o700 })
  const [file, other] = [join(data, 'exec-acl.toml'), join(data, 'other.toml')]
  for (const path of [file, other]) await writeFile(path, acl(), { mode: 0o600 })
  const elsewhere = await runDaemonCommand(['--doctor', '--data-dir', data, '--exec-acl', other])
  assert.ok(elsewhere.stdout.includes(`${file} is not read: x0xd reads ${other}`), elsewhere.stdout)
  assert.ok(elsewhere.stdout.includes(`write into ${join(data, 'config.toml')}: exec_acl = "${file}"`), elsewhere.stdout)
  assert.doesNotMatch((await runDaemonCommand(['--doctor', '--data-dir', data, '--exec-acl', file])).stdout, /is not read/)
})
