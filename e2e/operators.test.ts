import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import type { Pinged } from '../src/protocol/api-answers.ts'
import { lifecycleProblem, type LifecycleEvent } from '../src/protocol/events/lifecycle.ts'
import {
  aliceBobCharlie,
  cleanEnvironment,
  MeshOfDaemons,
  startCli,
  until,
  type ExecDiagnosticsJson,
  type TestDaemon,
} from '../test/support/mesh-of-daemons.ts'

// Commands with which an operator inspects and stops things. Alice may run commands on bob, and charlie may not.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let charlie: TestDaemon
let waits = ''

before(async () => {
  mesh = await MeshOfDaemons.create()
  waits = await mesh.program('waits', 'echo ready; exec sleep 1000')
  ;({ alice, bob, charlie } = await aliceBobCharlie(mesh, [[waits], ['echo', '<INT>']]))
  await bob.writeAcl([
    { agent: alice, commands: [[waits], ['echo', '<INT>'], ['echo', 'marked-allowed-7f3a']], keys: 'discoverable = true\n' },
  ])
  // A directory name that no bundle may contain.
  const cwd = join(mesh.root, 'marked-directory-4d6f')
  await mkdir(cwd)
  await writeFile(bob.aclFile, (await readFile(bob.aclFile, 'utf8')).replace('default_cwd = "/"', `default_cwd = ${JSON.stringify(cwd)}`))
  await bob.restart()
})

after(async () => mesh.stop())

interface Incoming {
  readonly sessions: readonly { readonly request_id: string; readonly name: string; readonly argv: readonly string[] }[]
}

test('an operator lists and ends runs of other agents by ID, and the requester learns who ended its run', async () => {
  assert.match(await bob.ok('exec', 'sessions', '--incoming'), /^no runs of other agents on this machine\n$/)
  const run = alice.startCli(['exec', 'bob', '--', waits])
  await run.printed('ready')
  const { sessions } = await bob.json<Incoming>('exec', 'sessions', '--incoming')
  assert.deepEqual(
    sessions.map(({ name, argv }) => [name, argv]),
    [['alice', [waits]]],
  )
  const id = sessions[0]!.request_id
  assert.match(
    await bob.ok('exec', 'sessions', '--incoming'),
    new RegExp(`^REQUEST .*\\n${id} +alice +running +\\S+ +${waits}\\nTo stop one: `),
  )
  const key = join(bob.dir, 'operator.key')
  await rename(key, `${key}.away`)
  const unproven = await bob.cli(['exec', 'cancel', id])
  await rename(`${key}.away`, key)
  assert.equal(unproven.status, 1)
  assert.match(
    unproven.stderr,
    /no active run of this agent has that ID[^]*only an operator can look for runs of other agents: .*operator\.key is missing/,
  )
  assert.equal(await bob.ok('exec', 'cancel', id), `stopping: ${waits}, for alice\n`)
  const { status, stderr } = await run.finished
  assert.equal(status, 255)
  assert.match(stderr, /^x0x: stopped \(ended_by_operator\): an operator of the target stopped the command; .*\(SIGTERM\)\n$/)
  const gone = await bob.cli(['exec', 'cancel', id])
  assert.equal(gone.status, 1)
  assert.match(gone.stderr, /^x0x: no active run or fan-out has that ID/)
  assert.match(await bob.ok('audit', 'tail'), /authority .*exec_incoming_cancel/)
})

