import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { CuttableProxy } from '../test/support/cuttable-proxy.ts'
import { isRunning, until, type RunningCli } from '../test/support/mesh-of-daemons.ts'
import { acquaint, proxiedPair, type ProxiedPair } from '../test/support/proxied-pair.ts'

// A process or connection disappears during a run. In each case the child gets SIGTERM within 5 s, no process is left, the audit log
// verifies, and the client gets the truth.

/** The promise is five seconds, four of them for the lease. Two more are for a busy machine. */
const SIGTERM_WITHIN_MS = 7_000

interface Stage extends ProxiedPair<CuttableProxy> {
  /** The command that runs on bob. It records when SIGTERM arrived. */
  readonly running: RunningCli
  readonly pid: number
  /** Epoch milliseconds at which the child got SIGTERM. */
  readonly terminatedAt: () => Promise<number>
}

/** Starts a command of alice on bob, over a path that can be cut. */
const stageOf = async (t: TestContext): Promise<Stage> => {
  const pair = await proxiedPair(t, (port) => new CuttableProxy(port))
  const { mesh, alice, bob, proxy } = pair
  const log = join(mesh.root, 'terminated')
  // Discards stderr. Otherwise the shell would report the end of its sleep to a dead daemon and die of SIGPIPE.
  const program = await mesh.program(
    'child',
    `exec 2>/dev/null\ntrap 'date +%s%3N > ${log}; exit 0' TERM\necho ready\nwhile :; do sleep 0.05; done`,
  )
  await acquaint(pair, [[program], ['echo', '<INT>']])
  const running = alice.startCli(['exec', 'bob', '--', program])
  await running.printed('ready')
  assert.ok(proxy.connections > 0, 'the run goes through the path that can be cut')
  const pid = await bob.startedPid()
  assert.ok(isRunning(pid))
  const terminatedAt = async (): Promise<number> =>
    until('the child gets SIGTERM', async () => Number(await readFile(log, 'utf8').catch(() => '0')) || null)
  return { ...pair, running, pid, terminatedAt }
}

/** Checks that must hold after each kind of loss. */
const assertEnded = async ({ bob, pid, terminatedAt }: Stage, since: number): Promise<void> => {
  const took = (await terminatedAt()) - since
  assert.ok(took < SIGTERM_WITHIN_MS, `SIGTERM came after ${took} ms`)
  await until('the child is gone', () => !isRunning(pid))
  await until('the slot is free', async () => (await bob.diagnostics()).active_sessions === 0)
  const verify = await bob.cli(['audit', 'verify'])
  assert.equal(verify.status, 0, verify.stdout.toString())
}

const journalled = async ({ bob }: Stage, event: string, key: string, value: unknown): Promise<void> => {
  const lines = await bob.journal()
  assert.ok(
    lines.some((line) => line.event === event && line[key] === value),
    `${event} with ${key} ${String(value)}`,
  )
}

test('killing the command line with SIGKILL ends the remote command', async (t) => {
  const stage = await stageOf(t)
  const since = Date.now()
  stage.running.child.kill('SIGKILL')
  await assertEnded(stage, since)
  await journalled(stage, 'warning', 'kind', 'cancelled')
})

test("killing the requester's daemon with SIGKILL ends the remote command, and the command line reports incomplete", async (t) => {
  const stage = await stageOf(t)
  const since = Date.now()
  await stage.alice.stop('SIGKILL')
  const result = await stage.running.finished
  assert.equal(result.status, 255)
  assert.match(result.stderr, /incomplete: the local daemon stopped/)
  await assertEnded(stage, since)
  await journalled(stage, 'warning', 'kind', 'peer_disconnected')
})

test("killing the target's daemon with SIGKILL leaves no orphan, and its next start logs the run as lost", async (t) => {
  const stage = await stageOf(t)
  const since = Date.now()
  await stage.bob.stop('SIGKILL')
  const result = await stage.running.finished
  assert.equal(result.status, 255)
  assert.match(result.stderr, /incomplete/)
  assert.ok((await stage.terminatedAt()) - since < SIGTERM_WITHIN_MS)
  await until('the child is gone', () => !isRunning(stage.pid))
  await stage.bob.start()
  await assertEnded(stage, since)
  const lines = await stage.bob.journal()
  const request = lines.find((line) => line.event === 'request')
  assert.ok(lines.some((line) => line.event === 'lost' && line.request_id === request?.request_id))
})

test("stopping the target's daemon ends its children within 3 s, and the client gets daemon_stopping", async (t) => {
  const stage = await stageOf(t)
  const since = Date.now()
  const status = await stage.bob.stop('SIGTERM')
  assert.equal(status, 0)
  assert.ok(Date.now() - since < 3_000)
  assert.equal(isRunning(stage.pid), false)
  const result = await stage.running.finished
  assert.equal(result.status, 255)
  assert.match(result.stderr, /daemon_stopping/)
  await stage.bob.start()
  await assertEnded(stage, since)
})

test('a connection that is reset for good ends the remote command, and the client reports incomplete', async (t) => {
  const stage = await stageOf(t)
  const since = Date.now()
  stage.proxy.refuse()
  const result = await stage.running.finished
  assert.equal(result.status, 255)
  assert.match(result.stderr, /incomplete/)
  await assertEnded(stage, since)
  await journalled(stage, 'warning', 'kind', 'peer_disconnected')
})

test('a connection that goes silent ends the remote command, and the client reports lost contact', async (t) => {
  const stage = await stageOf(t)
  const since = Date.now()
  stage.proxy.silence()
  await assertEnded(stage, since)
  await journalled(stage, 'warning', 'kind', 'lease_expired')
  const result = await stage.running.finished
  assert.equal(result.status, 255)
  // The attempt to resume and the handshake of a new link have their own time limits. Either may end last.
  assert.match(result.stderr, /lost contact with bob \(incomplete\): .*the (target|peer) did not answer in time/)
  const { peers } = await stage.alice.json<{ peers: { agent_id: string; connected: boolean; last_heard: string | null }[] }>('peers')
  const silent = peers.find(({ agent_id }) => agent_id === stage.bob.agentId)
  if (silent?.connected === true) assert.ok(Date.parse(silent.last_heard ?? '') <= Date.now() - 4_000, 'bob was silent for a lease')
})

test('a requester whose network process hangs loses its remote command', async (t) => {
  const stage = await stageOf(t)
  const since = Date.now()
  const pid = await stage.alice.networkPid()
  process.kill(pid, 'SIGSTOP')
  try {
    await assertEnded(stage, since)
    await journalled(stage, 'warning', 'kind', 'lease_expired')
  } finally {
    process.kill(pid, 'SIGCONT')
  }
  assert.notEqual((await stage.running.finished).status, 0)
})

test('after a loss, the requester reaches the target again', async (t) => {
  const stage = await stageOf(t)
  stage.proxy.refuse()
  await stage.running.finished
  stage.proxy.allow()
  await until('alice reaches bob again', async () => (await stage.alice.exec('bob', ['echo', '1'])).status === 0)
})
