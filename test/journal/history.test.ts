import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { appendFile, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import type { JournalLine } from '../../src/journal/events.ts'
import { Journal } from '../../src/journal/journal.ts'
import { JournalChains, type ChainState } from '../../src/journal/chains.ts'
import { verifyJournal, type VerifyOptions, type VerifyReport } from '../../src/journal/verify.ts'
import { agentSignerOf } from '../../src/identity/agent-key.ts'
import type { AgentSigner } from '../../src/identity/signing.ts'
import { allLinesOf, denialEvent, startedEvent } from '../support/journal.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent, temporaryDirectory, until } from '../support/processes.ts'
import { NOTE_SYNC_MS, JOURNAL_HEAD_MS } from '../../src/journal/writer.ts'

const AGENT = agentSignerOf(randomBytes(32))

interface Life {
  readonly journal: Journal
  readonly clock: ManualClock
}

const begin = async (t: TestContext, path: string, signer: AgentSigner | null = AGENT): Promise<Life> => {
  const clock = new ManualClock()
  const journal = new Journal({ clock, log: silent, signer }, { path, marks: null, policySha256: 'a'.repeat(64) })
  await journal.start()
  t.after(() => journal.stop())
  return { journal, clock }
}

/** Three daemon lifetimes of three lines each, of which the second one is killed. */
const threeLives = async (t: TestContext, path: string, signer: AgentSigner | null = AGENT): Promise<void> => {
  for (let life = 0; life < 3; life++) {
    const { journal } = await begin(t, path, signer)
    for (let n = 0; n < 3; n++) await journal.append(denialEvent(10 * life + n))
    if (life !== 1) await journal.stop()
    else await until(async () => (await eventsOf(path)).filter((event) => event === 'head').length === (signer === null ? 0 : 2))
  }
}

const textsOf = async (path: string): Promise<string[]> => (await readFile(path, 'utf8')).split('\n').slice(0, -1)
const eventsOf = async (path: string): Promise<string[]> => ((await allLinesOf(path)) as JournalLine[]).map(({ event }) => event)

interface Place {
  readonly path: string
  readonly lines: readonly string[]
  /** The indices of the lines of each lifetime. */
  readonly lives: readonly (readonly number[])[]
  check(lines: readonly string[], options?: VerifyOptions): Promise<VerifyReport>
}

const history = async (t: TestContext, signer: AgentSigner | null = AGENT): Promise<Place> => {
  const directory = await temporaryDirectory(t)
  const path = join(directory, 'exec.log')
  await threeLives(t, path, signer)
  const lines = await textsOf(path)
  const chains = lines.map((line) => (JSON.parse(line) as JournalLine).chain)
  const lives = [...new Set(chains)].map((id) => chains.flatMap((chain, at) => (chain === id ? [at] : [])))
  const check = async (changed: readonly string[], options: VerifyOptions = {}): Promise<VerifyReport> => {
    await writeFile(join(directory, 'changed'), changed.map((line) => `${line}\n`).join(''))
    return verifyJournal([join(directory, 'changed')], options)
  }
  return { path, lines, lives, check }
}

const kinds = ({ problems }: VerifyReport): string[] => problems.map(({ kind }) => kind)

test('each daemon lifetime records its beginning, the line before it and its end, and signs its heads', async (t) => {
  const { path, lives, lines } = await history(t)
  const life = ['began', 'head', 'denial', 'denial', 'denial', 'stopped']
  assert.deepEqual(await eventsOf(path), [...life, ...life.slice(0, -1), ...life])
  const [first, second] = lives.map(([at]) => JSON.parse(lines[at!]!) as JournalLine & { event: 'began' })
  assert.deepEqual([first!.after, first!.policy_sha256, first!.signer?.agent_id], [null, 'a'.repeat(64), AGENT.agentId])
  assert.deepEqual([second!.after?.chain, second!.after?.n], [first!.chain, 5])
  const report = await verifyJournal([path], { agentIds: [AGENT.agentId] })
  assert.deepEqual([report.ok, report.lives, report.lines, report.signed.lines], [true, 3, 17, 17])
  assert.deepEqual([report.signed.agents, report.signed.through?.line], [[AGENT.agentId], 17])
  assert.deepEqual(
    report.heads.map(({ stopped, last }) => [stopped, last]),
    [
      [true, false],
      [false, false],
      [true, true],
    ],
  )
})

test('a head is signed at most once a minute, and only after new lines', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  const { journal, clock } = await begin(t, path)
  const heads = async (): Promise<number> => (await eventsOf(path)).filter((event) => event === 'head').length
  await until(async () => (await heads()) === 1)
  await clock.advance(10 * JOURNAL_HEAD_MS)
  await journal.append(denialEvent(1))
  await journal.append(denialEvent(2))
  await clock.advance(JOURNAL_HEAD_MS - 1)
  await journal.append(denialEvent(3))
  assert.equal(await heads(), 1)
  const before = await verifyJournal([path])
  assert.deepEqual([before.ok, before.lines - before.signed.lines], [true, 3])
  await clock.advance(1)
  await until(async () => (await heads()) === 2)
  await clock.advance(10 * JOURNAL_HEAD_MS)
  assert.equal(await heads(), 2)
  const after = await verifyJournal([path])
  assert.deepEqual([after.ok, after.lines - after.signed.lines], [true, 0])
  await journal.stop()
  assert.equal(clock.pending, 0)
})

