import assert from 'node:assert/strict'
import { readdir, readFile, readlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { isRunning, MeshOfDaemons, until, type RunningCli, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { patient } from '../test/support/wait-limits.ts'

// A daemon consists of two processes. Each may be killed at any moment, during a run.

/** The promise is five seconds, four of them for the lease. Two more are for a busy machine. */
const CHILD_DEAD_WITHIN_MS = 7_000

interface Stage {
  readonly alice: TestDaemon
  readonly bob: TestDaemon
  /** A command of alice on bob that never ends by itself. */
  readonly running: RunningCli
  readonly childPid: number
  /** When this file exists, the command prints `after`. */
  readonly marker: string
}

const stageOf = async (t: TestContext): Promise<Stage> => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  const marker = join(mesh.root, 'marker')
  const ticker = await mesh.program(
    'ticker',
    `echo ready\nwhile [ ! -e ${marker} ]; do sleep 0.05; done\necho after\nwhile :; do sleep 0.05; done`,
  )
  await alice.start()
  await bob.writeAcl([{ agent: alice, commands: [[ticker], ['echo', '<INT>']] }])
  await bob.start()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
  const running = alice.startCli(['exec', 'bob', '--', ticker])
  await running.printed('ready')
  const childPid = await bob.startedPid()
  assert.ok(isRunning(childPid))
  return { alice, bob, running, childPid, marker }
}

const assertChildDies = async ({ childPid }: Stage, since: number): Promise<void> => {
  await until('the child is gone', () => !isRunning(childPid))
  assert.ok(performance.now() - since < patient(CHILD_DEAD_WITHIN_MS), 'the child lived on too long')
}

const assertWorks = async ({ alice, bob }: Stage): Promise<void> => {
  await until('a new command runs', async () => (await alice.exec(bob, ['echo', '7'])).stdout.toString() === '7\n')
  await until('the slots are free', async () => (await bob.diagnostics()).active_sessions === 0)
  const verify = await bob.cli(['audit', 'verify'])
  assert.equal(verify.status, 0, verify.stdout.toString())
}

const linesOf = async ({ bob }: Stage, event: string) => (await bob.journal()).filter((line) => line.event === event)

test("after SIGKILL of the target's network process, a new one starts and the run continues through it", async (t) => {
  const stage = await stageOf(t)
  const { bob, running, childPid } = stage
  const [executor, network] = [bob.pid, await bob.networkPid()]
  process.kill(network, 'SIGKILL')
  await until('another network half answers', async () => (await bob.answers()) && (await bob.networkPid()) !== network)
  await writeFile(stage.marker, '')
  await running.printed('after')
  assert.ok(isRunning(childPid), 'the same program')
  assert.equal(bob.pid, executor, 'the same executor')
  const since = performance.now()
  running.child.kill('SIGINT')
  assert.equal((await running.finished).status, 128 + 15)
  await assertChildDies(stage, since)
  assert.equal((await linesOf(stage, 'exit')).length, 1)
  await assertWorks(stage)
  const { totals } = await bob.diagnostics()
  assert.ok((totals['requests_allowed'] ?? 0) >= 2, 'the counters went on')
})

test('after SIGKILL of both network processes, the child dies and the audit log has the end of the run', async (t) => {
  const stage = await stageOf(t)
  const { alice, bob, running } = stage
  const pids = [await alice.networkPid(), await bob.networkPid()]
  const since = performance.now()
  for (const pid of pids) process.kill(pid, 'SIGKILL')
  assert.equal((await running.finished).status, 255)
  await assertChildDies(stage, since)
  await until('the run has its end in the journal', async () => (await linesOf(stage, 'exit')).length === 1)
  await assertWorks(stage)
})

test("after SIGKILL of the target's executor process, its network process and the child end, and the next start logs lost", async (t) => {
  const stage = await stageOf(t)
  const { bob, running } = stage
  const network = await bob.networkPid()
  const since = performance.now()
  await bob.stop('SIGKILL')
  await until('the network half is gone', () => !isRunning(network))
  await assertChildDies(stage, since)
  const result = await running.finished
  assert.equal(result.status, 255)
  assert.match(result.stderr, /incomplete/)
  await bob.start()
  assert.equal((await linesOf(stage, 'lost')).length, 1)
  await assertWorks(stage)
})

test("after SIGKILL of the requester's network process, the client gets an error, the child dies, and new requests work", async (t) => {
  const stage = await stageOf(t)
  const { alice, running } = stage
  const [executor, network] = [alice.pid, await alice.networkPid()]
  const since = performance.now()
  process.kill(network, 'SIGKILL')
  const result = await running.finished
  assert.equal(result.status, 255)
  assert.match(result.stderr, /incomplete: the local daemon stopped/)
  await assertChildDies(stage, since)
  await assertWorks(stage)
  assert.equal(alice.pid, executor)
})

test("after SIGKILL of the requester's executor process, its network process ends at once and the child dies", async (t) => {
  const stage = await stageOf(t)
  const network = await stage.alice.networkPid()
  const since = performance.now()
  await stage.alice.stop('SIGKILL')
  await until('the network half is gone', () => !isRunning(network))
  assert.equal((await stage.running.finished).status, 255)
  await assertChildDies(stage, since)
  await stage.alice.start()
  await assertWorks(stage)
})

test('a network process is restarted after each kill, and signals to stop have no effect on it alone', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const daemon = mesh.add('alice')
  await daemon.start()
  for (let round = 0; round < 3; round++) {
    const before = await daemon.networkPid()
    process.kill(before, 'SIGKILL')
    await until('another answers', async () => (await daemon.answers()) && (await daemon.networkPid()) !== before)
  }
  const last = await daemon.networkPid()
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.kill(last, signal)
  assert.equal((await daemon.cli(['id'])).status, 0)
  assert.equal(await daemon.networkPid(), last)
  assert.match(await daemon.log(), /"name":"x0xd",.*the network process ended; the executor continues/)
  assert.equal(await daemon.stop(), 0)
  assert.equal(isRunning(last), false)
})

