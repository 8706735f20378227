import assert from 'node:assert/strict'
import { readdir, readlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { LocalApi } from '../../../src/clients/daemon.ts'
import type { EngineConfigs } from '../../../src/programs/ui/engine-configs.ts'
import { JournalBook } from '../../../src/programs/ui/journal-book.ts'
import { MAX_PAGE_ROWS } from '../../../src/protocol/limits/page.ts'
import { tempDir } from '../../support/temp-dir.ts'

const CALLS = 12
const LINES = 4_000
const QUERY = { journal: 'approvals', event: null, text: null, from: 0 }

/** How many descriptors of this process are of that file. */
const openOf = async (path: string): Promise<number> => {
  const links = await Promise.all((await readdir('/proc/self/fd')).map(async (fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')))
  return links.filter((link) => link === path).length
}

test('however many pages ask, the end of one journal is read at a time, and who leaves is not waited for', async (t) => {
  const dir = await tempDir(t)
  const api = new LocalApi({ instance: { name: null, dataDir: dir }, url: null, env: {} })
  const path = join(dir, 'approvals.jsonl')
  const line = (n: number): string => `${JSON.stringify({ event: 'reload', n, text: 'x'.repeat(1_000) })}\n`
  await writeFile(path, Array.from({ length: LINES }, (_, n) => line(n)).join(''), { mode: 0o600 })
  const book = new JournalBook(api, { journals: async () => [] } as unknown as EngineConfigs)
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