test('lines that do not announce an effect are synced after a delay', async (t) => {
  const path = join(await temporaryDirectory(t), 'exec.log')
  const { journal, clock } = await begin(t, path, null)
  const { open } = await import('node:fs/promises')
  const handle = await open(path, 'a')
  const sync = t.mock.method(Object.getPrototypeOf(handle) as typeof handle, 'datasync')
  await handle.close()
  await journal.append(startedEvent(1))
  await clock.advance(NOTE_SYNC_MS - 1)
  assert.equal(sync.mock.callCount(), 0)
  await clock.advance(1)
  await until(() => sync.mock.callCount() === 1)
  await clock.advance(10 * NOTE_SYNC_MS)
  assert.equal(sync.mock.callCount(), 1)
  await journal.stop()
})

test('a lifetime that was removed, shortened or moved is detected, signed or not', async (t) => {
  for (const signer of [AGENT, null]) {
    const { lines, lives, check } = await history(t, signer)
    const part = (...which: number[]): string[] => which.flatMap((life) => lives[life]!.map((at) => lines[at]!))
    assert.deepEqual(kinds(await check(part(0, 2))), ['missing'])
    assert.deepEqual(kinds(await check(part(1, 2))), ['head_missing'])
    assert.equal((await check(part(1, 2), { continued: true })).ok, true)
    assert.deepEqual(kinds(await check(part(2), { continued: true })), [])
    for (const order of [
      [0, 2, 1],
      [1, 0, 2],
      [2, 1, 0],
      [1, 2, 0],
    ])
      assert.equal((await check(part(...order))).ok, false, order.join())
    for (let left = 1; left < lives[1]!.length; left++) {
      const shorter = [...part(0), ...part(1).slice(0, left), ...part(2)]
      assert.deepEqual(kinds(await check(shorter)), ['missing'], `${left} lines left`)
    }
  }
})

test('each changed, removed, doubled or moved line is detected, and a cut-off end shows as a missing stop', async (t) => {
  const { lines, check } = await history(t)
  const at = fc.nat(lines.length - 1)
  const change = fc.oneof(
    fc.tuple(at, fc.nat(), fc.integer({ min: 1, max: 127 })).map(([line, byte, difference]) => {
      const bytes = Buffer.from(lines[line]!)
      const where = byte % bytes.length
      bytes[where] = (bytes[where]! + difference) % 128
      return lines.with(line, bytes.toString())
    }),
    fc.tuple(at, fc.integer({ min: 1, max: 6 })).map(([line, count]) => lines.toSpliced(line, count)),
    fc.tuple(at, at).map(([from, to]) => lines.toSpliced(to, 0, lines[from]!)),
    fc.tuple(at, at).map(([one, other]) => lines.with(one, lines[other]!).with(other, lines[one]!)),
    fc
      .tuple(at, at, fc.integer({ min: 1, max: 6 }))
      .map(([from, to, count]) => lines.toSpliced(from, count).toSpliced(to, 0, ...lines.slice(from, from + count))),
  )
  await fc.assert(
    fc.asyncProperty(change, async (changed) => {
      const report = await check(changed, { agentIds: [AGENT.agentId] })
      const whole = changed.filter((_line, n) => n < changed.length - report.torn_lines)
      const isBeginning = whole.every((line, n) => line === lines[n])
      assert.equal(report.ok, isBeginning, JSON.stringify(report.problems))
    }),
    { seed: 7, numRuns: 400 },
  )
  const cut = await check(lines.slice(0, 14), { agentIds: [AGENT.agentId] })
  assert.deepEqual([cut.ok, cut.heads.at(-1)?.stopped, cut.lines - cut.signed.lines], [true, false, 1])
})

