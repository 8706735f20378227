import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  appendFile,
  chmod,
  link,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
  type FileHandle,
} from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { test } from 'node:test'

import { Journal } from '../../src/journal/journal.ts'
import { RunningMarks } from '../../src/journal/running-marks.ts'
import { verifyJournal } from '../../src/journal/verify.ts'
import { MAX_JOURNAL_LINE } from '../../src/protocol/limits/daemon.ts'
import { denialEvent, exitEvent, linesOf, openJournal, requestEvent, runKey, startedEvent, type MeshLine } from '../support/journal.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent, temporaryDirectory, until } from '../support/processes.ts'
import { NO_DISK, smallDisk } from '../support/small-disk.ts'
import { MAX_JOURNAL_QUEUE_BYTES } from '../../src/journal/writer.ts'

const unavailable = { code: 'journal_unavailable' }

test('an append resolves with its line in a private file, after the opening line', async (t) => {
  const { journal, clock, path } = await openJournal(t)
  await journal.append(requestEvent(1))
  const [first = '', text = ''] = (await readFile(path, 'utf8')).split('\n')
  assert.match(first, /^\{"ts":"[^"]+","event":"began","chain":"[0-9a-f-]{36}","n":0,"prev":"0{64}",/)
  assert.match(text, /^\{"ts":"[^"]+","event":"request","chain":"[0-9a-f-]{36}","n":1,"prev":"[0-9a-f]{64}",/)
  const { chain, ...line } = JSON.parse(text) as MeshLine
  assert.equal(typeof chain, 'string')
  assert.deepEqual(line, {
    ts: new Date(clock.now()).toISOString(),
    n: 1,
    prev: createHash('sha256').update(first).digest('hex'),
    ...requestEvent(1),
  })
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  assert.equal((await stat(dirname(path))).mode & 0o777, 0o700)
})

test('only lines that announce an effect wait for the disk, and other lines are synced with them', async (t) => {
  const { journal, path } = await openJournal(t)
  const handle = await open(path, 'a')
  const sync = t.mock.method(Object.getPrototypeOf(handle) as FileHandle, 'datasync')
  await handle.close()
  const counts: number[] = []
  for (const event of [requestEvent(1), startedEvent(1), exitEvent(1), denialEvent(2)]) {
    await journal.append(event)
    counts.push(sync.mock.callCount())
  }
  assert.deepEqual(counts, [1, 1, 2, 3])
  assert.equal((await linesOf(path)).length, 4)
})

test('every line has the hash of the line before it, in the order of the appends', async (t) => {
  const { journal, path } = await openJournal(t)
  await Promise.all(Array.from({ length: 300 }, (_item, n) => journal.append(denialEvent(n))))
  const lines = (await readFile(path, 'utf8')).split('\n').slice(0, -1)
  let prev = createHash('sha256').update(lines.shift()!).digest('hex')
  for (const [n, text] of lines.entries()) {
    const line = JSON.parse(text) as MeshLine
    assert.deepEqual([line.n, line.prev, line.request_id], [n + 1, prev, runKey(n).request_id])
    prev = createHash('sha256').update(text).digest('hex')
  }
  assert.equal(lines.length, 300)
})

test('text from a requester cannot break a line or deceive its reader', async (t) => {
  const { journal, path } = await openJournal(t)
  const argv = [
    'a\nb"},{"event":"exit"',
    '\u001b[2J\u007f\u009b',
    '\u202egnp.exe\u2066',
    'x\u200bx\ufeff',
    '\u2028',
    '\u{e0041}',
    '\ud800',
    'é漢🙂',
  ]
  await journal.append(requestEvent(1, argv))
  const text = (await readFile(path, 'utf8')).replace(/^.*\n/, '')
  assert.equal(text.split('\n').length, 2)
  // eslint-disable-next-line no-control-regex
  assert.doesNotMatch(text.slice(0, -1), /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|[\u{e0000}-\u{e007f}]/u)
  assert.ok(text.includes('é漢🙂'))
  assert.deepEqual((JSON.parse(text) as { argv: string[] }).argv, argv)
})

test('the chain continues in the new file when the old one was renamed or deleted', async (t) => {
  const { journal, path } = await openJournal(t)
  await journal.append(denialEvent(0))
  await rename(path, `${path}.1`)
  await journal.append(denialEvent(1))
  await rename(path, `${path}.0`)
  await writeFile(path, '', { mode: 0o600 })
  await journal.append(denialEvent(2))
  const report = await verifyJournal([path, `${path}.0`, `${path}.1`])
  assert.deepEqual([report.ok, report.lines, report.chains], [true, 4, 1])
  await rm(path)
  await journal.append(denialEvent(3))
  assert.deepEqual(
    (await linesOf(path)).map((line) => (line as MeshLine).n),
    [4],
  )
})

test('two journals can write to one file at the same time', async (t) => {
  const first = await openJournal(t)
  const second = await openJournal(t, join(first.directory, 'second'), first.path)
  await Promise.all(Array.from({ length: 100 }, (_item, n) => (n % 2 ? first : second).journal.append(denialEvent(n))))
  const report = await verifyJournal([first.path])
  assert.deepEqual([report.ok, report.lines, report.chains], [true, 102, 2])
})

test('a line torn by a crash stays, and the next line starts on its own', async (t) => {
  const first = await openJournal(t)
  await first.journal.append(denialEvent(0))
  await first.journal.stop()
  const text = await readFile(first.path, 'utf8')
  await appendFile(first.path, text.slice(0, 100))
  const second = await openJournal(t, first.directory)
  await second.journal.append(denialEvent(1))
  const lines = await linesOf(first.path)
  assert.deepEqual([lines.length, lines[1]], [3, text.slice(0, 100)])
  const report = await verifyJournal([first.path])
  assert.deepEqual([report.ok, report.torn_lines, report.chains], [true, 1, 2])
})

test('a line torn by another process is ended before the next line is written', async (t) => {
  const { journal, path } = await openJournal(t)
  await journal.append(denialEvent(0))
  await appendFile(path, '{"ts":"2026')
  await journal.append(denialEvent(1))
  const report = await verifyJournal([path])
  assert.deepEqual([report.ok, report.lines, report.torn_lines], [true, 4, 1])
})

test('a full disk refuses lines, keeps the chain intact, and recovers when there is space', async (t) => {
  const disk = await smallDisk(t, 64)
  if (disk === null) return t.skip(NO_DISK)
  const { journal, path } = await openJournal(t, undefined, join(disk, 'exec.log'))
  await journal.append(denialEvent(0))
  await writeFile(join(disk, 'ballast'), Buffer.alloc(64 * 1024)).catch(() => {})
  const long = requestEvent(1, ['x'.repeat(9_000)])
  await assert.rejects(journal.append(long), unavailable)
  const status = await journal.status()
  assert.deepEqual([status.path, status.writable], [path, false])
  assert.match(status.problem ?? '', /ENOSPC|no space left/)
  await rm(join(disk, 'ballast'))
  await journal.append(long)
  assert.deepEqual((await journal.status()).problem, null)
  await journal.append(exitEvent(1))
  const report = await verifyJournal([path])
  assert.deepEqual([report.ok, report.chains, report.lines - report.torn_lines], [true, 1, 4])
})

test('if a batch does not fit, the written lines count and the others are refused', async (t) => {
  const disk = await smallDisk(t, 64)
  if (disk === null) return t.skip(NO_DISK)
  const { journal, path } = await openJournal(t, undefined, join(disk, 'exec.log'))
  // The limit for free space does not apply to this event.
  const change = { event: 'authority', operation: 'contact_trust', agent: null, machine: null, level: null, code: null } as const
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => journal.append({ ...change, detail: 'x'.repeat(9_000) })))
  const settled = results.filter(({ status }) => status === 'fulfilled').length
  assert.ok(settled > 0 && settled < 20, `${settled}`)
  assert.ok(results.slice(settled).every(({ status }) => status === 'rejected'))
  const report = await verifyJournal([path])
  assert.deepEqual([report.ok, report.lines - report.torn_lines], [true, settled + 1])
})