test('trust evaluate shows the decision, its reason and how to change it, and its exit status tells the decision', async () => {
  const evaluate = async (who: TestDaemon, agent: string, machine: string) => {
    const { status, stdout, stderr } = await who.cli(['--json', 'trust', 'evaluate', agent, machine])
    const { decision, cause, in_acl } = JSON.parse(stdout.toString()) as Record<string, unknown>
    return [status, decision, cause, in_acl, stderr]
  }
  assert.deepEqual(await evaluate(bob, 'alice', alice.machineId), [0, 'accept', 'trusted_and_pinned', true, ''])
  assert.deepEqual(await evaluate(bob, 'charlie', charlie.machineId), [0, 'accept', 'trusted_and_pinned', false, ''])
  assert.deepEqual(await evaluate(bob, 'alice', charlie.machineId), [5, 'reject_machine_mismatch', 'pinned_elsewhere', false, ''])
  assert.deepEqual(await evaluate(alice, 'bob', bob.machineId), [3, 'accept_with_flag', 'known', false, ''])
  assert.deepEqual(await evaluate(alice, charlie.agentId, charlie.machineId), [4, 'unknown', 'no_contact', false, ''])
  assert.deepEqual(await evaluate(bob, bob.agentId, bob.machineId), [0, 'accept', 'own_agent', false, ''])
  assert.deepEqual(await evaluate(bob, 'alice', alice.machineId.slice(0, 8)), [0, 'accept', 'trusted_and_pinned', true, ''])
  const shown = await alice.cli(['trust', 'evaluate', 'bob', bob.machineId])
  assert.match(
    shown.stdout.toString(),
    /^accept_with_flag .*trust_rejected.*\nagent +bob \([0-9a-f]{64}\)\nwhy .*\nacl .*\nfix +x0x contacts trust bob trusted\n$/,
  )
})

test('ping shows round trip, path and versions, and a target that does not accept the agent answers nothing', async () => {
  const answer = await alice.json<{ readonly answered: number; readonly last: Pinged }>('ping', 'bob', '-c', '2', '-i', '0.1')
  const { machine_id, decision, path, version, own_version, clock_ahead_ms } = answer.last
  assert.deepEqual([answer.answered, machine_id, decision, version], [2, bob.machineId, 'accept_with_flag', own_version])
  assert.ok(path?.direct === true && path.address.startsWith('/ip4/127.0.0.1/tcp/'), JSON.stringify(path))
  assert.ok(Math.abs(clock_ahead_ms) < 1_000)
  const shown = await alice.ok('ping', 'bob', '-c', '1')
  assert.match(
    shown,
    /^bob: seq=1 time=\S+ ms  \/ip4\/\S+ direct.*\n1 sent, 1 answered; [^\n]*\nmachine [0-9a-f]{64}, trust accept_with_flag; [^\n]*its clock is equal\n$/,
  )
  assert.match(await alice.ok('ping', alice.agentId, '-c', '1'), /this agent/)
  // Charlie has alice as a contact with too little trust, and alice has no contact named charly.
  await alice.meet(charlie, 'known')
  const stranger = await alice.cli(['ping', 'charlie', '-c', '1'])
  assert.equal(stranger.status, 255)
  assert.match(stranger.stdout.toString(), /^charlie: seq=1 peer_rejected\n$/)
  assert.match(stranger.stderr, /does not accept this agent on this machine[^]*Try, on the target.*: x0x trust evaluate AGENT MACHINE/)
  assert.equal((await charlie.get<{ readonly pings_ignored: number }>('/diagnostics/dm')).pings_ignored, 1)
  const unknown = await alice.cli(['ping', 'charly'])
  assert.equal(unknown.status, 255)
  assert.match(unknown.stderr, /Did you mean charlie\?/)
  for (const flags of [
    ['-c', '0'],
    ['-i', '0.01'],
  ])
    assert.equal((await alice.cli(['ping', 'bob', ...flags])).status, 2)
})

interface Findings {
  readonly ok: boolean
  readonly findings: readonly { readonly standing: string; readonly topic: string; readonly text: string; readonly remedy: string | null }[]
}

const examined = async (who: TestDaemon, ...argv: readonly string[]) => {
  const { status, stdout, stderr } = await who.cli(['--json', 'doctor', ...argv])
  assert.ok(stdout.length > 0, stderr)
  const { ok, findings } = JSON.parse(stdout.toString()) as Findings
  for (const { standing, remedy } of findings) assert.ok(standing === 'ok' || remedy !== null)
  return { status, ok, of: (topic: string) => findings.find((finding) => finding.topic === topic), findings }
}

