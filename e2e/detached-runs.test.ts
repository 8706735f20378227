import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { copyFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import type { DetachedRunView } from '../src/protocol/api/detached-run.ts'
import { MeshOfDaemons, type CliResult, type RunningCli, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

// Detached runs from the view of a user: real daemons and the built command line.

/** The program pauses after every hundredth line until the test creates a file. */
const LINES = 400

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let carol: TestDaemon
let counter: string
let sleeper: string

const numbers = Array.from({ length: LINES }, (_, at) => at + 1)
const STDOUT = numbers.map((n) => `line ${n}\n`).join('')
const STDERR = numbers
  .filter((n) => n % 10 === 0)
  .map((n) => `tenth ${n}\n`)
  .join('')
const STATUS = 7

const gate = (n: number): string => join(mesh.root, `gate-${n}`)
const openGate = async (n: number): Promise<void> => writeFile(gate(n), '')

const known = async (daemon: TestDaemon, id: string, query = ''): Promise<DetachedRunView> =>
  daemon.get<DetachedRunView>(`/runs/${id}${query}`)

/** Starts a detached run and returns its ID. */
const detach = async (argv: readonly string[], flags: readonly string[] = []): Promise<string> =>
  (await alice.ok('-q', 'exec', 'bob', '--detach', ...flags, '--', ...argv)).trim()

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob, carol] = [mesh.add('alice'), mesh.add('bob'), mesh.add('carol')]
  counter = await mesh.program(
    'counter',
    `n=0
while [ $n -lt ${LINES} ]; do
  n=$((n + 1)); echo "line $n"
  [ $((n % 10)) = 0 ] && echo "tenth $n" >&2
  [ $((n % 100)) = 0 ] && [ $n != ${LINES} ] && while [ ! -e ${mesh.root}/gate-$n ]; do sleep 0.05; done
done
exit ${STATUS}`,
  )
  sleeper = await mesh.program('sleeper', 'echo ready; exec sleep 600')
  await Promise.all([alice.start(), carol.start()])
  await bob.writeAcl([
    { agent: alice, commands: [[counter], [sleeper], ['echo', '<INT>']], keys: 'detach = true\nmax_detach_secs = 600' },
    { agent: carol, commands: [[sleeper]], keys: 'detach = true' },
    { agent: alice, commands: [['printf', '<INT>']] },
  ])
  await bob.start()
  for (const one of [alice, carol]) {
    await one.meet(bob, 'known')
    await bob.meet(one, 'trusted')
  }
})

after(async () => mesh.stop())

interface Seen {
  readonly stdout: Buffer
  readonly stderr: string
}

/** Kills a command line and returns all output that it has written. */
const killed = async ({ child, finished }: RunningCli): Promise<Seen> => {
  child.kill('SIGKILL')
  const { status, stdout, stderr } = await finished
  assert.equal(status, 128 + 9)
  return { stdout, stderr }
}

const bytesOf = (parts: readonly Seen[]): number =>
  parts.reduce((sum, { stdout, stderr }) => sum + stdout.length + Buffer.byteLength(stderr), 0)

test('attach continues at the byte where it stopped, although the command line, the daemon or the network process was killed', async () => {
  const id = await detach([counter], ['--lifetime', '5m'])
  assert.match(id, /^[0-9a-f-]{36}$/)
  const parts: Seen[] = []

  // The command line is killed in the middle.
  const first = alice.startCli(['attach', id])
  await first.printed('line 100\n')
  parts.push(await killed(first))

  // The requester's daemon is killed, and its run continues meanwhile.
  await alice.stop('SIGKILL')
  await openGate(100)
  await alice.start()
  assert.equal((await known(alice, id)).state, 'running')
  const second = alice.startCli(['attach', id, '--from', String(bytesOf(parts))])
  await second.printed('line 200\n')

  // The network process of the target is killed while a client reads. The client notices nothing.
  const network = await bob.networkPid()
  process.kill(network, 'SIGKILL')
  await openGate(200)
  await second.printed('line 300\n')
  parts.push(await killed(second))
  assert.notEqual(await bob.networkPid(), network)

  // The run ends while no client is attached.
  await openGate(300)
  assert.equal((await alice.cli(['runs', 'wait', id, '--timeout', '60'])).status, STATUS)
  const last = await alice.cli(['attach', id.slice(0, -1), '--from', String(bytesOf(parts))])
  assert.equal(last.status, STATUS)
  parts.push(last)

  assert.equal(Buffer.concat(parts.map(({ stdout }) => stdout)).toString(), STDOUT)
  assert.equal(parts.map(({ stderr }) => stderr).join(''), STDERR)

  // A later client gets the whole output, verified against the signed hash.
  const whole = await alice.cli(['--json', 'attach', id])
  const { outcome, stdout_b64, next } = JSON.parse(whole.stdout.toString()) as {
    outcome: { ok: boolean; incomplete: boolean; code: number }
    stdout_b64: string
    next: number
  }
  assert.deepEqual([whole.status, outcome.ok, outcome.incomplete, outcome.code], [STATUS, true, false, STATUS])
  assert.equal(Buffer.from(stdout_b64, 'base64').toString(), STDOUT)
  assert.equal(next, STDOUT.length + STDERR.length)
  const { state, code } = await known(alice, id)
  assert.deepEqual([state, code], ['ended', STATUS])
  assert.match(await alice.ok('runs'), new RegExp(`${id} +bob +ended ${STATUS} `))
})