test('a missing directory refuses lines until it exists again', async (t) => {
  const { journal, path } = await openJournal(t)
  await rm(dirname(path), { recursive: true })
  await assert.rejects(journal.append(denialEvent(0)), unavailable)
  assert.equal((await journal.status()).writable, false)
  await mkdir(dirname(path), { mode: 0o700 })
  await journal.append(denialEvent(1))
  assert.equal((await journal.status()).writable, true)
})

test('a directory that cannot be created does not prevent the start', async (t) => {
  const directory = await temporaryDirectory(t)
  await writeFile(join(directory, 'log'), 'a file in its place')
  const { journal } = await openJournal(t, directory)
  assert.equal((await journal.status()).writable, false)
  await assert.rejects(journal.append(denialEvent(0)), unavailable)
  await rm(join(directory, 'log'))
  await journal.append(denialEvent(1))
})

test('a read-only file system refuses lines until it is writable', async (t) => {
  const disk = await smallDisk(t, 1024)
  if (disk === null) return t.skip(NO_DISK)
  const { journal } = await openJournal(t, undefined, join(disk, 'log', 'exec.log'))
  await journal.append(denialEvent(0))
  await journal.stop()
  const remount = (mode: string): void => assert.equal(spawnSync('mount', ['-o', `remount,${mode}`, disk]).status, 0)
  const second = new Journal(
    { clock: new ManualClock(), log: silent },
    {
      path: join(disk, 'log', 'exec.log'),
      marks: new RunningMarks({ log: silent }, { directory: await temporaryDirectory(t), journal: join(disk, 'log', 'exec.log') }),
    },
  )
  remount('ro')
  await second.start()
  t.after(() => second.stop())
  assert.equal((await second.status()).writable, false)
  await assert.rejects(second.append(denialEvent(1)), unavailable)
  remount('rw')
  await second.append(denialEvent(2))
})