test('doctor examines a contact from both ends, names a fix for each problem, and checks a command against the rules', async () => {
  const good = await examined(alice, 'bob', '--', 'echo', '7')
  assert.deepEqual([good.status, good.ok], [0, true], JSON.stringify(good.findings))
  for (const topic of ['this agent', 'contact', 'addresses', 'link', 'ping', 'versions', 'clock', 'remote trust', 'command'])
    assert.equal(good.of(topic)?.standing, 'ok', topic)
  // Alice only knows bob, so she would deny his requests.
  const { standing, remedy } = good.of('local trust') ?? {}
  assert.deepEqual([standing, remedy], ['warn', 'x0x contacts trust bob trusted'])
  const other = await examined(alice, 'bob', '--', 'date')
  assert.match(`${other.of('command')?.standing} ${other.of('command')?.remedy}`, /^warn Try, on bob: x0x acl explain --last$/)
  assert.equal((await examined(alice, 'bob', '--', 'a;b')).of('command')?.standing, 'fail')
  // Charlie does not trust alice. Later his daemon stops.
  const stranger = await examined(alice, 'charlie')
  assert.equal(stranger.status, 1)
  assert.equal(stranger.of('ping')?.standing, 'fail')
  assert.match(stranger.of('remote trust')?.remedy ?? '', new RegExp(`x0x contacts pin NAME ${alice.machineId}$`))
  await charlie.stop()
  const gone = await examined(alice, 'charlie')
  assert.deepEqual([gone.status, gone.of('link')?.standing], [1, 'fail'])
  assert.match(gone.of('link')?.remedy ?? '', /x0xd --doctor/)
  assert.match((await alice.cli(['doctor', 'charlie'])).stdout.toString(), /\nfail +link +[^\n]*\n +-> on its machine/)
  await charlie.start()
})

const BUNDLE = fileURLToPath(new URL('../dist/x0x-bundle.mjs', import.meta.url))

interface Bundle {
  readonly processes: Readonly<Record<string, { readonly life: string }>>
  readonly findings: readonly { readonly topic: string }[]
  readonly diagnostics: { readonly exec: { readonly totals: { readonly denial_breakdown: Readonly<Record<string, number>> } } }
  readonly journal: readonly { readonly reason?: string }[]
  readonly log: readonly { readonly msg: string; readonly argv: string }[]
}

/** All spellings of the secrets in a file: hexadecimal, base64 and base64url. */
const formsOf = async (file: string): Promise<string[]> => {
  const text = await readFile(file, 'latin1').catch(() => '')
  return (text.match(/[0-9a-f]{32,}/g) ?? []).flatMap((hex) => {
    const bytes = Buffer.from(hex, 'hex')
    return [hex, bytes.toString('base64').replace(/=+$/, ''), bytes.toString('base64url')]
  })
}