const startedLines = async (id: string): Promise<number> =>
  (await bob.journal()).filter((line) => line.event === 'started' && 'request_id' in line && line.request_id === id).length

test('a repeated request ID runs its command once, and cannot be used for another command', async () => {
  const request_id = randomUUID()
  const body = { agent: 'bob', argv: ['echo', '7'], detach: true, request_id }
  const start = async (argv = body.argv): Promise<DetachedRunView> =>
    alice.api.json<DetachedRunView>({ method: 'POST', path: '/exec/run', body: { ...body, argv } })
  await start()
  await alice.stop('SIGKILL')
  await alice.start()
  assert.equal((await start()).request_id, request_id)
  const { status, stdout } = await alice.cli(['attach', request_id])
  assert.deepEqual([status, stdout.toString()], [0, '7\n'])
  assert.equal((await start()).request_id, request_id)
  assert.equal(await startedLines(request_id), 1)
  await assert.rejects(start(['echo', '8']), { code: 'conflict' })
  assert.equal((await alice.ok('attach', request_id)).toString(), '7\n')
})

test('Ctrl-C leaves a detached run running, a cancel ends it, and forget removes its record', async () => {
  const id = await detach([sleeper])
  const attached = alice.startCli(['attach', id])
  await attached.printed('ready\n')
  attached.child.kill('SIGINT')
  const left = await attached.finished
  assert.deepEqual(
    [left.status, left.stderr],
    [130, `x0x: detached; the command continues. To see more output: x0x --data-dir ${alice.dir} attach ${id} --from 6\n`],
  )
  assert.equal((await known(alice, id, '?refresh=true')).state, 'running')

  const early = await alice.cli(['runs', 'forget', id])
  assert.match(early.stderr, /has not ended: cancel it first/)
  const short = await alice.cli(['runs', 'wait', id, '--timeout', '0.2'])
  assert.deepEqual([short.status, short.stderr], [255, 'x0x: timeout: it has not ended; it continues\n'])

  const waiting = alice.startCli(['runs', 'wait', id])
  assert.match(await alice.ok('runs', 'cancel', id), /^stopping: .*sleeper, on bob\n$/)
  const ended: CliResult = await waiting.finished
  assert.equal(ended.status, 128 + 15, ended.stderr)
  assert.match(ended.stderr, /^x0x: cancelled: the command ended with SIGTERM\n$/)
  assert.match(await alice.ok('runs', '--refresh'), new RegExp(`${id} +bob +ended SIGTERM `))

  await alice.ok('runs', 'forget', id)
  const gone = await alice.cli(['attach', id])
  assert.equal(gone.status, 255)
  assert.match(gone.stderr, /no detached run has the ID .*\n {5}See: x0x .*runs\n/)
})

test('an agent cannot attach to a detached run of another agent by its ID or with a copied record', async () => {
  const id = await detach([sleeper])
  const unknown = await carol.cli(['attach', id])
  assert.deepEqual([unknown.status, unknown.stdout.length], [255, 0])
  await carol.stop()
  await copyFile(join(alice.dir, 'detached-runs.json'), join(carol.dir, 'detached-runs.json'))
  await carol.start()
  const stolen = await carol.cli(['attach', id])
  assert.deepEqual([stolen.status, stolen.stdout.length], [255, 0])
  assert.notEqual((await carol.cli(['runs', 'cancel', id])).status, 0)
  assert.equal((await known(alice, id, '?refresh=true')).state, 'running')
  await alice.ok('runs', 'cancel', id)
})

test('a target that was restarted reports the run as lost, and its earlier output is still available', async () => {
  const id = await detach([sleeper])
  const attached = alice.startCli(['attach', id])
  await attached.printed('ready\n')
  await bob.stop('SIGKILL')
  await bob.start()
  const { status, stdout, stderr } = await attached.finished
  assert.deepEqual([status, stdout.toString()], [255, 'ready\n'])
  assert.match(stderr, /x0x: lost: .*\n {5}Try, on bob: x0x audit tail {3}\(request /)
  assert.match(await alice.ok('runs'), new RegExp(`${id} +bob +lost `))
  const again = await alice.cli(['attach', id])
  assert.deepEqual([again.status, again.stdout.toString()], [255, 'ready\n'])
  assert.equal((await alice.cli(['runs', 'wait', id])).status, 255)
  await alice.ok('runs', 'forget', id)
})
