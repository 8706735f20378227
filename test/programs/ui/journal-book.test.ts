import assert from 'node:assert/strict'
import { readdir, readlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { LocalApi } from '../../../src/clients/daemon.ts'
import { JournalBook } from '../../../src/programs/ui/journal-book.ts'
import { MAX_PAGE_ROWS, MAX_PAGE_SEARCHED } from '../../../src/protocol/limits/page.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { tempDir } from '../../support/temp-dir.ts'

const CALLS = 12
const LINES = 4_000
const QUERY = { journal: 'approvals', event: null, text: null, within_ms: null, from: 0 }
const NO_CONFIGS = { journals: async () => [] }

/** Number of descriptors of this process that refer to the file. */
const openOf = async (path: string): Promise<number> => {
  const links = await Promise.all((await readdir('/proc/self/fd')).map(async (fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')))
  return links.filter((link) => link === path).length
}

test('many pages cause only one read of a journal at a time, and an aborted call is rejected', async (t) => {
  const dir = await tempDir(t)
  const api = new LocalApi({ instance: { name: null, dataDir: dir }, url: null, env: {} })
  const path = join(dir, 'approvals.jsonl')
  const line = (n: number): string => `${JSON.stringify({ event: 'reload', n, text: 'x'.repeat(1_000) })}\n`
  await writeFile(path, Array.from({ length: LINES }, (_, n) => line(n)).join(''), { mode: 0o600 })
  const book = new JournalBook({ api, clock: new ManualClock(), configs: NO_CONFIGS })
  const gone = new AbortController()
  const left = Promise.allSettled([book.last('approvals', gone.signal), book.last('approvals', gone.signal)])
  const calls = Array.from({ length: CALLS }, async () => book.entries(QUERY, new Map(), new AbortController().signal))
  gone.abort()
  const all = Promise.all(calls)
  let most = 0
  const over = all.then(() => true)
  for (let isOver = false; !isOver; isOver = await Promise.race([over, Promise.resolve(false)])) most = Math.max(most, await openOf(path))
  assert.ok(most <= 1, `${most} at once`)
  assert.deepEqual(
    (await left).map(({ status }) => status),
    ['rejected', 'rejected'],
  )
  for (const { rows, total, more, problems } of await all)
    assert.deepEqual([rows.length, total, more, problems], [MAX_PAGE_ROWS, LINES, false, []])
})

test('a time range lists the entries with a line in it, and mentions older ones only if they may match', async (t) => {
  const dir = await tempDir(t)
  const api = new LocalApi({ instance: { name: null, dataDir: dir }, url: null, env: {} })
  const now = Date.parse('2026-01-08T00:00:00.000Z')
  const minutes = (ago: number): string => new Date(now - ago * 60_000).toISOString()
  const lines = [
    // More lines than the page searches, so that the file has older entries.
    ...Array.from({ length: MAX_PAGE_SEARCHED }, (_, n) => ({ event: 'reload', n, ts: minutes(20_000) })),
    { event: 'reload', n: 1, ts: minutes(16) },
    { event: 'question', question_id: 'q', n: 2, ts: minutes(16) },
    { event: 'approval', question_id: 'q', n: 3, ts: minutes(14) },
    { event: 'reload', n: 4, ts: minutes(1) },
  ]
  await writeFile(join(dir, 'approvals.jsonl'), lines.map((line) => `${JSON.stringify(line)}\n`).join(''), { mode: 0o600 })
  const book = new JournalBook({ api, clock: { now: () => now }, configs: NO_CONFIGS })
  const within = async (within_ms: number | null) => {
    const { rows, total, more } = await book.entries({ ...QUERY, within_ms }, new Map(), new AbortController().signal)
    return { total, more, numbers: rows.slice(0, 3).map(({ lines: of }) => of.map(({ n }) => n)) }
  }
  assert.deepEqual(await within(15 * 60_000), { total: 2, more: false, numbers: [[4], [2, 3]] })
  assert.deepEqual(await within(60 * 60_000), { total: 3, more: false, numbers: [[4], [2, 3], [1]] })
  assert.equal((await within(null)).more, true)
  assert.equal((await within(30 * 24 * 60 * 60_000)).more, true)
  // Any range can be calculated.
  assert.equal((await within(Number.MAX_SAFE_INTEGER)).more, true)
})
