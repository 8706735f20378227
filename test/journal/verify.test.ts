import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import type { JournalEvent, JournalLine } from '../../src/journal/events.ts'
import type { LineRef } from '../../src/journal/chain-events.ts'
import { Chain, prepareLine } from '../../src/journal/line.ts'
import { listRunningMarks } from '../../src/journal/running-marks.ts'
import { verifyJournal, type VerifyOptions, type VerifyReport, MAX_VERIFY_PROBLEMS } from '../../src/journal/verify.ts'
import { MAX_JOURNAL_LINE } from '../../src/protocol/limits/daemon.ts'
import { denialEvent, exitEvent, openJournal, requestEvent, runKey, startedEvent } from '../support/journal.ts'
import { temporaryDirectory } from '../support/processes.ts'

const FIRST = '01900000-0000-7000-8000-00000000c0de'
const SECOND = '01900000-0000-7000-8000-00000000beef'

const beganEvent = (after: LineRef | null = null): JournalEvent => ({
  event: 'began',
  version: '0.1.0',
  policy_sha256: null,
  signer: null,
  after,
})

const refTo = (lines: readonly string[]): LineRef => {
  const { chain, n } = JSON.parse(lines.at(-1)!) as JournalLine
  return { chain, n, sha256: createHash('sha256').update(lines.at(-1)!).digest('hex') }
}

/** Lines of one chain without line feeds. `after` refers to the line before the chain. */
const chainOf = (count: number, id = FIRST, after: LineRef | null = null): string[] => {
  const events = [beganEvent(after), ...Array.from({ length: count - 1 }, (_item, n) => denialEvent(n + 1))]
  return new Chain({ id }).encode(events.map((event, n) => prepareLine(event, n))).map(({ bytes }) => bytes.toString())
}

const check = async (t: TestContext, lines: readonly string[], options?: VerifyOptions): Promise<VerifyReport> => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  await writeFile(path, lines.map((line) => `${line}\n`).join(''))
  return await verifyJournal([path], options)
}

const kinds = ({ problems }: VerifyReport): [string, number][] => problems.map(({ kind, line }) => [kind, line])

test('a journal that comes through a pipe is verified like a file', async (t) => {
  const path = join(await temporaryDirectory(t), 'pipe')
  execFileSync('mkfifo', [path])
  const lines = chainOf(4_000)
  const [report] = await Promise.all([verifyJournal([path]), writeFile(path, lines.map((line) => `${line}\n`).join(''))])
  assert.deepEqual([report.ok, report.lines], [true, 4_000])
})

test('several files are refused if one of them is a pipe, which cannot be read twice', async (t) => {
  const directory = await temporaryDirectory(t)
  const [path, pipe] = [join(directory, 'exec.log'), join(directory, 'pipe')]
  await writeFile(
    path,
    chainOf(3)
      .map((line) => `${line}\n`)
      .join(''),
  )
  execFileSync('mkfifo', [pipe])
  for (const paths of [
    [path, pipe],
    [pipe, path],
    [pipe, pipe],
  ])
    await assert.rejects(verifyJournal(paths), { code: 'not_found', message: /pipe: it is not a regular file/ })
})

test('a complete chain has no problems', async (t) => {
  const lines = chainOf(10)
  const report = await check(t, lines)
  const sha256 = createHash('sha256').update(lines.at(-1)!).digest('hex')
  assert.deepEqual(
    { ...report, files: [] },
    {
      ok: true,
      files: [],
      lines: 10,
      chains: 1,
      lives: 1,
      unlinked_lives: 0,
      open_chains: 1,
      heads: [{ chain: FIRST, lines: 10, sha256, stopped: false, last: true }],
      signed: { agents: [], lines: 0, through: null },
      torn_lines: 0,
      running: 0,
      problem_count: 0,
      problems: [],
    },
  )
})

test('an empty file has no problems', async (t) => {
  assert.equal((await check(t, [])).ok, true)
})

