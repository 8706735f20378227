import assert from 'node:assert/strict'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { test } from 'node:test'

import { sha256 } from '../../../src/identity/hash.ts'
import { MAX_FRAME_DATA } from '../../../src/protocol/limits/wire.ts'
import type { ExecExit } from '../../../src/protocol/wire/exec.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import type { FakeLink, FakeNetwork, ProbeRun } from '../../support/fake-network.ts'
import { socketPair } from '../../support/socket-pair.ts'

/** Each script prints a different 7 to 10 MiB, so that a frame with bytes of another place or run changes the hash. */
const SCRIPTS = {
  up: 'exec seq 1 1200000',
  down: 'exec seq 1200000 -1 1',
  both: 'seq 5000000 5600000 >&2 & seq 7000000 7600000; wait',
}
const LOSE_AFTER = 24 * MAX_FRAME_DATA

/** Resolves with null when enough stdout has arrived, or with the Exit. */
const progress = async (run: ProbeRun): Promise<ExecExit | null> => {
  const enough = run.frame('stdout', () => run.output().length >= LOSE_AFTER).then(() => null)
  return Promise.race([run.exit(), enough])
}

/** Follows a run over streams that are lost repeatedly. */
const follow = async (link: FakeLink, first: ProbeRun) => {
  const streams = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
  let run = first
  let resumes = 0
  for (;;) {
    const exit = await progress(run)
    if (exit === null) {
      run.lost()
      await run.closed
    }
    for (const name of ['stdout', 'stderr'] as const) streams[name].push(run.output(name))
    if (exit !== null) return { exit, resumes, stdout: Buffer.concat(streams.stdout), stderr: Buffer.concat(streams.stderr) }
    run = await link.resume(run)
    resumes += 1
  }
}

/** Makes a network process stop reading at times, so that writes of the executor process wait. */
const stutter = (network: FakeNetwork): (() => void) => {
  const stopped = new AbortController()
  const loop = async (): Promise<void> => {
    while (!stopped.signal.aborted) {
      network.duplex.pause()
      for (let turn = 0; turn < 5; turn++) await nextTurn()
      network.duplex.resume()
      for (let turn = 0; turn < 5; turn++) await nextTurn()
    }
  }
  void loop()
  return () => stopped.abort()
}

test('runs that share buffers do not mix output despite lost streams, resumes and a slow reader', async (t) => {
  const host = await ExecutorHost.start(t, { scripts: SCRIPTS, keys: 'max_stdout_bytes = 100000000\nmax_stderr_bytes = 100000000' })
  await host.befriend(host.peer)
  const network = await host.connect(await socketPair(t))
  const link = await network.link(host.peer)
  const stop = stutter(network)
  const runs = await Promise.all(Object.keys(SCRIPTS).map(async (name) => follow(link, await link.ask([host.program(name)]))))
  stop()
  for (const { exit, resumes, stdout, stderr } of runs) {
    assert.ok(resumes > 0)
    assert.deepEqual(Buffer.from(exit.stdout_sha256), Buffer.from(sha256(stdout)))
    assert.deepEqual(Buffer.from(exit.stderr_sha256), Buffer.from(sha256(stderr)))
    assert.deepEqual([exit.code, exit.truncated], [0, false])
  }
})