test('a support bundle has diagnostics, but no key, token, ID, name, address, path or command of this test', async () => {
  await alice.exec('bob', ['echo', 'marked-allowed-7f3a'])
  await alice.exec('bob', ['cat', 'marked-denied-9c1d'])
  const log = join(mesh.root, 'some.log')
  const line = {
    level: 'warn',
    time: '2026-05-21T09:42:18.011Z',
    name: 'x0xd',
    agent: alice.agentId.slice(0, 8),
    path: bob.dir,
    argv: ['marked-logged-5e2b'],
  }
  await writeFile(
    log,
    `${JSON.stringify({ ...line, msg: 'a request was denied', err: `alice may not marked-denied-9c1d in ${bob.dir}` })}\nmarked-foreign-line\n`,
  )
  await bob.ok('contacts', 'label', 'alice', 'marked-key=marked-value')
  // Groups with an error, so that the findings mention them.
  await writeFile(join(bob.dir, 'groups.toml'), '[groups]\nmarked-group = ["marked-key=marked-value", "!@marked-missing"]\n', {
    mode: 0o600,
  })
  const file = join(mesh.root, 'bundle.json')
  const bundle = (...argv: readonly string[]) =>
    spawnSync(process.execPath, [BUNDLE, ...argv], { encoding: 'utf8', env: cleanEnvironment(), cwd: mesh.root })
  const made = bundle('--data-dir', bob.dir, '--exec-acl', bob.aclFile, '--log', log, '--json', file)
  assert.equal(made.status, 0, made.stderr)
  const text = await readFile(file, 'utf8')
  assert.deepEqual(JSON.parse(made.stdout), { ok: true, file, bytes: Buffer.byteLength(text) })
  assert.equal((await stat(file)).mode & 0o777, 0o600)

  const keys = ['agent.key', 'machine.key', 'operator.key', 'api-token'].map(async (name) => formsOf(join(bob.dir, name)))
  const secrets = (await Promise.all(keys)).flat()
  assert.ok(secrets.length >= 12)
  const lines = await bob.journal()
  const ids = [alice, bob, charlie].flatMap(({ agentId, machineId }) => [agentId, machineId, agentId.slice(0, 8), machineId.slice(0, 8)])
  const ofRuns = lines.flatMap(({ request_id }) => (request_id === undefined ? [] : [request_id]))
  const words = [
    waits,
    mesh.root,
    bob.dir,
    'marked-',
    '"alice"',
    'alice',
    'charlie',
    '127.0.0.1',
    (await bob.peerSuffix()).slice('/p2p/'.length),
  ]
  assert.ok(ofRuns.length > 2)
  for (const forbidden of [...secrets, ...ids, ...ofRuns, ...words]) assert.ok(!text.includes(forbidden), `it has ${forbidden}`)

  const told = JSON.parse(text) as Bundle
  assert.deepEqual([told.processes['daemon']?.life, told.processes['network']?.life], ['alive', 'alive'])
  const topics = told.findings.map(({ topic }) => topic)
  for (const topic of ['runtime', 'daemon', 'ACL', 'groups', 'audit log', 'contacts']) assert.ok(topics.includes(topic), topic)
  assert.equal(told.diagnostics.exec.totals.denial_breakdown.argv_not_allowed, 1)
  assert.ok(told.journal.some(({ reason }) => reason === 'argv_not_allowed'))
  assert.match(told.log[0]?.msg ?? '', /^a request was denied$/)
  assert.deepEqual([told.log.length, told.log[0]?.argv], [2, '… of 1'])

  const again = bundle('--data-dir', bob.dir, file)
  assert.deepEqual([again.status, again.stderr], [1, `x0x bundle: ${file} exists already; choose another file\n`])
  assert.equal(await readFile(file, 'utf8'), text)
})

interface Answer {
  readonly events: readonly (LifecycleEvent & { readonly text: string })[]
  readonly next: string
}

const eventsOf = async (daemon: TestDaemon, since = ''): Promise<Answer> => {
  const answer = await daemon.get<Answer>(`/exec/events${since === '' ? '' : `?since=${since}`}`)
  for (const { text: _text, ...event } of answer.events) assert.equal(lifecycleProblem(event), null)
  return answer
}

/** Sentences after a position, without the IDs of runs. */
const told = async (daemon: TestDaemon, since: string): Promise<string[]> =>
  (await eventsOf(daemon, since)).events.map(({ text, run_id }) => text.replace(run_id, 'ID'))

test('O14: the requester, and only the requester, can read later what became of its runs on other agents', async () => {
  const { next } = await eventsOf(alice)
  const [atBob] = [await eventsOf(bob)]
  assert.equal(await alice.run(bob, ['echo', '42']), 0)
  await alice.exec(bob, ['rm', '-rf', 'x'])
  const node = bob.agentId
  assert.deepEqual(await told(alice, next), [
    `Exec started (node=${node}, id=ID)`,
    `Exec finished (node=${node}, id=ID, code=0)`,
    `Exec denied (node=${node}, id=ID, argv_not_allowed)`,
  ])
  assert.equal((await eventsOf(alice, next)).events[1]?.tail, '42\n')
  assert.deepEqual(await told(bob, atBob.next), [], 'bob asked for nothing')
})

