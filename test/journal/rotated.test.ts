import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { renameSync } from 'node:fs'
import { copyFile, open, readFile, rename, truncate, utimes, writeFile, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { JournalEvent, JournalLine } from '../../src/journal/events.ts'
import { inOrder, type JournalPart } from '../../src/journal/verify.ts'
import { Journal } from '../../src/journal/journal.ts'
import { Chain, prepareLine } from '../../src/journal/line.ts'
import { verifyJournal, type VerifyReport, MAX_VERIFY_HEADS } from '../../src/journal/verify.ts'
import { agentSignerOf } from '../../src/identity/agent-key.ts'
import type { AgentSigner } from '../../src/identity/signing.ts'
import { allLinesOf, denialEvent, requestEvent } from '../support/journal.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent, temporaryDirectory, until } from '../support/processes.ts'
import { JOURNAL_HEAD_MS } from '../../src/journal/writer.ts'

const AGENT = agentSignerOf(randomBytes(32))

const begin = async (
  t: TestContext,
  path: string,
  signer: AgentSigner | null = AGENT,
): Promise<{ journal: Journal; clock: ManualClock }> => {
  const clock = new ManualClock()
  const journal = new Journal({ clock, log: silent, signer }, { path, marks: null })
  await journal.start()
  t.after(() => journal.stop())
  // The first head follows the first line.
  if (signer !== null) await until(async () => (await headsIn(path)) > 0)
  return { journal, clock }
}

/** A complete daemon lifetime with this number of lines. */
const live = async (t: TestContext, path: string, lines: number, signer = AGENT): Promise<void> => {
  const { journal } = await begin(t, path, signer)
  for (let n = 0; n < lines; n++) await journal.append(denialEvent(n))
  await journal.stop()
}

const headsIn = async (path: string): Promise<number> =>
  ((await allLinesOf(path)) as JournalLine[]).filter(({ event }) => event === 'head').length

const kinds = ({ problems }: VerifyReport): string[] => problems.map(({ kind }) => kind)

const BEGAN: JournalEvent = { event: 'began', version: '0.1.0', policy_sha256: null, signer: null, after: null }

/** Lines of one chain as text. */
const chainOf = (events: readonly JournalEvent[]): string =>
  new Chain({ id: randomUUID() })
    .encode(events.map((event, n) => prepareLine(event, n)))
    .map(({ bytes }) => `${bytes.toString()}\n`)
    .join('')

test('after a rotation by copy and truncate, the next head names the signer again', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  const { journal, clock } = await begin(t, path)
  await journal.append(denialEvent(1))
  await copyFile(path, `${path}.1`)
  await truncate(path)
  await journal.append(denialEvent(2))
  await clock.advance(JOURNAL_HEAD_MS)
  await until(async () => (await headsIn(path)) === 1)
  await journal.stop()
  const newest = await verifyJournal([path], { continued: true, agentIds: [AGENT.agentId] })
  assert.deepEqual([newest.problems, newest.signed.lines, newest.lines], [[], 3, 3])
  const all = await verifyJournal([path, `${path}.1`], { agentIds: [AGENT.agentId] })
  assert.deepEqual([all.problems, all.signed.lines === all.lines], [[], true])
})

test('a line is synced in the file that received it, even if that was renamed, or else refused', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  let part = 0
  const onWritten = (line: Uint8Array): void => {
    if (Buffer.from(line).includes('"event":"request"')) renameSync(path, `${path}.${(part += 1)}`)
  }
  const journal = new Journal({ clock: new ManualClock(), log: silent, onWritten }, { path, marks: null })
  await journal.start()
  t.after(() => journal.stop())
  await journal.append(requestEvent(1))
  await assert.rejects(readFile(path), { code: 'ENOENT' }, 'nothing else was written or looked for')
  const handle = await open(`${path}.1`)
  const sync = t.mock.method(Object.getPrototypeOf(handle) as FileHandle, 'datasync')
  await handle.close()
  // The first sync is that of the previous file, which has no waiting lines.
  sync.mock.mockImplementationOnce(async () => {
    throw new Error('EIO')
  }, 1)
  await assert.rejects(journal.append(requestEvent(2)), { code: 'journal_unavailable' })
  await journal.append(denialEvent(3))
  assert.deepEqual((await verifyJournal([`${path}.1`, `${path}.2`, path])).problems, [])
})

test('after a key replacement, earlier keys are accepted, but not after lines of a newer key', async (t) => {
  const directory = await temporaryDirectory(t)
  const path = join(directory, 'exec.log')
  const [first, second, third] = [AGENT, agentSignerOf(randomBytes(32)), agentSignerOf(randomBytes(32))]
  for (const signer of [first, first, second, third]) await live(t, path, 1, signer)
  const newestFirst = [third, second, first].map(({ agentId }) => agentId)
  const honest = await verifyJournal([path], { agentIds: newestFirst })
  assert.deepEqual([honest.problems, honest.signed.lines === honest.lines, honest.signed.agents.length], [[], true, 3])
  assert.deepEqual(kinds(await verifyJournal([path], { agentIds: newestFirst.slice(0, 2) })), ['signature', 'signature'])
  // A holder of the old key cannot continue the journal of the new key.
  await live(t, path, 1, second)
  const forged = await verifyJournal([path], { agentIds: newestFirst })
  assert.ok(!forged.ok && kinds(forged).every((kind) => kind === 'signature'))
  assert.match(forged.problems[0]!.message, new RegExp(`signed by agent ${second.agentId}, whose key was replaced before`))
})

