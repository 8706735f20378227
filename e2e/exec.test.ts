import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import {
  aliceBobCharlie,
  isRunning,
  MeshOfDaemons,
  until,
  type CliResult,
  type ExecDiagnosticsJson,
  type TestDaemon,
} from '../test/support/mesh-of-daemons.ts'
import { patient } from '../test/support/wait-limits.ts'

// The end-to-end part of the test plan, on three real daemons with the real command line.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let charlie: TestDaemon
let ticker: string
let trapper: string
let stubborn: string
let exiter: string
let chatter: string

before(async () => {
  mesh = await MeshOfDaemons.create()
  ticker = await mesh.program('ticker', 'i=0; while :; do i=$((i+1)); echo "tick $i"; sleep 0.1; done')
  trapper = await mesh.program('trapper', "trap 'exit 7' TERM\necho ready\nwhile :; do sleep 0.1; done")
  stubborn = await mesh.program('stubborn', "trap '' TERM\necho ready\nwhile :; do sleep 0.1; done")
  exiter = await mesh.program('exiter', 'echo to-stdout; echo to-stderr >&2; exit $1')
  chatter = await mesh.program('chatter', 'head -c $1 /dev/zero; head -c $2 /dev/zero >&2; exit 3')
  ;({ alice, bob, charlie } = await aliceBobCharlie(
    mesh,
    [
      ['echo', '<INT>'],
      ['printenv', 'PATH'],
      ['env'],
      ['sleep', '<INT>'],
      ['pwd'],
      ['sha256sum'],
      [ticker],
      [trapper],
      [stubborn],
      [exiter, '<INT>'],
      ['does-not-exist-anywhere'],
    ],
    'max_duration_secs = 20\n',
  ))
})

after(async () => mesh.stop())

const denialOf = (result: CliResult): string => {
  assert.equal(result.status, 255, result.stderr)
  assert.equal(result.stdout.length, 0)
  const reason = /^x0x: \S+ (?:denied|could not start) .* \((\w+)\)(?:: |$)/m.exec(result.stderr)?.[1]
  assert.ok(reason, result.stderr)
  return reason
}

test('an allowed argv runs, its output arrives, and its exit status becomes that of x0x', async () => {
  const result = await alice.exec(bob, ['echo', '42'])
  assert.equal(result.status, 0, result.stderr)
  assert.equal(result.stdout.toString(), '42\n')
  assert.equal(result.stderr, '')
})

for (const [title, reason, ...argvs] of [
  ['a token that does not match its template is denied', 'argv_not_allowed', ['echo', 'hello']],
  ['a command that no ACL entry lists is denied', 'argv_not_allowed', ['rm', '-rf', '/']],
  ['a program that is missing on the target is denied with spawn_failed', 'spawn_failed', ['does-not-exist-anywhere']],
  [
    'a shell character in a token is denied, although no shell is used',
    'shell_metachar_in_argv',
    ['echo', '99', ';', 'ls'],
    ['echo', '99;ls'],
  ],
] as const)
  test(title, async () => {
    for (const argv of argvs) assert.equal(denialOf(await alice.exec(bob, argv)), reason)
  })

test('the child sees only the cleaned environment', async () => {
  const path = await alice.exec(bob, ['printenv', 'PATH'])
  assert.equal(path.stdout.toString(), '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n')
  const names = (await alice.exec(bob, ['env'])).stdout
    .toString()
    .trim()
    .split('\n')
    .map((line) => line.split('=')[0])
  // With containment by a process group only, a mark is added to the environment.
  const mark = (await bob.journal()).some((line) => line['containment'] === 'group') ? ['X0X_RUN'] : []
  assert.deepEqual(names.toSorted(), ['HOME', 'LANG', 'LC_ALL', 'PATH', ...mark])
})

test('the child starts in default_cwd', async () => {
  assert.equal((await alice.exec(bob, ['pwd'])).stdout.toString(), '/\n')
})

