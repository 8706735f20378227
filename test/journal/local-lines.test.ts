import assert from 'node:assert/strict'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { isMeshEvent, keyOf, type JournalEvent, type LocalEvent } from '../../src/journal/events.ts'
import { endedAmong } from '../../src/journal/running-marks.ts'
import { parseLine } from '../../src/journal/parse-line.ts'
import { verifyJournal, type VerifyReport } from '../../src/journal/verify.ts'
import { LOCAL_INTERFACES } from '../../src/protocol/reasons.ts'
import {
  exitEvent,
  linesOf,
  localExit,
  localRequest,
  localRunKey,
  localSession,
  localStarted,
  openJournal,
  requestEvent,
  runKey,
  startedEvent,
} from '../support/journal.ts'
import { until } from '../support/processes.ts'

/** One event of each kind. */
const EVENTS: readonly LocalEvent[] = [
  { event: 'session', ...localSession, state: 'opened', roots: ['/srv/app'], target: null },
  localRequest(1),
  localStarted(1),
  { event: 'warning', ...localRunKey(1), kind: 'stdout_cap_hit', bytes: 9 },
  { event: 'warning', ...localRunKey(1), kind: 'cancelled', bytes: null },
  localExit(1),
  { event: 'file_read', ...localSession, method: 'fs.read', path: 'a/b', bytes: null },
  { event: 'file_write', ...localSession, method: 'fs.write', path: '/srv/app/c', bytes: 5 },
  { event: 'refused', argv: null, ...localSession, method: 'exec.start', code: 'command_denied', detail: 'no' },
  { event: 'lost', ...localRunKey(2) },
  { event: 'session', ...localSession, state: 'closed', roots: ['/srv/app'], target: null },
]

const written = async (t: TestContext, events: readonly JournalEvent[]): Promise<string> => {
  const { journal, path } = await openJournal(t)
  for (const event of events) await journal.append(event)
  return path
}

const problems = ({ problems }: VerifyReport): [string, number][] => problems.map(({ kind, line }) => [kind, line])

test('every line of a local session reads back unchanged, and the journal has no problems', async (t) => {
  const path = await written(t, EVENTS)
  const lines = (await readFile(path)).toString().split('\n').slice(1, -1)
  assert.equal(lines.length, EVENTS.length)
  for (const [at, line] of lines.entries()) {
    const { ts: _ts, chain: _chain, n, prev: _prev, ...event } = parseLine(Buffer.from(line)) ?? assert.fail(line)
    assert.deepEqual(event, EVENTS[at])
    assert.deepEqual([n, isMeshEvent(event as JournalEvent)], [at + 1, false])
  }
  const report = await verifyJournal([path])
  assert.deepEqual([report.ok, report.lines, report.chains, report.running], [true, EVENTS.length + 1, 1, 0])
})

test('lines of every interface are valid', async (t) => {
  const path = await written(
    t,
    LOCAL_INTERFACES.map((door) => ({ event: 'session', ...localSession, door, state: 'opened', roots: [], target: null })),
  )
  assert.equal((await verifyJournal([path])).ok, true)
})

test('an altered, removed, doubled or moved local line is detected', async (t) => {
  const path = await written(t, EVENTS)
  const lines = (await readFile(path, 'utf8')).split('\n').slice(0, -1)
  const check = async (changed: readonly string[]): Promise<[string, number][]> => {
    await writeFile(path, changed.map((line) => `${line}\n`).join(''))
    return problems(await verifyJournal([path]))
  }
  assert.deepEqual(await check(lines.with(2, lines[2]!.replace('["echo"', '["rm"'))), [['altered', 4]])
  assert.deepEqual(await check(lines.with(8, lines[8]!.replace('"bytes":5', '"bytes":4'))), [['altered', 10]])
  assert.deepEqual(await check(lines.toSpliced(8, 1)), [['missing', 9]])
  assert.deepEqual(await check(lines.toSpliced(4, 0, lines[3]!)), [['out_of_place', 5]])
  assert.deepEqual(await check([...lines.slice(0, 6), lines[7]!, lines[6]!, ...lines.slice(8)]), [
    ['missing', 7],
    ['out_of_place', 8],
  ])
  assert.deepEqual(await check(lines.with(7, lines[7]!.replace('"door":"stdio",', ''))), [
    ['unreadable', 8],
    ['missing', 9],
  ])
})

test('a local line with a missing or wrong required field is invalid', async (t) => {
  const path = await written(t, [localRequest(1), EVENTS[0]!])
  const [, run, opened] = (await readFile(path, 'utf8')).split('\n')
  const changed = (line: string | undefined, change: object): unknown =>
    parseLine(Buffer.from(JSON.stringify({ ...(JSON.parse(line!) as object), ...change })))
  for (const key of ['door', 'session_id', 'client_name', 'chain', 'ts', 'n', 'prev', 'event'])
    for (const value of [undefined, 0.5, null, ['x'], true]) assert.equal(changed(opened, { [key]: value }), null, key)
  for (const request_id of [5, null, '', 'x', '../x']) assert.equal(changed(run, { request_id }), null, String(request_id))
  assert.equal(changed(run, { event: 'sessions' }), null)
  assert.notEqual(changed(run, {}), null)
})