test('a killed lifetime of an earlier key is not accepted if it continues after a newer key began', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  const [first, second] = [AGENT, agentSignerOf(randomBytes(32))]
  const { journal, clock } = await begin(t, path, first)
  await live(t, path, 1, second)
  const agentIds = [second.agentId, first.agentId]
  assert.deepEqual(kinds(await verifyJournal([path], { agentIds })), [])
  const heads = await headsIn(path)
  await journal.append(denialEvent(2))
  await clock.advance(JOURNAL_HEAD_MS)
  await until(async () => (await headsIn(path)) > heads)
  const { problems } = await verifyJournal([path], { agentIds })
  assert.ok(
    problems.some(({ message }) => message.includes('whose key was replaced before')),
    JSON.stringify(problems),
  )
  assert.ok(problems.every(({ kind }) => kind === 'signature'))
})

test('a manual copy of the journal is not used as the file before it', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  await live(t, path, 1)
  const copies = ['.bak', '.1.orig', '-old', '.2~'].map((end) => `${path}${end}`)
  for (const copy of copies) await copyFile(path, copy)
  await live(t, path, 2)
  await rename(path, `${path}.1`)
  const later = new Date(Date.now() + 60_000)
  for (const copy of copies) await utimes(copy, later, later)
  await live(t, path, 3)
  const report = await verifyJournal([`${path}.1`, path], { agentIds: [AGENT.agentId] })
  assert.deepEqual([report.problems, report.unlinked_lives, report.lives], [[], 0, 3])
  // With a date, as logrotate may name files.
  await rename(path, `${path}-20261122-1700000000`)
  await live(t, path, 1)
  assert.equal((await verifyJournal([path, `${path}-20261122-1700000000`, `${path}.1`])).unlinked_lives, 0)
})

test('if signatures of an agent are required, lines that continue a missing file need them as well', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  const { journal, clock } = await begin(t, path)
  await rename(path, `${path}.1`)
  await journal.append(denialEvent(1))
  const demanded = { continued: true, agentIds: [AGENT.agentId] }
  // The line is not signed yet.
  assert.deepEqual(kinds(await verifyJournal([path], demanded)), ['signature'])
  assert.deepEqual(kinds(await verifyJournal([path, `${path}.1`], demanded)), [])
  await clock.advance(JOURNAL_HEAD_MS)
  await until(async () => (await headsIn(path)) === 1)
  assert.deepEqual(kinds(await verifyJournal([path], demanded)), [])
  await journal.stop()
  const forged = chainOf([BEGAN, denialEvent(1), denialEvent(2), denialEvent(3)])
    .split('\n')
    .slice(2)
    .join('\n')
  const honest = await readFile(path, 'utf8')
  for (const text of [forged, honest + forged, forged + honest]) {
    await writeFile(path, text)
    assert.deepEqual(kinds(await verifyJournal([path], demanded)), ['signature'])
    assert.equal((await verifyJournal([path], { continued: true })).ok, true)
  }
})

test('the next lifetime signs the end of a killed one whose file was rotated away', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  const killed = await begin(t, path)
  await rename(path, `${path}.1`)
  await killed.journal.append(denialEvent(1))
  await live(t, path, 1)
  const report = await verifyJournal([path], { continued: true, agentIds: [AGENT.agentId] })
  assert.deepEqual([report.problems, report.lines - report.signed.lines], [[], 0])
})

test('a chain without a beginning counts as altered, at any place and with any required signer', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  const unbegun = (): string => chainOf([denialEvent(1), denialEvent(2)])
  await writeFile(path, unbegun(), { mode: 0o600 })
  assert.deepEqual(kinds(await verifyJournal([path])), ['altered'])
  await live(t, path, 1)
  await writeFile(path, (await readFile(path, 'utf8')) + unbegun())
  for (const agentIds of [null, [AGENT.agentId]]) assert.deepEqual(kinds(await verifyJournal([path], { agentIds })), ['altered', 'altered'])
})

test('any number of lifetimes is counted, and the heads of the newest are listed', async (t) => {
  const path = join(await temporaryDirectory(t), 'audit.log')
  const many = MAX_VERIFY_HEADS + 50
  await writeFile(path, Array.from({ length: many }, () => chainOf([BEGAN, { event: 'stopped', signer: null, signature: null }])).join(''))
  const { problems, chains, heads, open_chains } = await verifyJournal([path])
  assert.deepEqual([problems, chains, heads.length, open_chains], [[], many, MAX_VERIFY_HEADS, 0])
  const last = (JSON.parse((await readFile(path, 'utf8')).split('\n').at(-2)!) as JournalLine).chain
  assert.equal(heads.at(-1)?.chain, last)
})

test('the order of the files takes one look at each file, in any given order', () => {
  let looked = 0
  class Chains extends Map<string, { first: number; last: number }> {
    override [Symbol.iterator](): MapIterator<[string, { first: number; last: number }]> {
      looked += 1
      return super[Symbol.iterator]()
    }
  }
  const parts = Array.from({ length: 200 }, (_item, n): JournalPart => ({
    path: `exec.log.${n}`,
    chains: new Chains([[`chain ${n}`, { first: 0, last: 9 }]]),
    follows: new Set([`chain ${n + 1}`]),
  }))
  looked = 0
  assert.deepEqual(inOrder(parts), parts.toReversed())
  assert.ok(looked <= parts.length, `${looked}`)
  // Files that follow each other in a circle are left to the verification.
  const circle = [0, 1, 2].map((n): JournalPart => ({ ...parts[n]!, follows: new Set([`chain ${(n + 1) % 3}`]) }))
  assert.equal(inOrder(circle).length, 3)
  assert.deepEqual(
    inOrder([parts[0]!, { ...parts[1]!, follows: new Set(['chain 0']) }]).map(({ path }) => path),
    ['exec.log.0', 'exec.log.1'],
  )
})