test('an altered line is detected at the next line of its chain', async (t) => {
  const lines = chainOf(5)
  lines[2] = lines[2]!.replace('"rm"', '"ls"')
  assert.deepEqual(kinds(await check(t, lines)), [['altered', 4]])
})

test('removed lines are missing, even several lines or the head of the chain', async (t) => {
  assert.deepEqual(kinds(await check(t, chainOf(5).toSpliced(2, 1))), [['missing', 3]])
  assert.deepEqual(kinds(await check(t, chainOf(9).toSpliced(2, 4))), [['missing', 3]])
  assert.deepEqual(kinds(await check(t, chainOf(5).slice(2))), [['head_missing', 1]])
  assert.equal((await check(t, chainOf(5).slice(2), { continued: true })).ok, true)
})

test('doubled and swapped lines are out of place', async (t) => {
  const lines = chainOf(5)
  assert.deepEqual(kinds(await check(t, lines.toSpliced(2, 0, lines[1]!))), [['out_of_place', 3]])
  assert.deepEqual(kinds(await check(t, [lines[0]!, lines[2]!, lines[1]!, lines[3]!])), [
    ['missing', 2],
    ['out_of_place', 3],
  ])
})

test('an inserted line does not fit into its chain', async (t) => {
  const lines = chainOf(4)
  const forged = chainOf(6)[5]!.replace('"n":5', '"n":2')
  assert.deepEqual(kinds(await check(t, lines.toSpliced(2, 0, forged))), [
    ['altered', 3],
    ['out_of_place', 4],
    ['altered', 5],
  ])
})

test('a line cut by hand leaves a gap, and a line cut by a crash does not', async (t) => {
  const lines = chainOf(4)
  const cut = await check(t, lines.with(1, lines[1]!.slice(0, 60)))
  assert.deepEqual([kinds(cut), cut.torn_lines], [[['missing', 3]], 1])
  const next = chainOf(2, SECOND, refTo(lines))
  const crash = await check(t, [...lines, lines[3]!.slice(0, 60), ...next])
  assert.deepEqual([crash.ok, crash.torn_lines, crash.chains], [true, 1, 2])
})

test('a text that is not a journal line is reported as unreadable', async (t) => {
  const lines = chainOf(2)
  const foreign = ['', 'hello', '{"ts":"x"}', '[]', 'null', lines[0]!.slice(5), 'x'.repeat(MAX_JOURNAL_LINE + 1)]
  for (const line of foreign.filter((text) => text !== ''))
    assert.deepEqual(kinds(await check(t, [...lines, line])), [['unreadable', 3]], line.slice(0, 40))
})

test('a line of a later version is reported, and still belongs to its chain', async (t) => {
  const lines = chainOf(3)
  const later = JSON.stringify({ ...(JSON.parse(lines[2]!) as object), event: 'rumour', n: 3, prev: refTo(lines).sha256 })
  const report = await check(t, [...lines, later])
  assert.deepEqual([kinds(report), report.heads[0]?.lines], [[['unreadable', 4]], 4])
  assert.match(report.problems[0]!.message, /its event "rumour" is not known to this version of x0x/)
  const forged = lines.with(1, lines[1]!.replace('"denial"', '"rumour"'))
  assert.deepEqual(kinds(await check(t, forged)), [
    ['unreadable', 2],
    ['altered', 3],
  ])
  const next = chainOf(2, SECOND, refTo([...lines, later]))
  assert.deepEqual(kinds(await check(t, [...lines, later, ...next])), [['unreadable', 4]], 'a life begins behind it')
})

test('chains in one file are checked independently', async (t) => {
  const [first, second] = [chainOf(3), chainOf(3, SECOND)]
  const mixed = [first[0]!, second[0]!, second[1]!, first[1]!, first[2]!, second[2]!]
  assert.equal((await check(t, mixed)).ok, true)
  assert.deepEqual(kinds(await check(t, mixed.toSpliced(3, 1))), [['missing', 4]])
})

