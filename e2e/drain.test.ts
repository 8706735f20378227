import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'

import { openJournal } from '../test/support/journal.ts'
import { type CliResult, MeshOfDaemons, type RunningCli, TestDaemon, runDaemonCommand, until } from '../test/support/mesh-of-daemons.ts'

// A daemon that restarts while others use it. Uses real daemons and the built command line.

/** A daemon that replaces another: same directory, port and identity. */
class Successor extends TestDaemon {
  override get logFile(): string {
    return join(this.dir, 'successor.log')
  }
}

interface Stage {
  readonly mesh: MeshOfDaemons
  readonly alice: TestDaemon
  readonly bob: TestDaemon
  /** Prints `ready`, waits until `open` was called, and exits with 7. */
  readonly gate: string
  readonly sleeper: string
  readonly files: string
  open(): Promise<void>
  /** Creates a successor of bob, which is not started yet. */
  successor(...flags: readonly string[]): Successor
}

const stageOf = async (t: TestContext, { flags = [] }: { readonly flags?: readonly string[] } = {}): Promise<Stage> => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob', { flags })]
  const gate = await mesh.program('gate', `echo ready; while [ ! -e ${mesh.root}/open ]; do sleep 0.05; done; exit 7`)
  const sleeper = await mesh.program('sleeper', 'echo ready; exec sleep 600')
  const files = join(mesh.root, 'files')
  await mkdir(files)
  await alice.start()
  await bob.writeAcl([
    {
      agent: alice,
      commands: [[gate], [sleeper], ['echo', '<INT>'], ['sha256sum']],
      keys: `detach = true\nmax_detach_secs = 600\n[[exec.allow.files]]\nroot = "${files}"\nread = true\nwrite = true\n`,
    },
  ])
  // With a log that is older than each request, bob can say after a restart that a request never began.
  const { journal } = await openJournal(t, mesh.root, bob.journalFile)
  await journal.stop()
  await bob.start()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
  const successor = (...more: readonly string[]): Successor => {
    const one = new Successor('bob', bob.dir, { flags: ['--listen', bob.multiaddr, ...more] })
    mesh.daemons.push(one)
    return one
  }
  const open = async (): Promise<void> => writeFile(join(mesh.root, 'open'), '')
  return { mesh, alice, bob, gate, sleeper, files, open, successor }
}

const says = async (daemon: TestDaemon, text: RegExp | string): Promise<string> =>
  until(`${daemon.name} says ${String(text)}`, async () => {
    const log = await daemon.log().catch(() => '')
    return (typeof text === 'string' ? log.includes(text) : text.test(log)) && log
  })

/** Waits until the daemon has denied requests because it drains. */
const denied = async (daemon: TestDaemon, atLeast = 1): Promise<void> =>
  void (await until('a request is denied for now', async () => {
    const { totals } = await daemon.diagnostics()
    return (totals.denial_breakdown['draining'] ?? 0) >= atLeast
  }))

const start = async (alice: TestDaemon, program: string): Promise<RunningCli> => {
  const run = alice.startCli(['exec', 'bob', '--', program])
  await run.printed('ready\n')
  return run
}

const textOf = ({ stdout }: CliResult): string => stdout.toString()

test('a run ends during the drain with its own status, and the successor runs the new requests', async (t) => {
  const { alice, bob, gate, open, successor } = await stageOf(t)
  const first = await start(alice, gate)
  const next = successor('--replace', '--drain', '60s')
  const started = next.start()
  await says(next, /draining: 1 run, \d+ s left/)
  await assert.rejects(bob.get('/health'), /503/)
  const second = alice.startCli(['exec', 'bob', '--', 'echo', '2'])
  const third = alice.startCli(['--json', 'exec', 'bob', '--', 'echo', '3'])
  const fourth = alice.startCli(['exec', 'bob', '--stdin-file', '-', '--', 'sha256sum'], { stdin: Buffer.alloc(1_000_000, 1) })
  await denied(bob, 4)
  await open()
  const ended = await first.finished
  assert.deepEqual([ended.status, textOf(ended)], [7, 'ready\n'])
  await started
  assert.match(await next.log(), /the running daemon stops; it ends no run/)
  assert.equal(bob.running, false)
  const [two, three, four] = await Promise.all([second.finished, third.finished, fourth.finished])
  assert.deepEqual([two.status, textOf(two)], [0, '2\n'], two.stderr)
  assert.match(two.stderr, /^x0x: bob is draining \(restarting\); asking again for up to 10 minutes/)
  const json = JSON.parse(textOf(three)) as { warnings: string[]; stdout_b64: string }
  assert.deepEqual([json.warnings, Buffer.from(json.stdout_b64, 'base64').toString()], [['target_draining'], '3\n'])
  const hash = createHash('sha256').update(Buffer.alloc(1_000_000, 1)).digest('hex')
  assert.deepEqual([four.status, textOf(four).slice(0, 64)], [0, hash], four.stderr)
  assert.equal((await next.get<{ draining: boolean }>('/health')).draining, false)
  const requests = (await next.journal()).filter(({ event }) => event === 'request')
  assert.equal(new Set(requests.map(({ request_id }) => request_id)).size, requests.length, 'each request ran once')
})

