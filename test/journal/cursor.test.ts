import assert from 'node:assert/strict'
import { appendFile, rename, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { JournalCursor } from '../../src/journal/cursor.ts'
import { openJournal } from '../../src/journal/tail.ts'
import { tempDir } from '../support/temp-dir.ts'

const reading = (cursor: JournalCursor) => async (): Promise<string[]> => {
  const lines: string[] = []
  await cursor.read((line) => lines.push(line.toString()))
  return lines
}

test('each complete line is read once, even across a rotation and a truncation', async (t) => {
  const path = join(await tempDir(t), 'log')
  await writeFile(path, 'a\nb\nc')
  const read = reading(new JournalCursor({ path, lines: 100, open: openJournal }))
  assert.deepEqual(await read(), ['a', 'b'])
  await appendFile(path, 'c\nd\n')
  assert.deepEqual(await read(), ['cc', 'd'])
  assert.deepEqual(await read(), [])
  await appendFile(path, 'last\n')
  await rename(path, `${path}.1`)
  await writeFile(path, 'new\n')
  assert.deepEqual(await read(), ['last', 'new'])
  await truncate(path, 0)
  assert.deepEqual(await read(), [])
  await appendFile(path, 'x\n')
  assert.deepEqual(await read(), ['x'])
})

test('the first read returns only the last lines, and a read that finds too much skips the oldest', async (t) => {
  const path = join(await tempDir(t), 'log')
  await writeFile(path, '1\n2\n3\n')
  const cursor = new JournalCursor({ path, lines: 2, maxBytes: 8, open: openJournal })
  const read = reading(cursor)
  assert.deepEqual(await read(), ['2', '3'])
  assert.equal(cursor.skipped, true)
  await appendFile(path, 'aaaa\nbbbb\ncccc\n')
  // The byte limit falls inside a line, and the rest of that line is read.
  assert.deepEqual((await read()).slice(-1), ['cccc'])
})

test('a journal that is not a regular file is an error and does not block', async (t) => {
  const read = reading(new JournalCursor({ path: '/dev/zero', lines: 2, open: openJournal }))
  await assert.rejects(read(), { code: 'not_found' })
  await assert.rejects(reading(new JournalCursor({ path: join(await tempDir(t), 'none'), lines: 2, open: openJournal }))(), {
    code: 'not_found',
  })
})