test('the end of a run whose client is gone appears in the events', async () => {
  const { next } = await eventsOf(alice)
  const caller = startCli([...alice.selector, 'exec', 'bob', '--', waits])
  await until('it runs', async () => (await told(alice, next)).length === 1)
  caller.child.kill('SIGKILL')
  await caller.finished
  await until('it has ended', async () => (await told(alice, next)).length === 2)
  assert.match((await told(alice, next))[1] ?? '', /^Exec finished \(.*, code=null signal=15\)$/)
})

interface Told {
  readonly ok: boolean
  readonly request_id: string
  readonly denial_reason: string | null
  readonly rules: readonly { readonly argv: readonly string[]; readonly description: string | null }[]
  readonly left_out: number
}

test('acl mine shows the rules that the target lists, as text and as JSON, and these commands run', async () => {
  await rm(join(bob.dir, 'groups.toml'))
  await bob.writeAcl(
    [
      {
        agent: alice,
        commands: [
          ['echo', '<INT>'],
          ['printf', 'n%s', '<URL_PATH>'],
        ],
        description: 'Echoes a number.',
        keys: 'discoverable = true\nmax_duration_secs = 7\ndetach = true\nmax_detach_secs = 60\n',
      },
      { agent: alice, commands: [['hostname']], description: 'not told of' },
    ],
    'max_stdin_bytes = 0\n',
  )
  await bob.restart()
  const shown = await alice.ok('acl', 'mine', 'bob')
  assert.deepEqual(shown.split('\n').slice(0, 3), [
    'COMMAND                TIME  STDOUT  STDERR  STDIN  DETACH       TERMINAL  DESCRIPTION (by its operator)',
    'echo <INT>             7 s   16 MiB  16 MiB  none   60 s, 8 MiB  no        Echoes a number.',
    'printf n%s <URL_PATH>  7 s   16 MiB  16 MiB  none   60 s, 8 MiB  no        Echoes a number.',
  ])
  assert.match(shown, /^<INT>: 1 to 999999/m)
  assert.match(shown, /^Try: x0x --data-dir \S+ exec bob -- COMMAND$/m)
  assert.doesNotMatch(shown, /hostname|not told/)
  const answer = JSON.parse(await alice.ok('acl', 'mine', bob.agentId.slice(0, 12), '--json')) as Told
  assert.deepEqual(
    [answer.ok, answer.left_out, answer.rules.map(({ argv }) => argv)],
    [
      true,
      0,
      [
        ['echo', '<INT>'],
        ['printf', 'n%s', '<URL_PATH>'],
      ],
    ],
  )
  assert.equal((await alice.ok('exec', 'bob', '--', 'echo', '414')).trim(), '414')
  // Commands that are allowed but not discoverable run too.
  await alice.ok('exec', 'bob', '--', 'hostname')
  const line = (await bob.journal()).find(({ request_id }) => request_id === answer.request_id)
  assert.deepEqual([line?.event, line?.['listed'], line?.['agent_id']], ['rules', 2, alice.agentId])
  const { totals } = JSON.parse(await bob.ok('diagnostics', 'exec', '--json')) as ExecDiagnosticsJson & { totals: Record<string, number> }
  assert.equal(totals['rules_answered'], 2)
  assert.match(await alice.ok('audit', 'tail', '--outgoing', '--json'), /"rules_asked"/)
})

test('a trusted agent without an ACL entry gets no rules, but the lines to send to the operator', async () => {
  const shown = await charlie.ok('acl', 'mine', 'bob')
  assert.match(shown, /^bob does not list the commands that this agent may run from this machine\n/)
  assert.ok(shown.includes(`agent_id = "${charlie.agentId}"`) && shown.includes(`machine_id = "${charlie.machineId}"`), shown)
  const { ok, rules, left_out } = JSON.parse(await charlie.ok('acl', 'mine', 'bob', '--json')) as Told
  assert.deepEqual({ ok, rules, left_out }, { ok: true, rules: [], left_out: 0 })
})