test('the first line of a chain must not refer to a line before it', async (t) => {
  const [line] = chainOf(1)
  assert.deepEqual(kinds(await check(t, [line!.replace('0'.repeat(64), 'a'.repeat(64))])), [['altered', 1]])
})

test('files are read in the order of their chains, in any given order', async (t) => {
  const directory = await temporaryDirectory(t)
  const lines = chainOf(9)
  const paths = ['b', 'c', 'a'].map((name) => join(directory, name))
  for (const [part, path] of paths.entries())
    await writeFile(
      path,
      lines
        .slice(part * 3, part * 3 + 3)
        .map((line) => `${line}\n`)
        .join(''),
    )
  const report = await verifyJournal(paths.toSorted())
  assert.deepEqual([report.ok, report.lines, report.files], [true, 9, paths])
  assert.deepEqual(
    (await verifyJournal([paths[0]!, paths[2]!])).problems.map(({ kind, file }) => [kind, file]),
    [['missing', paths[2]]],
  )
})

test('a started run without an end is unfinished unless it is active', async (t) => {
  const { journal, path, runningDir } = await openJournal(t)
  for (const n of [1, 2]) {
    await journal.append(requestEvent(n))
    await journal.append(startedEvent(n))
  }
  await journal.append(exitEvent(1))
  assert.deepEqual(kinds(await verifyJournal([path])), [['unfinished', 5]])
  const report = await verifyJournal([path], { running: async () => listRunningMarks(runningDir) })
  assert.deepEqual([report.ok, report.running], [true, 1])
  await journal.append({ event: 'lost', ...runKey(2) })
  assert.equal((await verifyJournal([path])).ok, true)
})

test('problems above the limit of the list are counted', async (t) => {
  const report = await check(
    t,
    Array.from({ length: MAX_VERIFY_PROBLEMS + 5 }, () => 'no'),
  )
  assert.deepEqual([report.problems.length, report.problem_count, report.ok], [MAX_VERIFY_PROBLEMS, MAX_VERIFY_PROBLEMS + 5, false])
})

test('a missing file is an error that names it', async () => {
  await assert.rejects(verifyJournal(['/nowhere/exec.log']), { code: 'not_found', message: /\/nowhere\/exec\.log/ })
})

test('any changed byte before the last line of a chain is detected', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  const text = Buffer.from(
    chainOf(6)
      .map((line) => `${line}\n`)
      .join(''),
  )
  const end = text.lastIndexOf(0x0a, text.length - 2)
  await fc.assert(
    fc.asyncProperty(fc.nat(end), fc.integer({ min: 1, max: 255 }), async (at, difference) => {
      const changed = Buffer.from(text)
      changed[at] = (changed[at]! + difference) % 256
      await writeFile(path, changed)
      assert.equal((await verifyJournal([path])).ok, false, `byte ${at}`)
    }),
    { seed: 42, numRuns: 300 },
  )
})

test('the check of a long journal needs less memory than the size of the file', { timeout: 120_000 }, async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  const chain = new Chain({ id: FIRST })
  await writeFile(path, `${chainOf(1)[0]!}\n`)
  chain.commit(chain.encode([prepareLine(beganEvent(), 0)]))
  for (let part = 0; part < 20; part++) {
    const lines = chain.encode(Array.from({ length: 5_000 }, (_item, n) => prepareLine(n % 2 ? exitEvent(n) : startedEvent(n + 1), n)))
    chain.commit(lines)
    await writeFile(path, Buffer.concat(lines.flatMap(({ bytes }) => [bytes, Buffer.from('\n')])), { flag: 'a' })
  }
  const size = (await readFile(path)).length
  const before = process.memoryUsage.rss()
  const report = await verifyJournal([path])
  assert.deepEqual([report.ok, report.lines], [true, 100_001])
  assert.ok(process.memoryUsage.rss() - before < size, 'the file was kept in memory')
})
