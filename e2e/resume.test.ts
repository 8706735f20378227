import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { CuttableProxy } from '../test/support/cuttable-proxy.ts'
import { until, type CliResult, type RunningCli, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { acquaint, proxiedPair, type ProxiedPair } from '../test/support/proxied-pair.ts'

// The path is lost while a command runs, and comes back. Only the counters show it.

const MIB = 1024 * 1024
/** Memory that a daemon may need in addition: the flow-control windows, and copies of the data on their way. */
const GROWTH = 64 * MIB

type Stage = ProxiedPair<CuttableProxy>

/** Alice may run `programs` on bob, over a path that can be cut. */
const stageOf = async (
  t: TestContext,
  programs: Readonly<Record<string, string>>,
  prepare?: (root: string) => Promise<void>,
  keys = '',
): Promise<Stage> => {
  const stage = await proxiedPair(t, (port) => new CuttableProxy(port))
  const { root } = stage.mesh
  await prepare?.(root)
  const paths = await Promise.all(Object.entries(programs).map(async ([name, text]) => stage.mesh.program(name, `cd ${root}\n${text}`)))
  await acquaint(
    stage,
    paths.map((path) => [path]),
    `max_stdin_bytes = 16777216\nmax_stdout_bytes = 33554432\nwarn_stdout_bytes = 33554432\n${keys}`,
  )
  return stage
}

/** Causes the trouble again a while after each resumption, until the command is done. */
const disturb = async (
  running: RunningCli,
  { bob }: Stage,
  trouble: () => void,
  pause: () => number,
): Promise<{ count: number; result: CliResult }> => {
  let count = 0
  let done = false
  void running.finished.then(() => (done = true))
  await until('the command runs', async () => (await bob.journal()).some(({ event }) => event === 'started'))
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, pause()))
    if (done) return { count, result: await running.finished }
    trouble()
    count += 1
    await until('the run goes on, or is done', async () => done || (await resumedAt(bob)) >= count)
  }
}

const CUTS = 10
/** Shell code with which a program pauses in the middle until the path was cut often enough. */
const untilCut = (at: number): string => `[ $((n += 1)) -ne ${at} ] || until [ -e cut ]; do sleep 0.1; done;`
const cutting = ({ mesh, proxy }: Stage): (() => void) => {
  let count = 0
  return () => {
    proxy.cut()
    if (++count === CUTS) writeFileSync(join(mesh.root, 'cut'), '')
  }
}

const resumedAt = async (bob: TestDaemon): Promise<number> => (await bob.diagnostics()).totals['runs_resumed'] ?? 0
const sha256 = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex')

const assertClean = async ({ bob }: Stage, events: readonly string[]): Promise<void> => {
  assert.deepEqual(
    // Changes of contacts are not counted.
    (await bob.journal()).map(({ event }) => event).filter((event) => event !== 'authority'),
    events,
  )
  assert.equal((await bob.diagnostics()).active_sessions, 0)
  assert.equal((await bob.cli(['audit', 'verify'])).status, 0)
}

test('ten mebibytes of output and the exit code arrive unchanged over a path that is cut a dozen times', async (t) => {
  const data = randomBytes(10 * MIB)
  const source = `n=0; for i in $(seq 0 79); do ${untilCut(60)} dd if=data bs=131072 skip=$i count=1 2>/dev/null; sleep 0.1; done; echo done >&2; exit 7`
  const stage = await stageOf(t, { source }, async (root) => writeFile(join(root, 'data'), data))
  const { alice, bob, mesh } = stage
  const before = [await alice.memory(), await bob.memory()]
  const running = alice.startCli(['exec', 'bob', '--', join(mesh.root, 'source')])
  const { count, result } = await disturb(running, stage, cutting(stage), () => 100 + Math.random() * 200)
  assert.deepEqual([result.status, result.stderr], [7, 'done\n'])
  assert.equal(sha256(result.stdout), sha256(data))
  assert.ok(count >= CUTS, `${count} cuts`)
  const { requester } = await alice.json<{ requester: Record<string, number> }>('diagnostics', 'exec')
  assert.ok((requester['runs_resumed'] ?? 0) >= 10)
  const grown = [(await alice.memory()) - before[0]!, (await bob.memory()) - before[1]!]
  t.diagnostic(`${count} cuts; alice grew by ${Math.round(grown[0]! / MIB)} MiB, bob by ${Math.round(grown[1]! / MIB)} MiB`)
  assert.ok(
    grown.every((bytes) => bytes < GROWTH),
    `grew by ${String(grown)} bytes`,
  )
  await assertClean(stage, ['request', 'started', 'exit'])
})