test('the executor process holds no network socket, and a child holds no socket of the daemon', async (t) => {
  const stage = await stageOf(t)
  const inodesIn = async (pid: number): Promise<string[]> => {
    const fds = await readdir(`/proc/${pid}/fd`)
    const targets = await Promise.all(fds.map(async (fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => '')))
    return targets.flatMap((target) => /^socket:\[(\d+)\]$/.exec(target)?.[1] ?? [])
  }
  const network = new Set(
    (await Promise.all(['tcp', 'tcp6', 'udp', 'udp6'].map(async (name) => readFile(`/proc/net/${name}`, 'utf8').catch(() => ''))))
      .flatMap((text) => text.split('\n').slice(1))
      .map((line) => line.trim().split(/\s+/)[9]),
  )
  const inet = async (pid: number): Promise<number> => (await inodesIn(pid)).filter((inode) => network.has(inode)).length
  assert.equal(await inet(stage.bob.pid), 0)
  assert.ok((await inet(await stage.bob.networkPid())) > 0, 'the network half has them')
  const held = new Set([...(await inodesIn(stage.bob.pid)), ...(await inodesIn(await stage.bob.networkPid()))])
  assert.ok(held.size >= 4)
  assert.deepEqual(
    (await inodesIn(stage.childPid)).filter((inode) => held.has(inode)),
    [],
  )
})

test('a hanging network process blocks neither a stop nor the next start after its executor process was killed', async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const daemon = mesh.add('alice')
  await daemon.start()
  const first = await daemon.networkPid()
  process.kill(first, 'SIGSTOP')
  await daemon.stop('SIGKILL')
  assert.ok(isRunning(first), 'it cannot see that it is alone')
  // The stopped network process still holds the port of the mesh.
  await daemon.start()
  assert.equal(isRunning(first), false)
  const second = await daemon.networkPid()
  process.kill(second, 'SIGSTOP')
  assert.equal(await daemon.stop(), 0)
  assert.equal(isRunning(second), false)
})
