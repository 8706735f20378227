import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { appendFile, rename, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { tailJournal } from '../../src/journal/tail.ts'
import { temporaryDirectory, until } from '../support/processes.ts'

const fileOf = async (t: TestContext, text: string): Promise<string> => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  await writeFile(path, text)
  return path
}

const lastOf = async (path: string, lines: number): Promise<string[]> => {
  const seen: string[] = []
  for await (const line of tailJournal(path, { lines, follow: false })) seen.push(line)
  return seen
}

/** Follows until the signal. `seen` grows with each line. */
const follow = (path: string, lines: number) => {
  const ending = new AbortController()
  const seen: string[] = []
  const done = (async () => {
    for await (const line of tailJournal(path, { lines, follow: true }, ending.signal)) seen.push(line)
  })()
  const stop = async (): Promise<void> => {
    ending.abort()
    await done
  }
  return { seen, stop }
}

test('the last lines are returned, up to the number of lines in the file', async (t) => {
  const path = await fileOf(t, 'a\nb\nc\n')
  assert.deepEqual(await lastOf(path, 2), ['b', 'c'])
  assert.deepEqual(await lastOf(path, 3), ['a', 'b', 'c'])
  assert.deepEqual(await lastOf(path, 99), ['a', 'b', 'c'])
  assert.deepEqual(await lastOf(path, 0), [])
  assert.deepEqual(await lastOf(await fileOf(t, ''), 5), [])
})

test('a last line without a line feed is returned unchanged', async (t) => {
  assert.deepEqual(await lastOf(await fileOf(t, 'a\nb'), 1), ['b'])
})

test('lines are found across the blocks that are read', async (t) => {
  const lines = Array.from({ length: 2_000 }, (_item, n) => `${n} ${'x'.repeat(n % 300)}`)
  const path = await fileOf(t, lines.map((line) => `${line}\n`).join(''))
  for (const count of [1, 700, 1_999]) assert.deepEqual(await lastOf(path, count), lines.slice(-count))
})

test('a missing file is an error that names it', async () => {
  await assert.rejects(lastOf('/nowhere/exec.log', 1), { code: 'not_found', message: /\/nowhere\/exec\.log/ })
})

test('a named pipe and a device are refused without blocking', async (t) => {
  const pipe = join(await temporaryDirectory(t), 'exec.log')
  execFileSync('mkfifo', [pipe])
  for (const path of [pipe, '/dev/zero']) await assert.rejects(lastOf(path, 1), { code: 'not_found', message: /not a regular file/ })
})

test('appended text is followed in whole lines', async (t) => {
  const path = await fileOf(t, 'a\nb\n')
  const { seen, stop } = follow(path, 1)
  await until(() => seen.length === 1)
  await appendFile(path, 'c\nd')
  await until(() => seen.length === 2)
  await appendFile(path, 'e\n')
  await until(() => seen.length === 3)
  await stop()
  assert.deepEqual(seen, ['b', 'c', 'de'])
})

test('the file that replaces a renamed one is followed from its first line', async (t) => {
  const path = await fileOf(t, 'a\n')
  const { seen, stop } = follow(path, 1)
  await until(() => seen.length === 1)
  await appendFile(path, 'b\n')
  await rename(path, `${path}.1`)
  await appendFile(`${path}.1`, 'c\n')
  await until(() => seen.length === 3)
  await writeFile(path, 'd\n')
  await until(() => seen.length === 4)
  await stop()
  assert.deepEqual(seen, ['a', 'b', 'c', 'd'])
})

test('a truncated file is followed from its new beginning', async (t) => {
  const path = await fileOf(t, 'long enough\n')
  const { seen, stop } = follow(path, 1)
  await until(() => seen.length === 1)
  await truncate(path)
  await appendFile(path, 'x\n')
  await until(() => seen.length === 2)
  await stop()
  assert.deepEqual(seen, ['long enough', 'x'])
})