test('a trusted agent without an ACL entry is denied with agent_machine_not_in_acl', async () => {
  assert.equal(denialOf(await charlie.exec(bob, ['echo', '42'])), 'agent_machine_not_in_acl')
})

test('an agent that is not trusted gets only trust_rejected', async () => {
  assert.equal(denialOf(await bob.exec(alice, ['echo', '42'])), 'trust_rejected')
})

test('a denial names the commands that explain it on the target', async () => {
  const { stderr } = await alice.exec(bob, ['echo', 'it is', 'x'])
  assert.match(
    stderr,
    /^x0x: bob denied "echo 'it is' x" \(argv_not_allowed\): .*\n {5}Try: x0x --data-dir \S+ acl mine bob\n {5}Try, on bob: x0x acl explain --last\n/,
  )
  assert.match((await bob.cli(['acl', 'explain', '--last'])).stdout.toString(), /^last denial, .*: echo 'it is' x\nrequested by alice /)
})

test('acl explain gives the reason of a denial, by default from the ACL that the daemon uses', async () => {
  const ids = ['--agent', alice.agentId, '--machine', alice.machineId]
  const refused = await bob.cli(['acl', 'explain', bob.aclFile, ...ids, '--', 'echo', 'hello'])
  assert.equal(refused.status, 1)
  assert.match(refused.stdout.toString(), /argv_not_allowed/)
  assert.match(refused.stdout.toString(), /<INT>/)
  assert.equal((await bob.cli(['acl', 'explain', bob.aclFile, ...ids, '--', 'echo', '42'])).status, 0)
  // The command as the denial prints it names no file. It then reads the file that the daemon uses.
  const unnamed = await bob.cli(['acl', 'explain', ...ids, '--', 'echo', 'hello'])
  assert.deepEqual([unnamed.status, unnamed.stdout], [refused.status, refused.stdout])
  assert.equal((await bob.cli(['acl', 'check'])).status, 0)
})

test('stdout and stderr stay separate, and the remote exit status comes back', async () => {
  const result = await alice.exec(bob, [exiter, '3'])
  assert.equal(result.status, 3)
  assert.equal(result.stdout.toString(), 'to-stdout\n')
  assert.equal(result.stderr, 'to-stderr\n')
})

test('an explicit timeout above the limit is lowered to the limit, with a warning', async () => {
  const result = await alice.exec(bob, ['echo', '1'], ['--timeout', '99999'])
  assert.equal(result.status, 0)
  assert.match(result.stderr, /^x0x: warning: timeout_clamped: /)
})

test('a timeout ends the command with status 255 and a message', async () => {
  const result = await alice.exec(bob, ['sleep', '60'], ['--timeout', '1'])
  assert.equal(result.status, 255)
  assert.match(result.stderr, /stopped \(duration_cap_hit\): --timeout .*SIGTERM/)
})

test('output arrives while the command prints it, and Ctrl-C ends the remote process', async () => {
  const running = alice.startCli(['exec', 'bob', '--', ticker])
  await running.printed('tick 3')
  const pid = Number((await bob.journal()).findLast((line) => line.event === 'started')?.['pid'])
  assert.ok(isRunning(pid))
  running.child.kill('SIGINT')
  const result = await running.finished
  assert.equal(result.status, 128 + 15)
  assert.match(result.stderr, /^x0x: cancelled: .*SIGTERM\n$/)
  assert.equal(isRunning(pid), false)
  const exit = (await bob.journal()).findLast((line) => line.event === 'exit')
  assert.equal(exit?.['signal'], 15)
})

test('a cancelled command that ends by itself keeps its own exit status', async () => {
  const running = alice.startCli(['exec', 'bob', '--', trapper])
  await running.printed('ready')
  running.child.kill('SIGTERM')
  assert.equal((await running.finished).status, 7)
})

