import assert from 'node:assert/strict'
import { appendFile, link, rename, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { lastLines, type LastBounds, type LastLines } from '../../src/journal/tail.ts'
import { MAX_JOURNAL_LINE } from '../../src/protocol/limits/daemon.ts'
import { temporaryDirectory } from '../support/processes.ts'

const ANY: LastBounds = { lines: 100, maxBytes: 1024 * 1024 }
const line = (n: number): string => JSON.stringify({ n, ...(n === 0 && { after: null }) })
const text = (from: number, to: number): string => Array.from({ length: to - from }, (_, at) => `${line(from + at)}\n`).join('')
const numbers = ({ lines }: LastLines): readonly unknown[] => lines.map((one) => (JSON.parse(one.toString()) as { n: unknown }).n)

const fileOf = async (t: TestContext, content: string): Promise<string> => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  await writeFile(path, content)
  return path
}

test('the requested number of lines is returned, and `older` says whether there are more', async (t) => {
  const path = await fileOf(t, text(0, 5))
  const all = await lastLines(path, { ...ANY, lines: 5 })
  assert.deepEqual([numbers(all), all.older, all.tooLong], [[0, 1, 2, 3, 4], false, 0])
  await appendFile(path, line(5))
  const last = await lastLines(path, { ...ANY, lines: 5 })
  assert.deepEqual([numbers(last), last.older], [[1, 2, 3, 4, 5], true])
})

test('a limited number of bytes is read of a file of any size, and a partial line is dropped', async (t) => {
  const path = await fileOf(t, '')
  await truncate(path, 64 * 1024 * 1024)
  await appendFile(path, `\n${text(1, 4)}`)
  const maxBytes = 2 * line(1).length + 4
  const { lines, older } = await lastLines(path, { lines: 99, maxBytes })
  assert.deepEqual([lines.map(String), older], [[line(2), line(3)], true])
  // If the limit covers the whole file, its first line is complete.
  const exact = await lastLines(await fileOf(t, text(0, 2)), { lines: 99, maxBytes: text(0, 2).length })
  assert.deepEqual([numbers(exact), exact.older], [[0, 1], false])
})

test('a line longer than the maximum is counted, and takes the place of a line', async (t) => {
  const path = await fileOf(t, `${text(0, 2)}${'x'.repeat(MAX_JOURNAL_LINE + 1)}\n${text(2, 3)}`)
  const { lines, tooLong, older } = await lastLines(path, { ...ANY, maxBytes: 2 * MAX_JOURNAL_LINE, lines: 3 })
  assert.deepEqual([lines.map(String), tooLong, older], [[line(1), line(2)], 1, true])
})

test('the last rotated file is read as well within the limits, and earlier files count as older', async (t) => {
  const path = await fileOf(t, text(3, 6))
  assert.deepEqual((await lastLines(path, ANY)).older, true)
  await writeFile(`${path}.1`, text(0, 3))
  const both = await lastLines(path, ANY)
  assert.deepEqual([numbers(both), both.older], [[0, 1, 2, 3, 4, 5], false])
  const some = await lastLines(path, { ...ANY, lines: 4 })
  assert.deepEqual([numbers(some), some.older], [[2, 3, 4, 5], true])
  const few = await lastLines(path, { ...ANY, maxBytes: text(3, 6).length + line(2).length + 2 })
  assert.deepEqual([numbers(few), few.older], [[2, 3, 4, 5], true])
  await writeFile(`${path}.1`, text(1, 3))
  assert.deepEqual((await lastLines(path, ANY)).older, true)
})

test('during a rotation every line is returned exactly once', async (t) => {
  const path = await fileOf(t, text(0, 3))
  await rename(path, `${path}.1`)
  const renamed = await lastLines(path, ANY)
  assert.deepEqual([numbers(renamed), renamed.older], [[0, 1, 2], false])
  await link(`${path}.1`, path)
  assert.deepEqual(numbers(await lastLines(path, ANY)), [0, 1, 2])
})

test('a missing journal is empty, and an unreadable one is an error', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  assert.deepEqual((await lastLines(path, ANY)).lines, [])
  await assert.rejects(lastLines(join(path, '..'), ANY), { code: 'not_found', message: /not a regular file/ })
})
