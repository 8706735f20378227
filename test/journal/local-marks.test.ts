import assert from 'node:assert/strict'
import { chmod, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { JournalLine, LocalEvent, LocalRunKey } from '../../src/journal/events.ts'
import { Journal } from '../../src/journal/journal.ts'
import { listLocalRuns, LocalMarks, localMarksOf } from '../../src/journal/running-marks.ts'
import { verifyJournal } from '../../src/journal/verify.ts'
import type { Logger } from '../../src/base/log.ts'
import { ownIdentity, type ProcessIdentity } from '../../src/base/process-info.ts'
import { linesOf, localExit, localRequest, localRunKey, localStarted, runKey } from '../support/journal.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent, temporaryDirectory, until } from '../support/processes.ts'

const refused = (n: number): LocalEvent => ({
  event: 'refused',
  ...localRunKey(n),
  method: 'exec.start',
  argv: ['true'],
  code: 'x',
  detail: 'x',
})
/** The events of a run before its end. */
const begin = async (journal: Journal, n: number): Promise<void> => {
  await journal.append(localRequest(n))
  await journal.append(localStarted(n))
}
interface Place {
  readonly path: string
  readonly marks: string
  open(log?: Logger): Promise<Journal>
  /** Request IDs of the runs that are recorded as lost. */
  lost(): Promise<string[]>
  /** Assigns the marks to another process, by default to one that has ended. */
  die(other?: Partial<ProcessIdentity>): Promise<void>
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
    die: async (other = { started: '1' }) => {
      const { pid, started, namespace, boot, machine } = { ...ownIdentity(), ...other }
      const owner = [pid, started, namespace, boot, machine].join('-')
      for (const name of await readdir(marks)) await rename(join(marks, name), join(marks, name.replace(/[^.]*$/, owner)))
    },
  }
}

test('a run is marked from its request to its end, even if it is refused', async (t) => {
  const { marks, open } = await place(t)
  const journal = await open()
  for (const n of [1, 2, 3]) await journal.append(localRequest(n))
  assert.deepEqual(await listLocalRuns(marks), [localRunKey(1), localRunKey(2), localRunKey(3)])
  await journal.append(refused(1))
  // A refusal without a run.
  await journal.append({ ...refused(2), request_id: undefined } as never)
  await Promise.all([journal.append(localStarted(2)), journal.append(localExit(2))])
  await journal.stop()
  assert.deepEqual(await listLocalRuns(marks), [localRunKey(3)])
})

test('a name that a client chose is read back unchanged from its mark', async (t) => {
  const { marks } = await place(t)
  const all = new LocalMarks({ log: silent }, { directory: marks })
  await all.open()
  const names = ['a', '../../x', 'x'.repeat(64), '\n\0.é', '🎉'.repeat(16)]
  for (const [n, name] of names.entries()) await all.add({ ...localRunKey(n), client_name: name })
  const found = (await listLocalRuns(marks)).map(({ client_name }) => client_name)
  assert.deepEqual(found.toSorted(), names.toSorted())
})

test('the next start records runs of dead processes as lost, once, and leaves active runs alone', async (t) => {
  const { path, marks, open, lost, die } = await place(t)
  const first = await open()
  for (const n of [1, 2]) await begin(first, n)
  await first.append(localExit(2))
  await until(async () => (await readdir(marks)).length === 1)
  await die()
  await begin(first, 3)
  assert.deepEqual((await verifyJournal([path])).problem_count, 2)
  const next = await Promise.all([open(), open(), open()])
  assert.deepEqual(await lost(), [runKey(1).request_id])
  const report = await verifyJournal([path], { running: async () => listLocalRuns(marks) })
  assert.deepEqual([report.ok, report.running], [true, 1])
  await first.append(localExit(3))
  for (const journal of [first, ...next]) await journal.stop()
  assert.deepEqual(await readdir(marks), [])
  assert.equal((await verifyJournal([path])).ok, true)
})

test('a run whose end was written before its process died is not lost', async (t) => {
  const { marks, open, lost, die } = await place(t)
  const first = await open()
  await begin(first, 1)
  const names = await readdir(marks)
  await first.append(localExit(1))
  await first.stop()
  for (const name of names) await writeFile(join(marks, name), '')
  await die()
  await open()
  assert.deepEqual([await lost(), await readdir(marks)], [[], []])
})

for (const [what, other] of [
  ['another PID namespace', { namespace: '1' }],
  ['another host', { boot: '1', machine: '1' }],
] as const)
  test(`a run of ${what}, which cannot be inspected, counts as active and not as lost`, async (t) => {
    const { path, marks, open, lost, die } = await place(t)
    await begin(await open(), 1)
    await die(other)
    for (const name of ['not a mark', `${runKey(1).request_id}.s_A.nowhere.YQ.1-1-1-1-1`]) await writeFile(join(marks, name), '')
    const names = await readdir(marks)
    await open()
    assert.deepEqual([await lost(), await listLocalRuns(marks)], [[], [localRunKey(1)]])
    const report = await verifyJournal([path], { running: async () => listLocalRuns(marks) })
    assert.deepEqual([report.ok, report.running], [true, 1])
    assert.deepEqual((await readdir(marks)).toSorted(), names.toSorted())
  })

test('a run continues if its mark cannot be created', async (t) => {
  const { marks, open } = await place(t)
  const said: string[] = []
  const journal = await open({ ...silent, warn: (_fields: unknown, text?: string) => void said.push(String(text)) })
  await rm(marks, { recursive: true })
  await begin(journal, 1)
  await journal.append(localExit(1))
  assert.deepEqual(said, ['a run could not be marked'])
})

test('runs that start or end during a verification cause no problem', async (t) => {
  const { path, marks, open } = await place(t)
  const journal = await open()
  for (const n of [1, 2]) await begin(journal, n)
  const running = async (): Promise<LocalRunKey[]> => {
    const now = await listLocalRuns(marks)
    // These changes come after the journal was read and after the marks were listed.
    await journal.append(localExit(1))
    await begin(journal, 3)
    return now.filter(({ request_id }) => request_id !== runKey(1).request_id)
  }
  const report = await verifyJournal([path], { running })
  assert.deepEqual([report.ok, report.problems, report.running, report.lines], [true, [], 1, 8])
})

test('if no marks can be created, runs continue and a warning is logged', async (t) => {
  const { marks, open } = await place(t)
  await writeFile(marks, '')
  const said: string[] = []
  const journal = await open({ ...silent, warn: (_fields: unknown, text?: string) => void said.push(String(text)) })
  await begin(journal, 1)
  await journal.append(localExit(1))
  assert.deepEqual(said, ['runs cannot be marked: if this process is killed, the audit log will lack the ends of its runs'])
  assert.deepEqual(await listLocalRuns(marks), [])
})

test('marks in a directory that other users can write to are ignored', async (t) => {
  const { marks, open, lost, die } = await place(t)
  await begin(await open(), 1)
  await die()
  await chmod(marks, 0o777)
  await open()
  assert.deepEqual([await lost(), (await readdir(marks)).length], [[], 1])
})