test('four mebibytes of stdin arrive unchanged over a path that is cut a dozen times', async (t) => {
  const data = randomBytes(4 * MIB)
  const sink = `n=0; while ${untilCut(48)} dd bs=65536 count=1 iflag=fullblock 2>/dev/null | { dd of=part 2>/dev/null; [ -s part ]; }; do cat part >> got; sleep 0.1; done; sha256sum < got; exit 5`
  const stage = await stageOf(t, { sink })
  const { alice, mesh } = stage
  const running = alice.startCli(['exec', 'bob', '--stdin-file', '-', '--', join(mesh.root, 'sink')], { stdin: data })
  const { count, result } = await disturb(running, stage, cutting(stage), () => 100 + Math.random() * 200)
  assert.deepEqual([result.status, result.stderr, result.stdout.toString()], [5, '', `${sha256(data)}  -\n`])
  assert.ok(count >= CUTS, `${count} cuts`)
  await assertClean(stage, ['request', 'started', 'exit'])
})

test('a run leaves a silent path for a new one within its lease, and its stdin and output arrive unchanged', async (t) => {
  const data = randomBytes(MIB)
  const slow = `for i in $(seq 16); do dd bs=65536 count=1 iflag=fullblock 2>/dev/null; sleep 0.6; done; exit 3`
  const stage = await stageOf(t, { slow })
  const { alice, mesh, proxy } = stage
  const running = alice.startCli(['exec', 'bob', '--stdin-file', '-', '--', join(mesh.root, 'slow')], { stdin: data })
  const { count, result } = await disturb(
    running,
    stage,
    () => proxy.stall(),
    () => 700,
  )
  assert.deepEqual([result.status, result.stderr], [3, ''])
  assert.equal(sha256(result.stdout), sha256(data))
  assert.ok(count >= 2, `${count} times`)
  t.diagnostic(`${count} silences in ${Math.round(result.ms)} ms`)
  await assertClean(stage, ['request', 'started', 'exit'])
})

test('several commands over one path are all resumed after each cut', async (t) => {
  const data = randomBytes(MIB)
  const names = ['c1', 'c2', 'c3', 'c4', 'c5', 'c6']
  const text = (code: number): string =>
    `for i in $(seq 0 15); do dd if=data bs=65536 skip=$i count=1 2>/dev/null; sleep 0.2; done; exit ${code}`
  const programs = Object.fromEntries(names.map((name, code) => [name, text(code)]))
  const keys = 'max_concurrent_per_agent = 8\nmax_concurrent_total = 8'
  const stage = await stageOf(t, programs, async (root) => writeFile(join(root, 'data'), data), keys)
  const { alice, bob, mesh, proxy } = stage
  const running = names.map((name) => alice.startCli(['exec', 'bob', '--', join(mesh.root, name)]))
  await until('all run', async () => (await bob.diagnostics()).active_sessions === names.length)
  for (let cuts = 1; cuts <= 3; cuts++) {
    proxy.cut()
    await until('all go on', async () => (await resumedAt(bob)) >= cuts * names.length)
  }
  const results = await Promise.all(running.map(async ({ finished }) => finished))
  for (const [code, { status, stdout, stderr }] of results.entries())
    assert.deepEqual([status, stderr, sha256(stdout)], [code, '', sha256(data)])
})