test('a journal rewritten without the key is detected, and an unsigned journal is reported as unsigned', async (t) => {
  const { check } = await history(t)
  const other = agentSignerOf(randomBytes(32))
  const forged = await history(t, other)
  const unsigned = await history(t, null)
  assert.ok(kinds(await check(forged.lines, { agentIds: [AGENT.agentId] })).every((kind) => kind === 'signature'))
  assert.equal((await check(forged.lines, { agentIds: [AGENT.agentId] })).ok, false)
  assert.equal((await check(unsigned.lines, { agentIds: [AGENT.agentId] })).ok, false)
  const told = await check(unsigned.lines)
  assert.deepEqual([told.ok, told.signed], [true, { agents: [], lines: 0, through: null }])
  const stripped = (await history(t)).lines.map((line) => line.replace(/"signature":"[^"]*"/, '"signature":null'))
  assert.equal((await check(stripped)).ok, false)
})

test('one history spans several files, in any given order and with any clock', async (t) => {
  const directory = await temporaryDirectory(t)
  const path = join(directory, 'exec.log')
  const first = await begin(t, path)
  await first.journal.append(denialEvent(1))
  await rename(path, `${path}.2`)
  await first.journal.append(denialEvent(2))
  await first.journal.stop()
  // Rotated while no journal is open. The next lifetime finds the end in the renamed file.
  await rename(path, `${path}.1`)
  const second = await begin(t, path)
  second.clock.jump(-365 * 86_400_000)
  await second.journal.append(denialEvent(3))
  await second.journal.stop()
  const files = [`${path}.2`, `${path}.1`, path]
  for (const given of [files, files.toReversed(), [files[1]!, files[2]!, files[0]!]]) {
    const report = await verifyJournal(given, { agentIds: [AGENT.agentId] })
    assert.deepEqual([report.ok, report.files, report.unlinked_lives, report.lines - report.signed.lines], [true, files, 0, 0])
  }
  assert.deepEqual(kinds(await verifyJournal([files[0]!, files[2]!])), ['missing'])
  const newest = await verifyJournal([files[1]!, files[2]!], { continued: true, agentIds: [AGENT.agentId] })
  assert.deepEqual([newest.ok, newest.signed.agents], [true, [AGENT.agentId]])
})

test('lifetimes of several writers overlap in one file, and a torn line of one swallows no other line', async (t) => {
  const path = join(await temporaryDirectory(t), 'audit.log')
  const lives = await Promise.all([0, 1, 2].map(async () => begin(t, path, null)))
  for (let n = 0; n < 30; n++) await lives[n % 3]!.journal.append(denialEvent(n))
  // Another writer tears a line between the check of the file end and the write.
  const { JournalFile } = await import('../../src/journal/file.ts')
  const append = JournalFile.prototype.append
  const mock = t.mock.method(JournalFile.prototype, 'append', async function (this: InstanceType<typeof JournalFile>, bytes: Buffer) {
    await appendFile(path, '{"ts":"2026-11-22T')
    return append.call(this, bytes)
  })
  await lives[0]!.journal.append(denialEvent(40))
  mock.mock.restore()
  for (const { journal } of lives) await journal.stop()
  await (await begin(t, path, null)).journal.stop()
  const report = await verifyJournal([path])
  assert.deepEqual([report.problems, report.lives, report.torn_lines], [[], 4, 1])
})

test('a line with a negative number is unreadable, so it cannot come before the start of its chain', async (t) => {
  const { lines, check } = await history(t)
  const { signer: _signer, ...line } = JSON.parse(lines[2]!) as JournalLine & { signer?: unknown }
  const forged = (n: number): string => JSON.stringify({ ...line, chain: randomUUID(), n, prev: 'a'.repeat(64) })
  assert.equal((await check(lines, { agentIds: [AGENT.agentId] })).ok, true)
  for (const n of [-1, -1_000_000]) {
    const report = await check([...lines, forged(n)], { agentIds: [AGENT.agentId] })
    assert.deepEqual([kinds(report), report.signed.lines], [['unreadable'], lines.length])
  }
})

test('the cost to start a lifetime does not depend on the number of earlier ones', () => {
  let looked = 0
  class Chains extends Map<string, ChainState> {
    override values(): MapIterator<ChainState> {
      looked += 1
      return super.values()
    }
  }
  const lives = new JournalChains({ agentIds: null, continued: false, chains: new Chains() })
  const began = { event: 'began', version: '1', policy_sha256: null, after: null } as const
  for (const signer of [null, { agent_id: AGENT.agentId, public_key: Buffer.from(AGENT.publicKey).toString('base64') }])
    for (let n = 0; n < 10; n++) lives.start(randomUUID(), { ...began, signer }, n, n)
  assert.equal(looked, 0)
})
