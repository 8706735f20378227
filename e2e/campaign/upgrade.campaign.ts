import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, suite, test } from 'node:test'

import { verifyJournal } from '../../src/journal/verify.ts'
import { NETWORK_RIGHTS } from '../../src/supervision/network-supervisor.ts'
import { DIST, MeshOfDaemons, startCli, until, type AclEntry, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { buildPreviousRelease, noPreviousRelease, start, type PreviousRelease, type Started } from '../../test/support/previous-release.ts'
import { tempDir } from '../../test/support/temp-dir.ts'

// This release and the previous one, at the same time and one after the other (docs/upgrade.md). deploy/previous-release names the commit
// of the last release. Each release writes its own commit to it and a new version to package.json, because `x0x version` cannot tell two
// releases of one version apart. The changelog has each version change.

const skip = noPreviousRelease()
/** Trace context as a client of a trace collector sends it for a sampled trace. */
const TRACED = { TRACEPARENT: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' }
const FILES = ['--allow-fs-read=*', '--allow-fs-write=*']
const COMMANDS = [['echo', '<INT>'], ['cat'], ['false'], ['sleep', '60']] as const
/** A setting that the previous release does not know. */
const LATER_SETTING = 'otlp = "http://127.0.0.1:9/v1/traces"\n'
/** Files of a data directory that another release must leave unchanged byte for byte. */
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
/** Daemons of this release and of the previous one. */
let now: TestDaemon
let then: TestDaemon

/** ACL entries that allow the commands to the other daemon and to the daemon itself. */
const entriesOf = (self: TestDaemon, other: TestDaemon): AclEntry[] =>
  [self, other].map((agent) => ({ agent, commands: COMMANDS, keys: 'discoverable = true\n' }))

const begin = async (): Promise<void> => {
  previous = await buildPreviousRelease()
  mesh = await MeshOfDaemons.create('x0x-upgrade-')
  ;[now, then] = [mesh.add('now'), mesh.add('then')]
  then.release = previous.dist
  await Promise.all([now.start(), then.start()])
  await now.writeAcl(entriesOf(now, then), 'max_stdin_bytes = 4194304')
  await then.writeAcl(entriesOf(then, now), 'max_stdin_bytes = 4194304')
  await writeFile(join(now.dir, 'config.toml'), LATER_SETTING, { mode: 0o600 })
  await Promise.all([now.restart(), then.restart()])
  for (const daemon of [now, then]) await daemon.ok('approvals', 'allowlist', 'add', 'reviewer', '/usr/bin/df')
  for (const [one, other] of [
    [now, then],
    [then, now],
  ] as const)
    await one.meet(other, 'trusted')
}

const kept = async ({ dir }: TestDaemon): Promise<Record<string, string>> => {
  const there = (await readdir(dir)).filter((name) => KEPT.includes(name))
  return Object.fromEntries(await Promise.all(there.map(async (name) => [name, await readFile(join(dir, name), 'latin1')] as const)))
}

/** Checks all journals of a daemon with the verifier of this release and with that of the daemon's release. */
const assertWhole = async (daemon: TestDaemon): Promise<void> => {
  for (const file of [daemon.journalFile, join(daemon.dir, 'requests.jsonl'), join(daemon.dir, 'approvals.jsonl')]) {
    const { ok, lines, problems } = await verifyJournal([file])
    assert.deepEqual([ok, problems], [true, []], file)
    assert.ok(lines > 0, file)
    await daemon.ok('audit', 'verify', file)
  }
}

suite(`this release and the previous one${skip === false ? '' : ` (${skip})`}`, { skip: skip !== false }, () => {
  before(begin)
  after(async () => {
    await mesh?.stop()
    await previous?.remove()
  })

  for (const [title, ends] of [
    ['a requester of this release', () => [now, then]],
    ['a requester of the previous release', () => [then, now]],
  ] as const)
    test(`${title} gets no link to the other release, nothing runs, and an error says why`, async () => {
      const [asker, host] = ends() as [TestDaemon, TestDaemon]
      const { status, stdout, stderr } = await asker.exec(host, ['echo', '42'], [], { env: TRACED })
      assert.deepEqual([status, stdout.toString()], [255, ''])
      if (asker === then) assert.match(stderr, /speaks no version of the link that we speak/)
      else {
        assert.match(stderr, /upgrade|the peer ended it/)
        const terminal = await asker.cli(['exec', '-tt', host.name, '--', 'cat'], { stdin: new Uint8Array(0) })
        assert.equal(terminal.status, 255)
        assert.match(terminal.stderr, /upgrade|the peer ended it/)
      }
      assert.deepEqual(
        (await host.journal()).filter(({ event }) => event === 'started'),
        [],
      )
    })

  test('the command line of each release works with the daemon of the other, or names the release difference', async () => {
    for (const [daemon, release] of [
      [then, null],
      [now, previous.dist],
    ] as const) {
      for (const argv of [
        ['id'],
        ['card'],
        ['diagnostics', 'exec'],
        ['exec', daemon.agentId, '--', 'echo', '7'],
        ['acl', 'diff', daemon.aclFile],
      ]) {
        const { status, stderr } = await daemon.cli(argv, { release, env: TRACED })
        assert.equal(status, 0, `${daemon.name}: ${argv.join(' ')}: ${stderr}`)
      }
      // If the daemon's answer lacks fields, the command line says that the daemon has another release.
      for (const words of [['contacts', 'list'], ['peers'], ['exec', 'sessions']]) {
        const { status, stderr } = await daemon.cli(words, { release, env: TRACED })
        if (release === null) assert.deepEqual([status, /has another release/.test(stderr)], [255, true], stderr)
      }
      // Each release words this error differently.
      const refusal =
        release === null ? /the approval service sent an invalid line: .*version/ : /the desk sent what is none of its lines: version /
      assert.match((await daemon.cli(['approvals', 'list'], { release })).stderr, refusal)
    }
  })

  test('x0x version names the versions of the command and of the daemon, and says that they differ', async () => {
    const said = (await then.cli(['version'], { release: null })).stdout.toString()
    const [, ours] = /^x0x (\d+\.\d+\.\d+) /.exec(said) ?? []
    const [, theirs] = /^x0xd (\d+\.\d+\.\d+): its version differs from that of this command;/m.exec(said) ?? []
    assert.ok(ours !== undefined && theirs !== undefined && ours !== theirs, said)
    // The previous release has no `version` command yet.
    assert.equal((await now.cli(['--version'], { release: previous.dist })).stdout.toString().trim(), theirs)
  })

  test('a route that the previous release does not have is refused by name', async () => {
    for (const [argv, route] of [
      [['trust', 'evaluate', now.agentId, now.machineId], 'GET /trust/evaluate'],
      [['exec', 'sessions', '--incoming'], 'POST /exec/incoming'],
    ] as const)
      assert.match((await then.cli(argv, { release: null })).stderr, new RegExp(`this daemon has no route ${route}: its release differs`))
  })

  test('a data directory works after an upgrade in place and after a downgrade', async () => {
    await now.stop()
    const newer = await kept(now)
    now.release = previous.dist
    await assert.rejects(now.start(), /config\.toml:1: otlp: unknown key/)
    assert.deepEqual(await kept(now), newer, 'refused, and nothing is lost')
    await writeFile(join(now.dir, 'config.toml'), '')
    const [ofThen, ofNow] = [await kept(then), await kept(now)]
    const ids = [then.agentId, then.machineId, now.agentId, now.machineId]
    // Both directions twice: each daemon is upgraded and downgraded.
    for (const [releaseOfThen, releaseOfNow] of [
      [null, previous.dist],
      [previous.dist, null],
    ] as const) {
      await Promise.all([then.stop(), now.stop()])
      ;[then.release, now.release] = [releaseOfThen, releaseOfNow]
      await Promise.all([then.start(), now.start()])
      assert.deepEqual([then.agentId, then.machineId, now.agentId, now.machineId], ids)
      for (const daemon of [then, now]) assert.equal(await daemon.ok('exec', daemon.agentId, '--', 'echo', '1'), '1\n')
      await Promise.all([assertWhole(then), assertWhole(now)])
      assert.deepEqual([await kept(then), await kept(now)], [ofThen, ofNow])
    }
  })

  for (const [title, releases, says] of [
    [
      'the executor process is upgraded first',
      () => [DIST, previous.dist],
      /the network process uses version \d+ of the executor socket, and the executor version \d+: install the same release for both/,
    ],
    [
      'the network process is upgraded first',
      () => [previous.dist, DIST],
      // The wording of the previous release.
      /this executor speaks version \d+ of the port: both halves must be of one release/,
    ],
  ] as const)
    test(`under two units, if ${title}, an error names the mismatch, and the daemon serves once the releases match`, async (t) => {
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
      // Not 2 or 75, because the unit does not restart after these statuses.
      assert.deepEqual(await wrong.ended, [1, null])
      await until('it is said', () => says.test(`${wrong.said()}${executor.said()}`))
      assert.equal(existsSync(join(dir, 'api.sock')), false)
      half(executorOf)
      await until('the API answers', async () => (await startCli(['--data-dir', dir, 'id']).finished).status === 0)
      executor.child.kill('SIGTERM')
      assert.deepEqual(await executor.ended, [0, null])
    })

  for (const [title, releases] of [
    ['a client of this release runs a command through a rexd of the previous release', () => [DIST, previous.dist]],
    ['a client of the previous release runs a command through a rexd of this release', () => [previous.dist, DIST]],
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
