import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Peer, Session } from './peer.ts'
import type { ProcessLog } from './process-log.ts'
import type { ConfigOptions } from './server.ts'
import { patient } from '../../test/support/wait-limits.ts'
import { overStdio } from './transports.ts'

// No byte or event may be lost, duplicated or reordered, however slow a reader is.

const MiB = 1024 * 1024
const sha256 = (bytes: Uint8Array | string): string => createHash('sha256').update(bytes).digest('hex')

const ROOMY: ConfigOptions = {
  limits: ['max_output_bytes = 1000000000', 'max_processes_per_session = 64', 'max_file_read_bytes = 2097152'],
  security: ['allow_shell = true'],
}

/** Runs the work this many times, with this many at once. */
const inTurns = async (times: number, atOnce: number, work: (round: number) => Promise<void>): Promise<void> => {
  let next = 0
  const turn = async (): Promise<void> => {
    while (next < times) await work(next++)
  }
  await Promise.all(Array.from({ length: atOnce }, turn))
}

/** Checks that the end comes once and last, and that the output and its byte counts are correct. */
const assertWhole = async (log: ProcessLog, expected: { stdout: string; stderr?: string }): Promise<void> => {
  const exit = await log.finished()
  assert.deepEqual([exit['exit_code'], exit['truncated']], [0, false])
  assert.deepEqual([sha256(log.stdout), sha256(log.stderr)], [sha256(expected.stdout), sha256(expected.stderr ?? '')])
  assert.deepEqual([exit['bytes_stdout'], exit['bytes_stderr']], [log.stdout.length, log.stderr.length])
  assert.equal(log.events.filter(({ method }) => method === 'exec.exit').length, 1)
}

const numbers = (count: number): string => Array.from({ length: count }, (_, at) => `${at + 1}\n`).join('')

test('both streams of several concurrent programs keep their own order', async (t) => {
  const peer = await overStdio.open(t, ROOMY)
  const sessions = await Promise.all(Array.from({ length: 4 }, async () => peer.session()))
  await inTurns(20, 8, async (round) => {
    const session = sessions[round % sessions.length]!
    const log = await session.shell(`seq ${round + 1} 20000 & seq ${round + 1} 30000 >&2; wait`)
    const from = (count: number): string => numbers(count).slice(numbers(round).length)
    await assertWhole(log, { stdout: from(20_000), stderr: from(30_000) })
  })
  await peer.close()
})

/** Maximum growth of memory while the client does not read. */
const BOUND = 200 * MiB

/** Checks for a while that memory stays below the bound. */
const watchMemory = async (peer: Peer, before: number): Promise<void> => {
  for (let round = 0; round < 10; round++) {
    await sleep(200)
    const grown = peer.process.memory() - before
    assert.ok(grown < BOUND, `${Math.round(grown / MiB)} MiB more than before`)
  }
}

const warmUp = async (session: Session): Promise<number> => {
  await (await session.start({ argv: ['seq', '1', '200000'] })).finished()
  return session.peer.process.memory()
}

test('programs whose output is not read are held, and their output arrives whole later', async (t) => {
  const peer = await overStdio.open(t, ROOMY)
  const session = await peer.session()
  const before = await warmUp(session)
  const start = async (command: string) => session.shell(`read go; ${command}`, { stdin_open: true })
  const kept = [await start('seq 1 1000000'), await start('seq 1 1000000 >&2')]
  const endless = await Promise.all(Array.from({ length: 10 }, async () => start('exec yes')))
  const ask = async (method: string, { id }: ProcessLog, params: object) =>
    peer.ask(method, { session_id: session.id, process_id: id, ...params })
  await Promise.all([...kept, ...endless].map(async (log) => ask('exec.input', log, { data: 'go\n', eof: true })))
  peer.pause()
  await watchMemory(peer, before)
  const killed = endless.map(async (log) => ask('exec.kill', log, {}))
  peer.resume()
  await Promise.all(killed)
  await assertWhole(kept[0]!, { stdout: numbers(1_000_000) })
  await assertWhole(kept[1]!, { stdout: '', stderr: numbers(1_000_000) })
  for (const log of endless) {
    const exit = await log.finished()
    assert.deepEqual([exit['signal'], exit['truncated'], exit['bytes_stdout']], ['SIGTERM', false, log.stdout.length])
  }
  await peer.close()
})

test('answers that are not read use bounded memory, and all of them arrive later', async (t) => {
  const peer = await overStdio.open(t, ROOMY)
  const session = await peer.session()
  await writeFile(session.path('file'), 'x'.repeat(MiB))
  const before = await warmUp(session)
  peer.pause()
  const answers = Array.from({ length: 250 }, async () => peer.ask('fs.read', { session_id: session.id, path: 'file', length: MiB }))
  await watchMemory(peer, before)
  peer.resume()
  for (const { result } of await Promise.all(answers)) assert.equal(String(result?.['content']).length, MiB)
  await peer.close()
})

test('many waits for a program leave no memory behind', async (t) => {
  // The heap is too small to hold data of 80,000 waits. With a larger heap, garbage collection would come late.
  const peer = await overStdio.open(t, ROOMY, { NODE_OPTIONS: '--max-old-space-size=24' })
  const session = await peer.session()
  const log = await session.start({ argv: ['cat'], stdin_open: true, timeout_ms: patient(120_000) })
  await inTurns(80_000, 200, async () => void (await session.wait(log, { timeout_ms: 1 })))
  assert.equal((await session.wait(log, { timeout_ms: 0 }))['status'], 'running')
  await peer.close()
})
