import assert from 'node:assert/strict'
import { appendFile, mkdir, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import fc from 'fast-check'

import type { JournalEvent } from '../../src/journal/events.ts'
import { Chain, prepareLine } from '../../src/journal/line.ts'
import { JournalledRuns } from '../../src/journal/past-runs.ts'
import { localMarksOf } from '../../src/journal/running-marks.ts'
import { ownIdentity } from '../../src/base/process-info.ts'
import { newRequestId } from '../../src/identity/request-id.ts'
import { tempDir } from '../support/temp-dir.ts'

const [KEY, CALL, LAST_KEY] = ['a'.repeat(64), 'b'.repeat(64), 'c'.repeat(64)]
const run = (request_id = newRequestId()) => ({ door: 'mcp' as const, session_id: 's_1', client_name: 'a test', request_id })

const requestOf = (key: ReturnType<typeof run>, key_sha256: string | null = KEY): JournalEvent => ({
  event: 'request',
  ...key,
  argv: ['true'],
  matched_acl: null,
  stdin_bytes: 0,
  stdin_sha256: null,
  timeout_ms: 1,
  request_sha256: null,
  executable: null,
  account: null,
  cwd: '/srv',
  env: [],
  target: null,
  tool: { operation: 'exec', key_sha256, call_sha256: CALL },
})

const EXIT = { code: 0, signal: null, duration_ms: 5, stdout_bytes: 3, stderr_bytes: 0, truncated: false }
const exitOf = (
  key: ReturnType<typeof run>,
  how: Partial<Record<'code' | 'signal', null>> = {},
  truncated = EXIT.truncated,
): JournalEvent => ({
  event: 'exit',
  ...key,
  ...EXIT,
  ...how,
  truncated,
  stdout_sha256: null,
  stderr_sha256: null,
})

const textOf = (events: readonly JournalEvent[]): string =>
  new Chain({ id: newRequestId() })
    .encode(events.map((event) => prepareLine(event, 0)))
    .map(({ bytes }) => `${bytes.toString()}\n`)
    .join('')

test('a key finds its run and the end of that run', async (t) => {
  const path = join(await tempDir(t), 'audit.log')
  const [one, other, without] = [run(), run(), run()]
  const begun = { request_id: one.request_id, call_sha256: CALL, started_at: '1970-01-01T00:00:00.000Z', cwd: '/srv', timeout_ms: 1 }
  await writeFile(path, textOf([requestOf(one), requestOf(without, null), exitOf(without)]))
  const runs = new JournalledRuns({ path })
  assert.equal(await runs.find(CALL), null)
  assert.deepEqual(await runs.find(KEY), {
    ...begun,
    timeout_clamped: false,
    timed_out: false,
    descendants_ended: null,
    end: { kind: 'none' },
  })
  const warnings = (['timeout_clamped', 'descendants_ended', 'duration_cap_hit'] as const).map((kind) => ({
    event: 'warning' as const,
    ...one,
    kind,
    bytes: null,
    ...(kind === 'descendants_ended' && { processes: 3 }),
  }))
  await appendFile(path, textOf([...warnings, exitOf(other), exitOf(one)]))
  assert.deepEqual(await runs.find(KEY), {
    ...begun,
    timeout_clamped: true,
    timed_out: true,
    descendants_ended: 3,
    end: { kind: 'exit', ...EXIT },
  })
  // A key that was used again, after an older journal was removed, belongs to the last run.
  await appendFile(path, textOf([requestOf(other), { event: 'lost', ...other }, exitOf(one)]))
  assert.deepEqual((await runs.find(KEY))?.end, { kind: 'lost' })
  const unknown = { code: null, signal: null }
  await appendFile(path, textOf([exitOf(other, unknown, false)]))
  assert.deepEqual((await runs.find(KEY))?.end, { kind: 'exit', ...EXIT, ...unknown, truncated: false }, 'it never ran')
  await appendFile(path, textOf([exitOf(other, unknown, true)]))
  assert.deepEqual((await runs.find(KEY))?.end, { kind: 'lost' }, 'nobody was told how it ended')
  await appendFile(path, textOf([{ event: 'refused', ...other, method: 'exec', argv: ['true'], code: 'command_denied', detail: 'no' }]))
  assert.deepEqual((await runs.find(KEY))?.end, { kind: 'refused', code: 'command_denied', detail: 'no' })
})

test('invalid lines in the file are skipped', async (t) => {
  const path = join(await tempDir(t), 'audit.log')
  const line = textOf([requestOf(run())]).trimEnd()
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(fc.nat(line.length - 1), fc.constantFrom(...'{}[]":,0an ')), { maxLength: 4 }), async (changes) => {
      let text = line
      for (const [at, other] of changes) text = text.slice(0, at) + other + text.slice(at + 1)
      await writeFile(path, `${text}\n{"key_sha256":"\n${line}\n`)
      assert.equal((await new JournalledRuns({ path }).find(KEY))?.call_sha256, CALL)
    }),
    { numRuns: 200 },
  )
})

test('a journal that cannot be read is an error instead of an empty journal', async (t) => {
  await assert.rejects(new JournalledRuns({ path: join(await tempDir(t), 'none') }).find(KEY), { code: 'ENOENT' })
})

test('a query also reads new lines of other writers, completed partial lines and a rotated file', async (t) => {
  const path = join(await tempDir(t), 'audit.log')
  const [one, other] = [run(), run()]
  await writeFile(path, textOf([requestOf(one)]))
  const runs = new JournalledRuns({ path })
  assert.equal((await runs.find(KEY))?.end.kind, 'none')
  const text = textOf([exitOf(one)])
  await appendFile(path, text.slice(0, 40))
  assert.equal((await runs.find(KEY))?.end.kind, 'none')
  await appendFile(path, text.slice(40))
  const asked = await Promise.all(Array.from({ length: 20 }, async () => runs.find(KEY)))
  assert.deepEqual(
    asked.map((known) => known?.end.kind),
    Array.from({ length: 20 }, () => 'exit'),
  )
  // Written after the last read and before the rotation.
  const last = run()
  await appendFile(path, textOf([requestOf(last, LAST_KEY)]))
  await rename(path, `${path}.1`)
  await writeFile(path, textOf([requestOf(other, CALL), exitOf(last)]))
  assert.deepEqual([(await runs.find(CALL))?.request_id, (await runs.find(KEY))?.end.kind], [other.request_id, 'exit'])
  assert.equal((await runs.find(LAST_KEY))?.end.kind, 'exit')
})

test('a run is active while a living process marks it, and not if another process has that pid', async (t) => {
  const path = join(await tempDir(t), 'audit.log')
  const key = run()
  const directory = localMarksOf(path)
  await mkdir(directory, { mode: 0o700 })
  await writeFile(path, textOf([requestOf(key)]))
  const { pid, started, namespace, boot, machine } = ownIdentity()
  const mark = (born: string): string =>
    `${key.request_id}.${key.session_id}.mcp.${Buffer.from(key.client_name).toString('base64url')}.${[pid, born, namespace, boot, machine].join('-')}`
  const runs = new JournalledRuns({ path })
  await writeFile(join(directory, mark('1')), '')
  assert.equal((await runs.find(KEY))?.end.kind, 'none')
  await writeFile(join(directory, mark(started)), '')
  assert.equal((await runs.find(KEY))?.end.kind, 'goes_on')
  await appendFile(path, textOf([exitOf(key)]))
  assert.equal((await runs.find(KEY))?.end.kind, 'exit')
})