test('at the end of the drain the remaining runs are ended and reported, also a detached run', async (t) => {
  const { alice, sleeper, successor, bob } = await stageOf(t)
  const run = await start(alice, sleeper)
  const id = (await alice.ok('-q', 'exec', 'bob', '--detach', '--', sleeper)).trim()
  const next = successor('--replace', '--drain', '1s')
  await next.start()
  const log = await next.log()
  assert.match(log, /draining: 2 runs, 1 s left/)
  assert.match(log, /stops and ends 2 runs:\n/)
  assert.match(log, new RegExp(`x0xd: {3}run of alice [0-9a-f-]{36}: ${sleeper}\n`))
  assert.match(log, new RegExp(`x0xd: {3}detached run of alice ${id}: ${sleeper}\n`))
  assert.match(log, /detached runs end with their daemon; their output is kept/)
  const { status, stderr } = await run.finished
  assert.equal(status, 255)
  assert.match(stderr, /daemon_stopping/)
  const lines = await next.journal()
  assert.equal(lines.filter(({ event, kind }) => event === 'warning' && kind === 'daemon_stopping').length, 2)
  assert.equal(lines.filter(({ event, operation }) => event === 'authority' && operation === 'drain').length, 1)
  assert.match(await bob.log(), /ended by the end of a drain/)
  const { state, code, signal } = await alice.get<{ state: string; code: number | null; signal: number | null }>(`/runs/${id}?refresh=true`)
  assert.deepEqual([state, code, signal], ['ended', null, 15])
})

test('without --drain, the runs end at once and are listed', async (t) => {
  const { alice, sleeper, successor } = await stageOf(t)
  const run = await start(alice, sleeper)
  const next = successor('--replace')
  await next.start()
  assert.match(await next.log(), new RegExp(`stops and ends 1 run:\nx0xd: {3}run of alice [0-9a-f-]{36}: ${sleeper}\n`))
  assert.equal((await run.finished).status, 255)
})

test('while one daemon replaces another, no third one starts or replaces it', async (t) => {
  const { alice, bob, gate, open, successor } = await stageOf(t)
  const run = await start(alice, gate)
  const next = successor('--replace', '--drain', '60s')
  const started = next.start()
  await says(next, 'draining: 1 run')
  const words = ['--data-dir', bob.dir, '--api-port', '0', '--exec-acl', bob.aclFile, '--listen', '/ip4/127.0.0.1/tcp/0']
  const plain = await runDaemonCommand(words)
  assert.deepEqual([plain.status, /in use by the daemon with pid/.test(plain.stderr)], [1, true], plain.stderr)
  for (const more of [['--replace'], ['--replace', '--drain', '5s']]) {
    const other = await runDaemonCommand([...words, ...more])
    assert.equal(other.status, 1, other.stderr)
    assert.match(other.stderr, new RegExp(`is being replaced by the x0xd with pid`))
  }
  await open()
  assert.equal((await run.finished).status, 7)
  await started
})

test('if the successor is killed or interrupted, the old daemon continues to serve', async (t) => {
  const { alice, bob, gate, open, successor } = await stageOf(t)
  const run = await start(alice, gate)
  for (const [signal, status] of [
    ['SIGKILL', 137],
    ['SIGINT', 130],
  ] as const) {
    const next = successor('--replace', '--drain', '60s')
    const failed = assert.rejects(next.start())
    await says(next, 'draining: 1 run')
    const waiting = alice.startCli(['exec', 'bob', '--', 'echo', '5'])
    await denied(bob)
    assert.equal(await next.stop(signal), status)
    await failed
    const done = await waiting.finished
    assert.deepEqual([done.status, textOf(done)], [0, '5\n'], done.stderr)
    if (signal === 'SIGINT') assert.match(await next.log(), /cancelled; the running daemon continues and accepts new runs/)
    await writeFile(next.logFile, '')
  }
  assert.ok(bob.running)
  assert.equal((await bob.get<{ draining: boolean }>('/health')).draining, false)
  assert.equal((await bob.journal()).filter(({ operation }) => operation === 'drain_cancelled').length, 2)
  await open()
  assert.equal((await run.finished).status, 7)
})