test('a second Ctrl-C ends x0x without waiting', async () => {
  const running = alice.startCli(['exec', 'bob', '--', stubborn])
  await running.printed('ready')
  running.child.kill('SIGINT')
  const request = lastRequest(await bob.journal())
  await until('bob is told', async () => (await bob.journal()).some((line) => line['kind'] === 'cancelled' && line.request_id === request))
  running.child.kill('SIGINT')
  const result = await running.finished
  assert.equal(result.status, 128 + 2)
  assert.match(result.stderr, /^x0x: stopped waiting; .* up to 5 s\n$/)
  await until('it is killed after its grace', async () => (await bob.diagnostics()).active_sessions === 0)
})

const lastRequest = (journal: readonly { event: string; request_id: string }[]): string | undefined =>
  journal.findLast((line) => line.event === 'request')?.request_id

test('exec sessions lists the running command, and exec cancel ends it from another terminal', async () => {
  const running = alice.startCli(['exec', 'bob', '--', ticker])
  await running.printed('tick 1')
  const { sessions } = await alice.json<{ sessions: { request_id: string; argv: string[] }[] }>('exec', 'sessions')
  assert.deepEqual(
    sessions.map(({ argv }) => argv),
    [[ticker]],
  )
  const id = sessions[0]?.request_id ?? ''
  assert.equal((await alice.cli(['exec', '--cancel', id])).status, 0)
  assert.equal((await running.finished).status, 128 + 15)
  const again = await alice.cli(['exec', 'cancel', id])
  assert.equal(again.status, 1)
  assert.match(
    again.stderr,
    /^x0x: no active run or fan-out has that ID, neither of this agent nor of another one on this machine\n {5}See: x0x --data-dir \S+ exec sessions/,
  )
})

test('--json prints one object in the format of the API and keeps the exit status', async () => {
  const result = await alice.exec(bob, [exiter, '9'], ['--json'])
  assert.equal(result.status, 9)
  const json = JSON.parse(result.stdout.toString()) as Record<string, unknown>
  assert.equal(json['ok'], true)
  assert.equal(json['code'], 9)
  assert.equal(json['agent_id'], bob.agentId)
  assert.equal(json['machine_id'], bob.machineId)
  assert.equal(Buffer.from(String(json['stdout_b64']), 'base64').toString(), 'to-stdout\n')
  assert.equal(Buffer.from(String(json['stderr_b64']), 'base64').toString(), 'to-stderr\n')
  const denial = await alice.exec(bob, ['id'], ['--json'])
  assert.equal(denial.status, 255)
  assert.equal((JSON.parse(denial.stdout.toString()) as Record<string, unknown>)['denial_reason'], 'argv_not_allowed')
})

test('diagnostics count the requests since the start, and the audit log verifies', async () => {
  await bob.writeAcl(
    [
      {
        agent: alice,
        commands: [
          ['echo', '<INT>'],
          [chatter, '<INT>', '<INT>'],
        ],
      },
    ],
    'max_stdout_bytes = 1000\nmax_stderr_bytes = 1000\nwarn_stdout_bytes = 500\nwarn_stderr_bytes = 500\n',
  )
  await bob.restart()
  await alice.exec(bob, ['echo', '1'])
  await alice.exec(bob, ['echo', 'x'])
  await alice.exec(bob, ['echo', '1', '|'])
  await charlie.exec(bob, ['echo', '1'])
  const { totals, enabled, acl_summary } = await bob.json<ExecDiagnosticsJson>('diagnostics', 'exec')
  assert.equal(enabled, true)
  assert.equal(totals['requests_received'], 4)
  assert.equal(totals['requests_allowed'], 1)
  assert.equal(totals['requests_denied'], 3)
  assert.deepEqual(totals.denial_breakdown, { argv_not_allowed: 1, shell_metachar_in_argv: 1, agent_machine_not_in_acl: 1 })
  assert.equal(acl_summary['loaded_from'], bob.aclFile)
  assert.equal(acl_summary['allow_entry_count'], 1)
  assert.equal(acl_summary['command_entry_count'], 2)
  const text = JSON.stringify(await bob.diagnostics())
  assert.ok(!text.includes('echo'), 'no content of the ACL')
  const verify = await bob.cli(['audit', 'verify'])
  assert.equal(verify.status, 0, verify.stdout.toString())
})

