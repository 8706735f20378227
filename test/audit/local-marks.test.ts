import assert from 'node:assert/strict'
import { chmod, readdir, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { JournalLine, LocalEvent, LocalRunKey } from '../../src/audit/events.ts'
import { Journal } from '../../src/audit/journal.ts'
import { listLocalRuns, LocalMarks, localMarksOf } from '../../src/audit/local-marks.ts'
import { verifyJournal } from '../../src/audit/verify.ts'
import type { Logger } from '../../src/base/log.ts'
import { ownIdentity } from '../../src/base/process-identity.ts'
import { linesOf, runKey } from '../support/journal.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent, temporaryDirectory } from '../support/processes.ts'

/** The n-th run of a session. */
const runOf = (n: number, client_name = 'an agent'): LocalRunKey => ({
  door: 'websocket',
  session_id: 's_AAAAAAAAAAAAAAAAAAAAA-_',
  client_name,
  request_id: runKey(n).request_id,
})
const started = (n: number): LocalEvent => ({ event: 'started', ...runOf(n), pid: 1_000 + n, containment: 'group' })
const exited = (n: number): LocalEvent => ({
  event: 'exit',
  ...runOf(n),
  code: 0,
  signal: null,
  duration_ms: 3,
  stdout_bytes: 2,
  stderr_bytes: 0,
  truncated: false,
})

interface Place {
  readonly path: string
  readonly marks: string
  open(log?: Logger): Promise<Journal>
  /** How many runs were called lost. */
  lost(): Promise<string[]>
  /** Makes the marks those of a process that has ended. */
  die(namespace?: string): Promise<void>
}

const place = async (t: TestContext): Promise<Place> => {
  const directory = await temporaryDirectory(t)
  const path = join(directory, 'audit.log')
  const marks = localMarksOf(path)
  return {
    path,
    marks,
    open: async (log = silent) => {
      const journal = new Journal({ clock: new ManualClock(), log }, { path, marks: new LocalMarks({ log }, { directory: marks }) })
      await journal.start()
      t.after(async () => journal.stop())
      return journal
    },
    lost: async () =>
      ((await linesOf(path)) as (JournalLine & LocalRunKey)[]).filter(({ event }) => event === 'lost').map(({ request_id }) => request_id),
    die: async (namespace = ownIdentity().namespace) => {
      for (const name of await readdir(marks))
        await rename(join(marks, name), join(marks, name.replace(/[^.]*$/, `${process.pid}-1-${namespace}`)))
    },
  }
}

test('a run is marked from its start to its end, however short it is', async (t) => {
  const { marks, open } = await place(t)
  const journal = await open()
  await journal.append(started(1))
  assert.deepEqual(await listLocalRuns(marks), [runOf(1)])
  await Promise.all([journal.append(started(2)), journal.append(exited(2)), journal.append(exited(1))])
  await journal.stop()
  assert.deepEqual(await readdir(marks), [])
})

test('a name that a caller gave itself comes back as it was', async (t) => {
  const { marks } = await place(t)
  const all = new LocalMarks({ log: silent }, { directory: marks })
  await all.open()
  const names = ['a', '../../x', 'x'.repeat(64), '\n\0.é', '🎉'.repeat(16)]
  for (const [n, name] of names.entries()) await all.add(runOf(n, name))
  const found = (await listLocalRuns(marks)).map(({ client_name }) => client_name)
  assert.deepEqual(found.toSorted(), names.toSorted())
})

test('the next start calls lost what ran in a process that is gone, once, and leaves alone what runs', async (t) => {
  const { path, marks, open, lost, die } = await place(t)
  const first = await open()
  for (const event of [started(1), started(2), exited(2)]) await first.append(event)
  await die()
  await first.append(started(3))
  assert.deepEqual((await verifyJournal([path])).problem_count, 2)
  const next = await Promise.all([open(), open(), open()])
  assert.deepEqual(await lost(), [runKey(1).request_id])
  const report = await verifyJournal([path], { running: await listLocalRuns(marks) })
  assert.deepEqual([report.ok, report.running], [true, 1])
  await first.append(exited(3))
  for (const journal of [first, ...next]) await journal.stop()
  assert.deepEqual(await readdir(marks), [])
  assert.equal((await verifyJournal([path])).ok, true)
})

test('a run whose end was written when its process died is not lost', async (t) => {
  const { marks, open, lost, die } = await place(t)
  const first = await open()
  await first.append(started(1))
  const names = await readdir(marks)
  await first.append(exited(1))
  await first.stop()
  for (const name of names) await writeFile(join(marks, name), '')
  await die()
  await open()
  assert.deepEqual([await lost(), await readdir(marks)], [[], []])
})

test('a run of a PID namespace that nobody sees into is neither called lost nor running', async (t) => {
  const { marks, open, lost, die } = await place(t)
  await (await open()).append(started(1))
  await die('1')
  for (const name of ['not a mark', `${runKey(1).request_id}.s_A.nowhere.YQ.1-1-1`]) await writeFile(join(marks, name), '')
  const names = await readdir(marks)
  await open()
  assert.deepEqual([await lost(), await listLocalRuns(marks)], [[], []])
  assert.deepEqual((await readdir(marks)).toSorted(), names.toSorted())
})

test('where no marks can be made runs go on, and that is said', async (t) => {
  const { marks, open } = await place(t)
  await writeFile(marks, '')
  const said: string[] = []
  const journal = await open({ ...silent, warn: (_fields: unknown, text?: string) => void said.push(String(text)) })
  await journal.append(started(1))
  await journal.append(exited(1))
  assert.deepEqual(said, ['runs cannot be marked: those that end with this process will have no end in the journal'])
  assert.deepEqual(await listLocalRuns(marks), [])
})

test('marks in a directory that others may write are not believed', async (t) => {
  const { marks, open, lost, die } = await place(t)
  await (await open()).append(started(1))
  await die()
  await chmod(marks, 0o777)
  await open()
  assert.deepEqual([await lost(), (await readdir(marks)).length], [[], 1])
})