test('if the old daemon is killed during the drain, the successor starts', async (t) => {
  const { alice, bob, sleeper, successor } = await stageOf(t)
  const run = await start(alice, sleeper)
  const next = successor('--replace', '--drain', '60s')
  const started = next.start()
  await says(next, 'draining: 1 run')
  const waiting = alice.startCli(['exec', 'bob', '--', 'echo', '6'])
  // Waits for the denial, because a request without an answer would not be repeated.
  await waiting.said('is draining')
  await bob.stop('SIGKILL')
  await started
  const done = await waiting.finished
  assert.deepEqual([done.status, textOf(done)], [0, '6\n'], done.stderr)
  assert.equal((await run.finished).status, 255)
  assert.ok((await next.journal()).some(({ event }) => event === 'lost'))
})

test('with a drain timeout, SIGTERM starts a drain, and a second SIGTERM stops at once', async (t) => {
  const { alice, bob, gate, sleeper, open } = await stageOf(t, { flags: ['--drain-timeout', '60'] })
  const run = await start(alice, gate)
  const stopped = bob.stop('SIGTERM')
  const waiting = alice.startCli(['exec', 'bob', '--', 'echo', '7'])
  await denied(bob)
  await open()
  assert.equal((await run.finished).status, 7)
  assert.equal(await stopped, 0)
  await bob.start()
  const done = await waiting.finished
  assert.deepEqual([done.status, textOf(done)], [0, '7\n'], done.stderr)

  const long = await start(alice, sleeper)
  const ending = bob.stop('SIGTERM')
  await says(bob, 'draining: new runs are refused')
  process.kill(bob.pid, 'SIGTERM')
  assert.equal(await ending, 0)
  assert.match((await long.finished).stderr, /daemon_stopping/)
  await bob.start()

  const last = await start(alice, sleeper)
  assert.equal(await bob.stop('SIGINT'), 0)
  assert.match((await last.finished).stderr, /daemon_stopping/)
})

test('a fan-out during the restart reaches every host, and a copy during the restart arrives whole', async (t) => {
  const { mesh, alice, bob, gate, open, files, successor } = await stageOf(t)
  const carol = mesh.add('carol')
  await carol.writeAcl([{ agent: alice, commands: [['echo', '<INT>']] }])
  await carol.start()
  await alice.meet(carol, 'known')
  await carol.meet(alice, 'trusted')
  const [source, target] = [join(mesh.root, 'source'), join(files, 'target')]
  const data = randomBytes(100 * 1024 * 1024)
  await writeFile(source, data)
  const run = await start(alice, gate)
  const copy = alice.startCli(['cp', source, `bob:${target}`])
  await until('the copy has begun', async () => (await bob.journal()).some(({ argv }) => Array.isArray(argv) && argv[0] === '@write'))
  const next = successor('--replace', '--drain', '60s')
  const started = next.start()
  await says(next, 'draining: ')
  const fanout = alice.startCli(['exec', 'bob', 'carol', '--', 'echo', '8'])
  await denied(bob, 2)
  await open()
  assert.equal((await run.finished).status, 7)
  await started
  const hosts = await fanout.finished
  assert.equal(hosts.status, 0, hosts.stderr)
  assert.match(textOf(hosts), /bob: 8\n/)
  assert.match(textOf(hosts), /carol: 8\n/)
  const copied = await copy.finished
  assert.equal(copied.status, 0, copied.stderr)
  assert.ok(data.equals(await readFile(target)))
})

test('a draining requester finishes requests of its clients and refuses new ones', async (t) => {
  const { alice, bob, gate, open, mesh } = await stageOf(t)
  const run = await start(alice, gate)
  const next = new Successor('alice', alice.dir, { flags: ['--replace', '--drain', '60s'] })
  mesh.daemons.push(next)
  const started = next.start()
  await says(next, 'draining: 1 run')
  const waiting = alice.startCli(['exec', 'bob', '--', 'echo', '9'])
  await new Promise((resolve) => waiting.child.stderr?.once('data', resolve))
  const refused = await alice.cli(['exec', 'bob', '--detach', '--', 'echo', '9'])
  assert.equal(refused.status, 255)
  assert.match(refused.stderr, /x0xd on this machine is draining \(draining\)/)
  await open()
  assert.equal((await run.finished).status, 7)
  await started
  const done = await waiting.finished
  assert.deepEqual([done.status, textOf(done)], [0, '9\n'], done.stderr)
  assert.match(done.stderr, /x0xd on this machine is draining \(restarting\)/)
  assert.ok(bob.running)
})