test('output above the limit is cut, and the requester and the target both report it', async () => {
  const run = async (...argv: readonly string[]) => {
    const { status, stdout, stderr } = await alice.exec(bob, [chatter, ...argv], ['--json'])
    assert.equal(status, 3, stderr)
    return JSON.parse(stdout.toString()) as { stdout_b64: string; stdout_bytes_total: number; truncated: boolean; warnings: string[] }
  }
  const { stdout_b64, ...cut } = await run('1001', '1')
  assert.equal(Buffer.from(stdout_b64, 'base64').length, 1000)
  assert.deepEqual([cut.truncated, cut.stdout_bytes_total, cut.warnings], [true, 1001, ['stdout_approaching_cap', 'stdout_cap_hit']])
  const { totals } = await bob.diagnostics()
  assert.deepEqual([totals.cap_breaches['stdout'], totals.cap_warnings['stdout_approaching']], [1, 1])
  const whole = await run('1000', '1000')
  assert.deepEqual([whole.truncated, whole.warnings.toSorted()], [false, ['stderr_approaching_cap', 'stdout_approaching_cap']])
})

test('an agent can be named by its ID or a prefix of it', async () => {
  assert.equal((await alice.exec(bob.agentId, ['echo', '1'])).status, 0)
  assert.equal((await alice.exec(bob.agentId.slice(0, 8), ['echo', '1'])).status, 0)
  const short = await alice.exec(bob.agentId.slice(0, 5), ['echo', '1'])
  assert.equal(short.status, 255)
  assert.match(short.stderr, /no contact or agent matches .*\. An ID prefix needs at least 6 characters/)
})

test('a request to the own agent passes the same checks and needs no network', async () => {
  assert.equal(denialOf(await bob.exec(bob.agentId, ['echo', '1'])), 'agent_machine_not_in_acl')
  await bob.writeAcl([
    { agent: bob, commands: [['echo', '<INT>']] },
    { agent: alice, commands: [['echo', '<INT>'], ['sleep', '<INT>'], [ticker]] },
  ])
  await bob.restart()
  assert.equal((await bob.exec(bob.agentId, ['echo', '5'])).stdout.toString(), '5\n')
  assert.equal(denialOf(await bob.exec(bob.agentId, ['echo', 'x'])), 'argv_not_allowed')
})

test('alice hears of charlie from bob and can reach him', async () => {
  interface Peers {
    peers: { agent_id: string }[]
  }
  await until('alice hears of charlie', async () =>
    (await alice.json<Peers>('peers')).peers.some((peer) => peer.agent_id === charlie.agentId),
  )
  assert.equal(denialOf(await alice.exec(charlie.agentId.slice(0, 12), ['echo', '1'])), 'trust_rejected')
})

test('a stopped peer is unreachable, and the error names the addresses that were tried', async () => {
  await charlie.stop()
  const result = await bob.exec(charlie, ['echo', '1'])
  assert.equal(result.status, 255)
  assert.match(result.stderr, /cannot connect to \S+ \(peer_unreachable\)\n +127\.0\.0\.1:\d+: connection refused\n/)
  await charlie.start()
  await until('charlie is back', async () => (await bob.exec(charlie, ['echo', '1'])).stderr.includes('trust_rejected'))
})

test('blocking an agent ends its running command within 2 s', async () => {
  const running = alice.startCli(['exec', 'bob', '--', ticker])
  await running.printed('tick 1')
  await bob.ok('contacts', 'trust', 'alice', 'blocked')
  // Measures from the time when the change is in force, without the start of the command line.
  const began = performance.now()
  const result = await running.finished
  assert.ok(performance.now() - began < patient(2000))
  assert.equal(result.status, 255)
  await until('the slot is free', async () => (await bob.diagnostics()).active_sessions === 0)
  assert.equal((await alice.exec(bob, ['sleep', '1'])).status, 255)
  await bob.ok('contacts', 'trust', 'alice', 'trusted')
  await until('alice may ask again', async () => (await alice.exec(bob, ['sleep', '1'])).status === 0)
})
