import assert from 'node:assert/strict'
import { chmod, mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { AppError, type ErrorCode } from '../../../src/base/errors.ts'
import type { Logger } from '../../../src/base/log.ts'
import { DetachedRequestStore, type NewDetachedRequest, askedRunsOf } from '../../../src/executor/requested-detached.ts'
import { MAX_ASKED_REQUESTS, MAX_ASKED_RUNS } from '../../../src/protocol/limits/detached.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { silent } from '../../support/processes.ts'
import { mutations } from '../../support/mutations.ts'
import { tempDir } from '../../support/temp-dir.ts'

const idOf = (n: number): string => `01900000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`
const hash = (n: number): string => n.toString(16).padStart(64, '0')
const MACHINE = '0c'.repeat(32)

const asked = (n: number, changes: Partial<NewDetachedRequest> = {}): NewDetachedRequest => ({
  request_id: idOf(n),
  agent_id: 'a1'.repeat(32),
  machine_id: MACHINE,
  argv: ['make', 'all'],
  argv_cut: null,
  asked_at_ms: 1_000 + n,
  lifetime_ms: 60_000,
  keep_bytes: null,
  session: 'night',
  digest: hash(n),
  request: hash(1_000 + n),
  ...changes,
})

const open = async (t: TestContext) => {
  const path = join(await tempDir(t), 'detached-runs.json')
  const clock = new ManualClock(5_000)
  const said: unknown[] = []
  const log: Logger = { ...silent, error: (...words: readonly unknown[]) => void said.push(words) }
  const again = async (): Promise<DetachedRequestStore> => {
    const runs = new DetachedRequestStore({ clock, log }, { path })
    assert.equal(await runs.load(), null)
    return runs
  }
  return { path, clock, said, again, runs: await again() }
}

const refused = (code: ErrorCode, reason: RegExp) => (error: unknown) => {
  assert.ok(error instanceof AppError)
  assert.equal(error.code, code)
  assert.match(error.message, reason)
  return true
}

const ids = (runs: DetachedRequestStore): string[] => runs.page(null).runs.map(({ request_id }) => request_id)

test('a requested run is in the file, complete and readable only by its owner, before the answer', async (t) => {
  const { runs, path, again } = await open(t)
  assert.equal(await runs.ask(asked(1)), true)
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  const { request, ...row } = asked(1)
  const expected = { ...row, state: 'unknown', code: null, signal: null, denial_reason: null, heard_at_ms: null, requests: [request] }
  assert.deepEqual((await again()).get(idOf(1)), expected)
  assert.deepEqual(JSON.parse(await readFile(path, 'utf8')), { version: 1, runs: [expected] })
})

test('without a file the list is empty, and a read creates no file', async (t) => {
  const { runs, path } = await open(t)
  assert.deepEqual(runs.page(null), { runs: [], more: false })
  await assert.rejects(stat(path), { code: 'ENOENT' })
})

test('a run may be requested again, and its latest Requests stay known up to a limit', async (t) => {
  const { runs, again } = await open(t)
  for (let n = 0; n <= MAX_ASKED_REQUESTS; n += 1) assert.equal(await runs.ask(asked(1, { request: hash(n), asked_at_ms: 7 + n })), n === 0)
  const { requests, asked_at_ms } = (await again()).get(idOf(1))
  assert.deepEqual(
    requests,
    Array.from({ length: MAX_ASKED_REQUESTS }, (_, n) => hash(n + 1)),
  )
  assert.equal(asked_at_ms, 7)
})

test('the Request of a run whose target has answered stays known despite many later Requests', async (t) => {
  const { runs, again } = await open(t)
  await runs.ask(asked(1, { request: hash(0) }))
  await runs.record(idOf(1), { state: 'running', code: null, signal: null, denial_reason: null })
  for (let n = 1; n <= 2 * MAX_ASKED_REQUESTS; n += 1) assert.equal(await runs.ask(asked(1, { request: hash(n) })), false)
  assert.ok((await again()).get(idOf(1)).requests.includes(hash(0)))
})

test('another command or machine under the same ID is a conflict and changes nothing', async (t) => {
  const { runs, path } = await open(t)
  await runs.ask(asked(1))
  const before = await readFile(path, 'utf8')
  for (const other of [{ digest: hash(9) }, { machine_id: '0d'.repeat(32) }])
    await assert.rejects(runs.ask(asked(1, other)), refused('conflict', /another command uses this ID/))
  assert.equal(await readFile(path, 'utf8'), before)
})

test('the last reported state of a run is kept, and its result is never replaced by an earlier state', async (t) => {
  const { runs, clock, again } = await open(t)
  await runs.ask(asked(1))
  await runs.record(idOf(1), { state: 'running', code: null, signal: null, denial_reason: null })
  await clock.advance(100)
  await runs.record(idOf(1), { state: 'ended', code: 3, signal: null, denial_reason: null })
  for (const state of ['running', 'unknown'] as const)
    assert.equal((await runs.record(idOf(1), { state, code: null, signal: null, denial_reason: null })).state, 'ended')
  const { state, code, heard_at_ms } = (await again()).get(idOf(1))
  assert.deepEqual({ state, code, heard_at_ms }, { state: 'ended', code: 3, heard_at_ms: 5_100 })
  await runs.record(idOf(1), { state: 'expired', code: null, signal: null, denial_reason: null })
  const expired = (await again()).get(idOf(1))
  assert.deepEqual([expired.state, expired.code], ['expired', 3])
})

test('a forgotten run is removed from memory and from the file', async (t) => {
  const { runs, again } = await open(t)
  await runs.ask(asked(1))
  await runs.ask(asked(2))
  assert.equal((await runs.forget(idOf(1))).request_id, idOf(1))
  const later = await again()
  assert.deepEqual(ids(later), [idOf(2)])
  for (const gone of [async () => later.get(idOf(1)), async () => later.forget(idOf(1)), async () => later.record(idOf(1), NEWS)])
    await assert.rejects(gone, refused('unknown_run', /no detached run has the ID [0-9a-f-]{36} /))
})

test('a run that cannot be removed from the file stays known, at its position', async (t) => {
  const { runs, path, again } = await open(t)
  for (const n of [1, 2, 3]) await runs.ask(asked(n))
  await rename(path, `${path}.away`)
  await mkdir(path)
  await assert.rejects(
    runs.forget(idOf(2)),
    refused('bad_runs', /the run was not deleted, because .*detached-runs\.json cannot be written/),
  )
  assert.deepEqual(ids(runs), [idOf(1), idOf(2), idOf(3)])
  await rm(path, { recursive: true })
  await runs.forget(idOf(2))
  assert.deepEqual(ids(await again()), [idOf(1), idOf(3)])
})

const NEWS = { state: 'running', code: null, signal: null, denial_reason: null } as const

test('the oldest ended run makes room for a new one, and active runs are never dropped', async (t) => {
  const { path, again } = await open(t)
  const { request, ...first } = asked(0)
  const rows = Array.from({ length: MAX_ASKED_RUNS }, (_, n) => ({
    ...first,
    request_id: idOf(n),
    state: n === 2 ? 'ended' : 'running',
    code: n === 2 ? 0 : null,
    signal: null,
    denial_reason: null,
    heard_at_ms: null,
    requests: [request],
  }))
  await writeFile(path, JSON.stringify({ version: 1, runs: rows }), { mode: 0o600 })
  const runs = await again()
  await runs.ask(asked(10_000))
  assert.throws(() => runs.get(idOf(2)), refused('unknown_run', /./))
  await assert.rejects(runs.ask(asked(10_001)), refused('rate_limited', /x0x runs forget/))
  assert.throws(() => runs.get(idOf(10_001)), refused('unknown_run', /./))
  // A run that is already in the list takes no further place.
  await runs.ask(asked(10_000, { request: hash(5) }))
  const first_page = runs.page(null, 3)
  assert.deepEqual([first_page.runs.length, first_page.more], [3, true])
  const all: string[] = []
  for (let after: string | null = null; ;) {
    const { runs: some, more } = runs.page(after)
    all.push(...some.map(({ request_id }) => request_id))
    if (!more) break
    after = all.at(-1)!
  }
  assert.equal(new Set(all).size, MAX_ASKED_RUNS)
})

test('a run that cannot be written to the file is refused', async (t) => {
  const { runs, path } = await open(t)
  await runs.ask(asked(1))
  await t.test('a file is in place of the directory', async () => {
    const blocked = new DetachedRequestStore({ clock: new ManualClock(), log: silent }, { path: join(path, 'below-a-file.json') })
    await blocked.load()
    await assert.rejects(blocked.ask(asked(2)), refused('bad_runs', /./))
  })
  assert.deepEqual(ids(runs), [idOf(1)])
})

test('a report that cannot be written is known at once, and reaches the file with the next write', async (t) => {
  const { runs, path, again, said } = await open(t)
  await runs.ask(asked(1))
  await rename(path, `${path}.away`)
  await mkdir(path)
  assert.equal((await runs.record(idOf(1), NEWS)).state, 'running')
  assert.equal((await runs.record(idOf(1), { ...NEWS, state: 'waiting' })).state, 'waiting')
  assert.equal((await runs.record(idOf(1), NEWS)).state, 'running')
  assert.equal(said.length, 1, 'once, until it can be written again')
  assert.match(JSON.stringify(said), /detached-runs\.json.*free disk space/)
  await rm(path, { recursive: true })
  await rename(`${path}.away`, path)
  assert.equal((await again()).get(idOf(1)).state, 'unknown')
  await runs.ask(asked(2))
  assert.equal((await again()).get(idOf(1)).state, 'running')
})

test('an unusable file is reported, fails each call that needs it, and stays unchanged', async (t) => {
  const { path, clock } = await open(t)
  const row = { request_id: idOf(1) }
  for (const [text, says, mode] of [
    ['{"version": 1, "runs": [', /detached-runs\.json/, 0o600],
    ['{"version": 2, "runs": [], "more": 1}', /version: version 2 is from a later x0x/, 0o600],
    ['{"version": 1, "runs": [], "more": 1}', /more: unknown key/, 0o600],
    [JSON.stringify({ version: 1, runs: [row] }), /runs\[0\]\.agent_id is missing/, 0o600],
    ['{"version": 1, "runs": []}', /so other users can access it/, 0o644],
  ] as const) {
    await writeFile(path, text)
    await chmod(path, mode)
    const runs = new DetachedRequestStore({ clock, log: silent }, { path })
    assert.match((await runs.load())?.message ?? '', says)
    for (const needs of [async () => runs.page(null), async () => runs.get(idOf(1)), async () => runs.ask(asked(1))])
      await assert.rejects(needs, (error: unknown) => error instanceof AppError && says.test(error.message))
    assert.equal(await readFile(path, 'utf8'), text)
  }
})

test('any other value in a field of a row is either refused or read unchanged', async (t) => {
  const { runs, path } = await open(t)
  await runs.ask(asked(1, { argv_cut: { tokens: 9, bytes: 900, sha256: hash(7) } }))
  await runs.record(idOf(1), { state: 'ended', code: 1, signal: null, denial_reason: null })
  const file = JSON.parse(await readFile(path, 'utf8')) as object
  for (const [place, other] of mutations(file, '')) {
    let read: unknown
    try {
      read = { version: 1, runs: askedRunsOf(other, 'f') }
    } catch (error) {
      assert.ok(error instanceof AppError && error.code === 'bad_runs', place)
      continue
    }
    assert.deepEqual(read, other, place)
  }
})

test('a file has limits for its runs and for their Requests, and unique run IDs', () => {
  const { request, ...row } = asked(1)
  const run = { ...row, ...NEWS, heard_at_ms: null, requests: [request] }
  const runs = Array.from({ length: MAX_ASKED_RUNS + 1 }, (_, n) => ({ ...run, request_id: idOf(n) }))
  const read = (some: readonly object[]): number => askedRunsOf({ version: 1, runs: some }, 'f').length
  const hashes = Array.from({ length: MAX_ASKED_REQUESTS + 1 }, (_, n) => hash(n))
  assert.equal(read(runs.slice(1)), MAX_ASKED_RUNS)
  assert.equal(read([{ ...run, requests: hashes.slice(1) }]), 1)
  assert.throws(() => read(runs), refused('bad_runs', /^f: runs is not a list of 0 to 4096/))
  assert.throws(() => read([run, run]), refused('bad_runs', /^f: runs\[1\]\.request_id appears twice/))
  for (const requests of [[], hashes])
    assert.throws(() => read([{ ...run, requests }]), refused('bad_runs', /^f: runs\[0\]\.requests is not/))
})