test('a file that others can write, a link, a directory or a pipe is not used as a journal', async (t) => {
  const { journal, path, directory } = await openJournal(t)
  await rm(path)
  await writeFile(path, '')
  await chmod(path, 0o620)
  await assert.rejects(journal.append(denialEvent(0)), { ...unavailable, message: /writable by others/ })
  await rm(path)
  await writeFile(join(directory, 'elsewhere'), '')
  await symlink(join(directory, 'elsewhere'), path)
  await assert.rejects(journal.append(denialEvent(0)), unavailable)
  await rm(path)
  await mkdir(path)
  await assert.rejects(journal.append(denialEvent(0)), unavailable)
  await rm(path, { recursive: true })
  assert.equal(spawnSync('mkfifo', [path]).status, 0)
  await assert.rejects(journal.append(denialEvent(0)), { ...unavailable, message: /not a regular file/ })
  await rm(path)
  await writeFile(join(directory, 'ours'), '', { mode: 0o600 })
  await link(join(directory, 'ours'), path)
  await journal.append(denialEvent(0))
})

test('a new run may have the ID of a run that was just refused and whose mark is being removed', async (t) => {
  const { journal, path } = await openJournal(t)
  for (let round = 0; round < 200; round++) {
    await journal.append(requestEvent(1))
    await journal.append(denialEvent(1, 'spawn_failed'))
  }
  await journal.stop()
  assert.equal((await readFile(path, 'utf8')).split('"event":"request"').length, 201)
})

test('a run has a mark until its end, and is denied if the mark cannot be created', async (t) => {
  const { journal, runningDir } = await openJournal(t)
  const marks = (): Promise<string[]> => readdir(runningDir)
  await journal.append(denialEvent(0))
  assert.deepEqual(await marks(), [])
  await journal.append(requestEvent(1))
  await journal.append(startedEvent(1))
  assert.equal((await marks()).length, 1)
  await assert.rejects(journal.append(requestEvent(1)), unavailable)
  await journal.append(denialEvent(1))
  // A removed mark would be gone after the next sync.
  await journal.append(denialEvent(9))
  assert.equal((await marks()).length, 1)
  await journal.append(exitEvent(1))
  await until(async () => (await marks()).length === 0)
  await journal.append(requestEvent(2))
  await journal.append(denialEvent(2, 'spawn_failed'))
  await until(async () => (await marks()).length === 0)
  await rm(runningDir, { recursive: true })
  await assert.rejects(journal.append(requestEvent(3)), unavailable)
})

test('a request that could not be written leaves no mark', async (t) => {
  const { journal, path, runningDir } = await openJournal(t)
  await rm(dirname(path), { recursive: true })
  await assert.rejects(journal.append(requestEvent(1)), unavailable)
  assert.deepEqual(await readdir(runningDir), [])
})

test('the start after a crash records active runs as lost, once', async (t) => {
  const first = await openJournal(t)
  for (const n of [1, 2]) {
    await first.journal.append(requestEvent(n))
    await first.journal.append(startedEvent(n))
  }
  await first.journal.append(exitEvent(2))
  await until(async () => (await readdir(first.runningDir)).length === 1)
  await writeFile(join(first.runningDir, 'not a mark'), '')
  await openJournal(t, first.directory)
  const lost = (await linesOf(first.path)).filter((line) => (line as MeshLine).event === 'lost') as MeshLine[]
  assert.deepEqual(
    lost.map(({ request_id, n }) => [request_id, n]),
    [[runKey(1).request_id, 1]],
  )
  assert.deepEqual(await readdir(first.runningDir), ['not a mark'])
  assert.equal((await verifyJournal([first.path])).ok, true)
  await openJournal(t, first.directory)
  assert.equal((await linesOf(first.path)).filter((line) => (line as MeshLine).event === 'lost').length, 1)
})

test('a run whose end was written before a crash is not lost, and only its mark is removed', async (t) => {
  const first = await openJournal(t)
  for (const n of [1, 2, 3, 4]) await first.journal.append(requestEvent(n))
  const marks = await readdir(first.runningDir)
  await first.journal.append(exitEvent(1))
  await first.journal.append(denialEvent(2, 'spawn_failed'))
  await first.journal.append({ event: 'lost', ...runKey(3) })
  // A denial for another reason under this ID does not end the run.
  await first.journal.append(denialEvent(4))
  await until(async () => (await readdir(first.runningDir)).length === 1)
  for (const mark of marks) await writeFile(join(first.runningDir, mark), '')
  await openJournal(t, first.directory)
  assert.deepEqual(await readdir(first.runningDir), [])
  const lost = ((await linesOf(first.path)) as MeshLine[]).filter(({ event }) => event === 'lost')
  assert.deepEqual(
    lost.map(({ request_id }) => request_id),
    [runKey(3).request_id, runKey(4).request_id],
  )
})