test('a run line without the run ID is invalid', async (t) => {
  const path = await written(t, [localStarted(1)])
  const { request_id: _id, ...rest } = (await linesOf(path))[0] as unknown as Record<string, unknown>
  assert.equal(parseLine(Buffer.from(JSON.stringify(rest))), null)
})

test('a line belongs either to a local session or to another agent', async (t) => {
  const path = await written(t, [localStarted(1), startedEvent(1)])
  const [local, mesh] = (await linesOf(path)) as object[]
  assert.equal(parseLine(Buffer.from(JSON.stringify({ ...local, agent_id: 'x' }))), null)
  const { agent_id: _agent, ...less } = mesh as Record<string, unknown>
  assert.equal(parseLine(Buffer.from(JSON.stringify(less))), null)
})

test('a local run and a mesh run with the same ID are independent', async (t) => {
  assert.notEqual(keyOf(localRunKey(1)), keyOf(runKey(1)))
  const one = await verifyJournal([await written(t, [startedEvent(1), localStarted(1), localExit(1)])])
  assert.deepEqual(problems(one), [['unfinished', 2]])
  const other = await verifyJournal([await written(t, [localStarted(1), startedEvent(1), exitEvent(1)])])
  assert.deepEqual(problems(other), [['unfinished', 2]])
  const both = await verifyJournal([await written(t, [localStarted(1), startedEvent(1), exitEvent(1), localExit(1)])])
  assert.deepEqual([both.ok, both.running], [true, 0])
})

test('runs of two sessions with the same ID are independent', async (t) => {
  const other = { ...localStarted(1), session_id: 's_B' } as LocalEvent
  const report = await verifyJournal([await written(t, [localStarted(1), other, localExit(1)])])
  assert.deepEqual(problems(report), [['unfinished', 3]])
})

test('an active mesh run is recognized among local lines', async (t) => {
  const path = await written(t, [localRequest(1), localStarted(1), startedEvent(1), localExit(1)])
  const report = await verifyJournal([path], { running: async () => [runKey(1)] })
  assert.deepEqual([report.ok, report.running], [true, 1])
})

test('a local line does not end a mesh run with the same ID', async (t) => {
  const path = await written(t, [requestEvent(1), localRequest(1), localExit(1)])
  assert.deepEqual(await endedAmong(path, [runKey(1)]), new Set())
  const ended = await written(t, [requestEvent(1), localExit(1), exitEvent(1), localRequest(2)])
  assert.deepEqual(await endedAmong(ended, [runKey(1), runKey(2)]), new Set([keyOf(runKey(1))]))
})

test('a local request creates no mark, and a local exit removes no mark of another run', async (t) => {
  const { journal, runningDir } = await openJournal(t)
  await journal.append(requestEvent(1))
  const marks = await readdir(runningDir)
  assert.equal(marks.length, 1)
  for (const event of EVENTS) await journal.append(event)
  assert.deepEqual(await readdir(runningDir), marks)
  await journal.append(exitEvent(1))
  await until(async () => (await readdir(runningDir)).length === 0)
})

test('after a crash, unfinished mesh runs are recorded as lost, and local runs are not', async (t) => {
  const first = await openJournal(t)
  for (const event of [requestEvent(1), startedEvent(1), localRequest(1), localStarted(1), localExit(1), localRequest(2)])
    await first.journal.append(event)
  const second = await openJournal(t, first.directory)
  await second.journal.stop()
  const lost = ((await linesOf(first.path)) as JournalEvent[]).filter(({ event }) => event === 'lost')
  assert.deepEqual(
    lost.map((event) => isMeshEvent(event) && keyOf(event)),
    [keyOf(runKey(1))],
  )
  const report = await verifyJournal([first.path])
  assert.deepEqual([report.ok, report.chains], [true, 2])
})

test('the name that a client gives itself cannot break its line or deceive a reader', async (t) => {
  const client_name = 'a"b\n{"ts":"\u202e\u0000\u001b[2J\u2028é'
  const path = await written(t, [{ event: 'session', ...localSession, client_name, state: 'opened', roots: ['/a\nb'], target: null }])
  const [, text = '', ...rest] = (await readFile(path, 'utf8')).split('\n')
  assert.deepEqual(rest, [''])
  // oxlint-disable-next-line no-control-regex
  assert.doesNotMatch(text.trimEnd(), /[\u0000-\u001f\u007f-\u009f\u2028\u202e]/)
  const line = parseLine(Buffer.from(text.trimEnd()))
  assert.ok(line !== null && line.event === 'session')
  assert.deepEqual([line.client_name, line.roots], [client_name, ['/a\nb']])
})
