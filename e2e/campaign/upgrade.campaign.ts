import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, suite, test } from 'node:test'

import { verifyJournal } from '../../src/audit/verify.ts'
import { NETWORK_RIGHTS } from '../../src/supervision/network-process.ts'
import {
  DIST,
  isRunning,
  MeshOfDaemons,
  startCli,
  until,
  type AclEntry,
  type RunningCli,
  type TestDaemon,
} from '../../test/support/mesh-of-daemons.ts'
import { buildPreviousRelease, noPreviousRelease, start, type PreviousRelease, type Started } from '../../test/support/previous-release.ts'
import { tempDir } from '../../test/support/temp-dir.ts'

// This release and the one before, beside each other and one after the other: docs/upgrade.md.

const skip = noPreviousRelease()
const STDIN = Buffer.alloc(3 * 1024 * 1024, 'upgrade ')
/** As a collector of traces says that a run belongs to one which is sampled. */
const TRACED = { TRACEPARENT: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' }
const FILES = ['--allow-fs-read=*', '--allow-fs-write=*']
const COMMANDS = [['echo', '<INT>'], ['cat'], ['false'], ['sleep', '60']] as const
/** What the previous one does not know. */
const LATER_SETTING = 'otlp = "http://127.0.0.1:9/v1/traces"\n'
/** What a data directory has still, byte for byte, when another release has been in it. */
const KEPT = [
  'agent.key',
  'machine.key',
  'operator.key',
  'contacts.json',
  'exec-approvals.json',
  'revocations.json',
  'api-token',
  'config.toml',
  'exec-acl.toml',
]

let previous: PreviousRelease
let mesh: MeshOfDaemons
/** Of this release, of the one before, and one that asks where others must approve. */
let now: TestDaemon
let then: TestDaemon
let third: TestDaemon

const entriesOf = (asker: TestDaemon): AclEntry[] => [
  { agent: asker, commands: COMMANDS, keys: 'discoverable = true\n' },
  { agent: asker, commands: [['echo', 'asked']], description: 'asked', keys: 'ask = "always"\n' },
  {
    agent: third,
    commands: [['echo', 'approved']],
    keys: `approvers = [{ agent_id = "${asker.agentId}" }]\napprovals_needed = 1\n`,
  },
]

const begin = async (): Promise<void> => {
  previous = await buildPreviousRelease()
  mesh = await MeshOfDaemons.create('x0x-upgrade-')
  ;[now, then, third] = [mesh.add('now'), mesh.add('then'), mesh.add('third')]
  then.release = previous.dist
  await Promise.all([now.start(), then.start(), third.start()])
  await now.writeAcl(entriesOf(then), 'max_stdin_bytes = 4194304')
  await then.writeAcl(entriesOf(now), 'max_stdin_bytes = 4194304')
  await writeFile(join(now.dir, 'config.toml'), LATER_SETTING, { mode: 0o600 })
  await Promise.all([now.restart(), then.restart()])
  for (const daemon of [now, then]) await daemon.ok('approvals', 'allowlist', 'add', 'reviewer', '/usr/bin/df')
  for (const [one, other] of [
    [now, then],
    [then, now],
    [now, third],
    [then, third],
    [third, now],
    [third, then],
  ] as const)
    await one.meet(other, 'trusted')
}

const kept = async ({ dir }: TestDaemon): Promise<Record<string, string>> => {
  const there = (await readdir(dir)).filter((name) => KEPT.includes(name))
  return Object.fromEntries(await Promise.all(there.map(async (name) => [name, await readFile(join(dir, name), 'latin1')] as const)))
}

/** What its journals say holds, by the verifier of this release and by that of the daemon's own. */
const assertWhole = async (daemon: TestDaemon): Promise<void> => {
  for (const file of [daemon.journalFile, join(daemon.dir, 'requests.jsonl'), join(daemon.dir, 'approvals.jsonl')]) {
    const { ok, lines, problems } = await verifyJournal([file])
    assert.deepEqual([ok, problems], [true, []], file)
    assert.ok(lines > 0, file)
    await daemon.ok('audit', 'verify', file)
  }
}

/** Somebody at this daemon allows what `ask` asks for, by the command line of its own release. */
const allowed = async (host: TestDaemon, ask: () => RunningCli): Promise<void> => {
  const window = host.startCli(['approvals', 'watch'])
  const shown = window.printed('q_')
  // Before somebody watches, it is denied at once.
  const running = await until('it waits', async () => {
    const one = ask()
    return (await Promise.race([shown, one.finished])) === undefined && one
  })
  const [id = ''] = /q_[\w-]+/.exec(await host.ok('approvals', 'pending')) ?? []
  await host.ok('approvals', 'approve', id)
  const { status, stdout, stderr } = await running.finished
  window.child.kill('SIGINT')
  await window.finished
  assert.equal(status, 0, stderr)
  assert.match(stdout.toString(), /^(asked|approved)\n$/)
}

/** The program of the last run that started there, once that is `sleep`. */
const sleeperAt = async (host: TestDaemon): Promise<number> =>
  until('it sleeps', async () => {
    const lines = await host.journal()
    const start = lines.findLast(({ event }) => event === 'started')
    const asked = lines.find(({ event, request_id }) => event === 'request' && request_id === start?.request_id)
    return JSON.stringify(asked?.['argv']) === '["sleep","60"]' && Number(start?.['pid'])
  })

suite(`this release and the previous one${skip === false ? '' : ` (${skip})`}`, { skip: skip !== false }, () => {
  before(begin)
  after(async () => {
    await mesh?.stop()
    await previous?.remove()
  })

  for (const [title, ends] of [
    ['this one asks', () => [now, then]],
    ['the previous one asks', () => [then, now]],
  ] as const) {
    test(`${title}: output, stdin, exit status, a denial, a cancel`, async () => {
      const [asker, host] = ends() as [TestDaemon, TestDaemon]
      const said = await asker.exec(host, ['echo', '42'], [], { env: TRACED })
      assert.deepEqual([said.status, said.stdout.toString()], [0, '42\n'], said.stderr)
      const through = await asker.exec(host, ['cat'], ['--stdin-file', '-'], { stdin: STDIN })
      assert.equal(through.status, 0, through.stderr)
      assert.ok(through.stdout.equals(STDIN))
      assert.equal((await asker.exec(host, ['false'])).status, 1)
      assert.match((await asker.exec(host, ['id'])).stderr, /argv_not_allowed/)

      const sleeping = asker.startCli(['exec', host.name, '--', 'sleep', '60'])
      const pid = await sleeperAt(host)
      sleeping.child.kill('SIGINT')
      assert.equal((await sleeping.finished).status, 143)
      await until('it is gone', () => !isRunning(pid))
    })

    test(`${title} for what a human there must allow`, async () => {
      const [asker, host] = ends() as [TestDaemon, TestDaemon]
      await allowed(host, () => asker.startCli(['exec', host.name, '--', 'echo', 'asked']))
    })

    test(`${title}: rules and messages`, async () => {
      const [asker, host] = ends() as [TestDaemon, TestDaemon]
      assert.match(await asker.ok('acl', 'mine', host.name), /sleep 60/)
      const sent = await asker.cli(['direct', 'send', host.name, 'hello'])
      assert.match(sent.stderr, /nobody listens there now/, 'it was answered')
    })
  }

  test('the command line of each asks the daemon of the other', async () => {
    for (const [daemon, release, other] of [
      [then, null, now],
      [now, previous.dist, then],
    ] as const) {
      for (const argv of [
        ['id'],
        ['card'],
        ['peers'],
        ['contacts', 'list'],
        ['diagnostics', 'exec'],
        ['exec', 'sessions'],
        ['exec', other.name, '--', 'echo', '7'],
        ['acl', 'diff', daemon.aclFile],
      ]) {
        const { status, stderr } = await daemon.cli(argv, { release, env: TRACED })
        assert.equal(status, 0, `${daemon.name}: ${argv.join(' ')}: ${stderr}`)
      }
      assert.match((await daemon.cli(['approvals', 'list'], { release })).stderr, /the desk sent what is none of its lines: .*version/)
    }
  })

  test('each release says of which version it is, and which the other is', async () => {
    const [command, daemon = ''] = (await then.cli(['version'], { release: null })).stdout.toString().split('\n')
    const [, ours] = /^x0x (\d+\.\d+\.\d+) /.exec(command ?? '') ?? []
    const [, theirs] = /^x0xd (\d+\.\d+\.\d+): another version than this command;/.exec(daemon) ?? []
    assert.ok(ours !== undefined && theirs !== undefined && ours !== theirs, `${command}, ${daemon}`)
    // A version before the command.
    assert.equal((await now.cli(['--version'], { release: previous.dist })).stdout.toString().trim(), theirs)
  })

  test('what the previous one does not know is refused by name, and nothing else is', async () => {
    assert.match((await now.cli(['ping', 'then', '--count', '1'])).stderr, /the x0xd of the agent is of a version before pings/)
    assert.match(await now.ok('doctor', 'then', '--', 'echo', '1'), /warn +ping .*\n.*update x0xd there; commands run all the same/)
    for (const [argv, route] of [
      [['trust', 'evaluate', now.agentId, now.machineId], 'GET /trust/evaluate'],
      [['exec', 'sessions', '--incoming'], 'POST /exec/incoming'],
    ] as const)
      assert.match((await then.cli(argv, { release: null })).stderr, new RegExp(`this daemon has no ${route}: it is of another release`))
  })

  test('a data directory is taken over in place, and handed back', async () => {
    await now.stop()
    const newer = await kept(now)
    now.release = previous.dist
    await assert.rejects(now.start(), /config\.toml:1: otlp: unknown key/)
    assert.deepEqual(await kept(now), newer, 'refused, and nothing is lost')
    await writeFile(join(now.dir, 'config.toml'), '')
    const [ofThen, ofNow] = [await kept(then), await kept(now)]
    const ids = [then.agentId, then.machineId, now.agentId, now.machineId]
    // Each way twice: what was upgraded goes back, and what went back is upgraded.
    for (const [releaseOfThen, releaseOfNow] of [
      [null, previous.dist],
      [previous.dist, null],
    ] as const) {
      await Promise.all([then.stop(), now.stop()])
      ;[then.release, now.release] = [releaseOfThen, releaseOfNow]
      await Promise.all([then.start(), now.start()])
      assert.deepEqual([then.agentId, then.machineId, now.agentId, now.machineId], ids)
      assert.equal((await now.exec(then, ['echo', '1'])).stdout.toString(), '1\n')
      assert.equal((await then.exec(now, ['echo', '2'])).stdout.toString(), '2\n')
      await Promise.all([assertWhole(then), assertWhole(now)])
      assert.deepEqual([await kept(then), await kept(now)], [ofThen, ofNow])
    }
  })

  for (const [title, releases, says] of [
    [
      'the executor is upgraded first',
      () => [DIST, previous.dist],
      /the network half speaks version \d+ of the port, and this executor version \d+: both halves must be of one release/,
    ],
    [
      'the network half is upgraded first',
      () => [previous.dist, DIST],
      /this executor speaks version \d+ of the port: both halves must be of one release/,
    ],
  ] as const)
    test(`halves under two units: ${title}, says what is wrong, and serves when the other is of its release`, async (t) => {
      const [executorOf, networkOf] = releases() as [string, string]
      const root = await tempDir(t)
      const [dir, socket] = [join(root, 'data'), join(root, 'executor.sock')]
      await mkdir(dir, { mode: 0o700 })
      await writeFile(join(dir, 'config.toml'), 'mdns = false\napi_port = 0\nlisten = ["/ip4/127.0.0.1/tcp/0"]\n', { mode: 0o600 })
      const executor = start(t, [join(executorOf, 'x0xd.mjs'), '--data-dir', dir, '--executor-socket', socket])
      await until('the executor is ready', () => executor.said().includes(' ready: '))
      const half = (dist: string): Started =>
        start(t, [...NETWORK_RIGHTS, ...FILES, join(dist, 'x0xd-network.mjs'), '--executor', socket, '--api-socket', join(dir, 'api.sock')])
      const wrong = half(networkOf)
      // Not 2 nor 75, with which its unit would leave it.
      assert.deepEqual(await wrong.ended, [1, null])
      await until('it is said', () => says.test(`${wrong.said()}${executor.said()}`))
      assert.equal(existsSync(join(dir, 'api.sock')), false)
      half(executorOf)
      await until('the API answers', async () => (await startCli(['--data-dir', dir, 'id']).finished).status === 0)
      executor.child.kill('SIGTERM')
      assert.deepEqual(await executor.ended, [0, null])
    })

  for (const [title, releases] of [
    ['a client of this release asks a rexd of the previous one', () => [DIST, previous.dist]],
    ['a client of the previous release asks a rexd of this one', () => [previous.dist, DIST]],
  ] as const)
    test(title, async (t) => {
      const [clientOf, serverOf] = releases() as [string, string]
      const dir = await tempDir(t)
      const [config, socket, token] = [join(dir, 'rexd.toml'), join(dir, 'run', 'rexd.sock'), join(dir, 'secret', 'token')]
      await mkdir(join(dir, 'root'))
      const text = [
        `[server]\nhttp_listen = ${JSON.stringify(`unix:${socket}`)}\ntoken_file = ${JSON.stringify(token)}`,
        `[[security.allowed_roots]]\npath = ${JSON.stringify(join(dir, 'root'))}`,
        `[audit]\npath = ${JSON.stringify(join(dir, 'log', 'audit.log'))}\n`,
      ]
      await writeFile(config, text.join('\n'), { mode: 0o600 })
      const server = start(t, [join(serverOf, 'rexd.mjs'), '--http', '--config', config])
      await until('it listens', () => server.child.exitCode !== null || existsSync(socket))
      const client = start(t, [join(clientOf, 'rexd.mjs'), 'exec', '--url', `unix:${socket}`, '--token-file', token, '--', 'echo', 'hello'])
      assert.deepEqual(await client.ended, [0, null], `${client.said()}${server.said()}`)
      await until('its output', () => client.said().includes('hello\n'))
    })
})