test('a lost run that cannot be recorded at the start is recorded once the journal is writable', async (t) => {
  const first = await openJournal(t)
  await first.journal.append(requestEvent(1))
  await first.journal.append(startedEvent(1))
  await first.journal.stop()
  await chmod(first.path, 0o666)
  const second = await openJournal(t, first.directory)
  assert.equal((await readdir(first.runningDir)).length, 1)
  await chmod(first.path, 0o600)
  await second.journal.append(denialEvent(2))
  await until(async () => (await readdir(first.runningDir)).length === 0)
  assert.deepEqual(
    (await linesOf(first.path)).map((line) => (line as MeshLine).event),
    ['request', 'started', 'denial', 'lost'],
  )
})

test('a stop writes queued lines, and a journal that is not running refuses lines', async (t) => {
  const directory = await temporaryDirectory(t)
  const path = join(directory, 'exec.log')
  const journal = new Journal(
    { clock: new ManualClock(), log: silent },
    { path, marks: new RunningMarks({ log: silent }, { directory: join(directory, 'running'), journal: path }) },
  )
  await assert.rejects(journal.append(denialEvent(0)), unavailable)
  await journal.start()
  const appended = Promise.all(Array.from({ length: 50 }, (_item, n) => journal.append(denialEvent(n))))
  await journal.stop()
  await appended
  assert.equal((await linesOf(path)).length, 50)
  await assert.rejects(journal.append(denialEvent(0)), unavailable)
  await journal.stop()
})

test('a line above the maximum length, and lines above the queue limit, are refused at once', async (t) => {
  const { journal } = await openJournal(t)
  await assert.rejects(journal.append(requestEvent(0, ['x'.repeat(MAX_JOURNAL_LINE)])), { ...unavailable, message: /too long/ })
  const size = MAX_JOURNAL_LINE - 1_000
  const count = Math.floor(MAX_JOURNAL_QUEUE_BYTES / size) + 1
  const results = await Promise.allSettled(
    Array.from({ length: count }, (_item, n) =>
      journal.append({ ...denialEvent(n), detail: 'x'.repeat(size) } as ReturnType<typeof denialEvent>),
    ),
  )
  assert.deepEqual(
    results.map(({ status }) => status),
    [...Array.from({ length: count - 1 }, () => 'fulfilled'), 'rejected'],
  )
  await journal.append(denialEvent(1))
})

test('the longest argv of a request fits into a line even if every byte is a control character', async (t) => {
  const { journal } = await openJournal(t)
  await journal.append(requestEvent(0, ['\u0001'.repeat(32 * 1024)]))
})

test('a journal without marks records runs and creates no other file', async (t) => {
  const directory = await temporaryDirectory(t)
  const path = join(directory, 'requests.jsonl')
  const journal = new Journal({ clock: new ManualClock(), log: silent }, { path, marks: null })
  await assert.rejects(journal.append(requestEvent(1)), unavailable)
  await journal.start()
  const asked = { event: 'asked', ...runKey(1), argv: ['x'], stdin_bytes: 0, timeout_ms: null, proven: false } as const
  await Promise.all([journal.append(asked), journal.append({ ...asked, proven: true }), journal.append(requestEvent(2))])
  await journal.append(exitEvent(2))
  await journal.stop()
  assert.deepEqual(
    (await linesOf(path)).map((line) => typeof line === 'object' && line.event),
    ['asked', 'asked', 'request', 'exit'],
  )
  assert.deepEqual(await readdir(directory), ['requests.jsonl'])
  assert.equal((await verifyJournal([path])).ok, true)
})

test('marks on another file system than the journal are synced separately', async (t) => {
  const disk = await smallDisk(t, 1024)
  if (disk === null) return t.skip(NO_DISK)
  const handle = await open(disk)
  const proto = Object.getPrototypeOf(handle) as FileHandle
  await handle.close()
  for (const elsewhere of [true, false]) {
    const { journal } = await openJournal(t, undefined, join(elsewhere ? disk : await temporaryDirectory(t), 'exec.log'))
    if (!elsewhere) await journal.append(denialEvent(0))
    const sync = t.mock.method(proto, 'sync')
    await journal.append(requestEvent(1))
    assert.equal(sync.mock.callCount(), elsewhere ? 1 : 0)
    sync.mock.restore()
    await journal.stop()
  }
})
