import assert from 'node:assert/strict'
import { createHash, randomUUID } from 'node:crypto'
import { mkdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import type { DenialEvent, JournalEvent, JournalLine, RefusalsSuppressedEvent, RulesEvent } from '../../src/journal/events.ts'
import { Journal } from '../../src/journal/journal.ts'
import { RunningMarks } from '../../src/journal/running-marks.ts'
import { verifyJournal } from '../../src/journal/verify.ts'
import { isAppError } from '../../src/base/errors.ts'
import { ASKED_BYTES, ASKED_FLOORS, MAX_NAMED_SOURCES } from '../../src/protocol/limits/daemon.ts'
import { ALICE } from '../support/acl-text.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { denialEvent, exitEvent, linesOf, localSession, openJournal, requestEvent, runKey, startedEvent } from '../support/journal.ts'
import { LocalHost } from '../support/local-engine.ts'
import { ruleText } from '../support/local-policy.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent, temporaryDirectory, until } from '../support/processes.ts'
import { NO_DISK, smallDisk } from '../support/small-disk.ts'
import { MAX_REFUSED_ARGV, REFUSAL_LINES, REFUSAL_TOTAL_LINES, REFUSAL_SUMMARY_MS } from '../../src/journal/refusals.ts'

const LONG = ['\u0001'.repeat(32_000)]

const refusal = (n: number, source = 0, argv: readonly string[] = LONG): DenialEvent => ({
  ...(denialEvent(n) as DenialEvent),
  agent_id: source.toString(16).padStart(64, '0'),
  argv,
})

/** An answer that counts as a line in the same way as a refusal. */
const told = ({ request_id, agent_id, machine_id }: DenialEvent): RulesEvent => ({
  event: 'rules',
  request_id,
  agent_id,
  machine_id,
  listed: 1,
  left_out: 0,
  detail: null,
})

const unproven = {
  event: 'authority',
  operation: 'contact_trust',
  agent: null,
  machine: null,
  level: null,
  code: 'operator_proof_required',
  detail: '',
} as const

const unauthorized = {
  event: 'http_refused',
  code: 'unauthorized',
  method: 'GET',
  path: '/agent',
  host: null,
  origin: null,
  remote: null,
  detail: null,
} as const

const suppressed = (lines: readonly (JournalLine | string)[]): RefusalsSuppressedEvent[] =>
  ([...lines] as JournalEvent[]).filter((line) => line.event === 'refusals_suppressed')

test('the argv of a refusal is cut, and its size and hash are kept', async (t) => {
  const { journal, path } = await openJournal(t)
  const argvs = [['ls', '-l'], LONG, ['id', 'é'.repeat(200)], Array.from({ length: 5_000 }, () => ''), ['x'.repeat(255), 'é']]
  for (const [n, argv] of argvs.entries()) await journal.refuse(refusal(n, 0, argv))
  const lines = (await linesOf(path)) as (JournalLine & DenialEvent)[]
  assert.deepEqual([lines[0]!.argv, lines[0]!.argv_cut], [['ls', '-l'], undefined])
  for (const [n, { argv, argv_cut }] of lines.entries()) {
    if (n === 0) continue
    assert.ok(argv.join('').length <= MAX_REFUSED_ARGV && argv.length <= MAX_REFUSED_ARGV, `${n}`)
    assert.ok(
      argv.every((token, at) => argvs[n]![at]!.startsWith(token)),
      `${n}: a beginning`,
    )
    const sha256 = createHash('sha256').update(JSON.stringify(argvs[n])).digest('hex')
    assert.deepEqual([argv_cut?.tokens, argv_cut?.sha256], [argvs[n]!.length, sha256])
  }
  assert.equal(lines[1]!.argv_cut?.bytes, 32_000)
  assert.ok(Math.max(...lines.map((line) => JSON.stringify(line).length)) < 4_096)
})

test('a flood of refusals writes a limited number of lines and bytes, and the rest is counted', async (t) => {
  const { journal, path, clock } = await openJournal(t)
  const start = clock.now()
  for (let n = 0; n < 2_000; n++) await journal.refuse(refusal(n))
  const ofOne = (await linesOf(path)).length
  assert.equal(ofOne, REFUSAL_LINES.burst)
  // Another source still has its own lines.
  await journal.refuse(refusal(1, 1, ['id']))
  assert.equal((await linesOf(path)).length, ofOne + 1)
  for (let n = 0; n < 20_000; n++) await journal.refuse(refusal(n, n % 5_000))
  const written = (await linesOf(path)).length
  assert.equal(written, REFUSAL_TOTAL_LINES.burst)
  const { size } = await stat(path)
  assert.ok(size < written * 4_096, `${size}`)
  await clock.advance(REFUSAL_SUMMARY_MS)
  await until(async () => suppressed(await linesOf(path)).length === 1)
  const [line] = suppressed(await linesOf(path))
  assert.equal(line!.count + written, 22_001)
  assert.deepEqual([line!.from, line!.to], [new Date(start).toISOString(), new Date(start).toISOString()])
  // A second count follows after new refusals, and the last one at the stop.
  await clock.advance(10 * REFUSAL_SUMMARY_MS)
  for (let n = 0; n < 1_000; n++) await journal.refuse(refusal(n))
  await journal.stop()
  const lines = await linesOf(path)
  assert.equal(suppressed(lines).length, 2)
  const counted = suppressed(lines).reduce((sum, { count }) => sum + count, 0)
  assert.equal(counted + lines.length - 2, 23_001)
  assert.equal((await verifyJournal([path])).ok, true)
})

test('a refusal that cannot be written is counted, and the count is written later', async (t) => {
  const { journal, path } = await openJournal(t)
  await rename(path, `${path}.1`)
  await mkdir(path)
  const lines = [0, 1, 2].map(async (n) => journal.refuse(refusal(n)))
  for (const line of await Promise.allSettled(lines)) assert.equal(line.status, 'rejected')
  await rm(path, { recursive: true })
  await journal.refuse(refusal(3))
  await journal.stop()
  assert.deepEqual(
    suppressed(await linesOf(path)).map(({ count, reasons }) => [count, Object.values(reasons)]),
    [[3, [3]]],
  )
})

test('refusals of many unlisted peers do not suppress those of a trusted peer or an operator', async (t) => {
  const { journal, path } = await openJournal(t)
  const stranger = (n: number, source: number): DenialEvent => ({ ...refusal(n, source, ['id']), reason: 'trust_rejected' })
  for (let n = 0; n < 4_000; n++) await journal.refuse(stranger(n, n % 100))
  assert.equal((await linesOf(path)).length, REFUSAL_TOTAL_LINES.burst)
  // Requests that only claim to come from a trusted peer do not use up its lines either.
  for (let n = 0; n < 300; n++) await journal.refuse({ ...stranger(n, 0), agent_id: ALICE, reason: 'unverified_sender' })
  await journal.refuse(denialEvent(1) as DenialEvent)
  await journal.refuse(unproven)
  const events = (await linesOf(path)).slice(REFUSAL_TOTAL_LINES.burst) as JournalLine[]
  assert.deepEqual(
    events.map(({ event }) => event),
    ['denial', 'authority'],
  )
})

test('a trusted agent is one source on all its machines, and local clients and operators have their own lines', async (t) => {
  const { journal, path } = await openJournal(t)
  const machine = (n: number): DenialEvent['machine_id'] => n.toString(16).padStart(64, '0')
  for (let n = 0; n < 600; n++) {
    const denial = { ...refusal(n, 1, ['id']), machine_id: machine(n % 20) }
    await journal.refuse(n % 2 === 0 ? denial : told(denial))
  }
  assert.equal((await linesOf(path)).length, REFUSAL_LINES.burst)
  for (let n = 0; n < 5_000; n++) await journal.refuse(refusal(n, 2 + (n % 30), ['id']))
  assert.equal((await linesOf(path)).length, REFUSAL_TOTAL_LINES.burst)
  const refused = { event: 'refused', ...localSession, method: 'exec.start', argv: ['id'], code: 'forbidden', detail: '' } as const
  await journal.refuse(refused)
  await journal.refuse(unproven)
  const events = ((await linesOf(path)) as JournalLine[]).slice(REFUSAL_TOTAL_LINES.burst).map(({ event }) => event)
  assert.deepEqual(events, ['refused', 'authority'])
})

test('the count of suppressed refusals names reasons and some sources, with unlisted peers last', async (t) => {
  const { journal, path } = await openJournal(t)
  const stranger = (n: number): DenialEvent => ({ ...refusal(n, 1_000 + n, ['id']), reason: 'trust_rejected' })
  for (let n = 0; n < REFUSAL_TOTAL_LINES.burst + 2_000; n++) await journal.refuse(stranger(n))
  for (let n = 0; n < REFUSAL_LINES.burst + 10; n++) await journal.refuse({ ...(denialEvent(n) as DenialEvent), agent_id: ALICE })
  for (let n = 0; n < 2; n++) await journal.refuse(told({ ...refusal(n), agent_id: ALICE }))
  for (let n = 0; n < REFUSAL_LINES.burst + 3; n++) await journal.refuse(unproven)
  await journal.stop()
  const lines = await linesOf(path)
  const [line] = suppressed(lines)
  assert.deepEqual(line!.reasons, { trust_rejected: 2_000, argv_not_allowed: 10, rules: 2, operator_proof_required: 3 })
  assert.deepEqual([line!.count, line!.named.length, line!.named.slice(0, 2)], [2_015, MAX_NAMED_SOURCES, [ALICE, 'authority']])
  assert.ok(line!.named.slice(2).every((name) => /^stranger [0-9a-f]{64}\.[0-9a-f]{64}$/.test(name)))
  assert.equal((await verifyJournal([path])).ok, true)
})

test('changes by an operator are written even if others use up the rate limit', async (t) => {
  const path = join(await temporaryDirectory(t), 'requests.jsonl')
  const journal = new Journal({ clock: new ManualClock(), log: silent }, { path, marks: null, rate: { burst: 2_000, perSecond: 1 } })
  await journal.start()
  const asked = (n: number, argv: readonly string[]): JournalEvent => ({
    event: 'asked',
    ...runKey(n),
    argv,
    stdin_bytes: 0,
    timeout_ms: null,
    proven: false,
  })
  await journal.append(asked(1, ['id']))
  await assert.rejects(journal.append(asked(2, LONG)), { code: 'rate_limited' })
  await assert.rejects(Promise.all(Array.from({ length: 10 }, async (_item, n) => journal.append(asked(n, ['id'])))), {
    code: 'rate_limited',
  })
  // The same holds for refused operator calls and for calls without the token.
  await journal.refuse(unproven)
  await journal.refuse(unauthorized)
  await journal.append({
    event: 'authority',
    operation: 'identity_revoke',
    agent: ALICE,
    machine: null,
    level: null,
    code: null,
    detail: 'x'.repeat(2_000),
  })
  await journal.stop()
  assert.deepEqual(
    ((await linesOf(path)) as JournalLine[]).map(({ event }) => event).filter((event) => event !== 'asked'),
    ['authority', 'http_refused', 'authority'],
  )
})

test('the end of a recorded run is written even if its source exceeds the limit of refusals', async (t) => {
  const { journal, path } = await openJournal(t)
  for (let n = 0; n < 1_000; n++) await journal.refuse(denialEvent(n) as DenialEvent)
  await journal.append(requestEvent(5_000))
  await journal.refuse({ ...(denialEvent(5_000, 'spawn_failed') as DenialEvent) })
  const last = (await linesOf(path)).at(-1) as JournalLine & DenialEvent
  assert.deepEqual([last.event, last.request_id, last.reason], ['denial', runKey(5_000).request_id, 'spawn_failed'])
})

test('a captured network process cannot fill the disk with signed requests', { timeout: 120_000 }, async (t) => {
  const clock = new ManualClock()
  const { host, network } = await ExecutorHost.linked(t, { clock })
  const call = { link: 0, stream_nonce: new Uint8Array(32), argv: LONG, stdin: null, timeout_ms: null, cwd: null, clamp: false }
  const refused: unknown[] = []
  for (let round = 0; round < 8; round++)
    await Promise.all(
      Array.from({ length: 50 }, async () =>
        network.client.signRequest({ ...call, request_id: randomUUID() }).catch((error: unknown) => refused.push(error)),
      ),
    )
  assert.ok(refused.length > 0 && refused.every((error) => isAppError(error, 'rate_limited')))
  assert.ok((await stat(host.outgoingPath)).size <= ASKED_BYTES.burst + 64 * 1024)
  await clock.advance(1_000)
  await network.client.signRequest({ ...call, request_id: randomUUID(), argv: ['id'] })
})

test('queries that start no run are limited in the request log in the same way as requests', async (t) => {
  const directory = await temporaryDirectory(t)
  const init = { marks: null, rate: { burst: 2_048, perSecond: 1 } }
  const asked: JournalEvent[] = [
    { event: 'rules_asked', ...runKey(1) },
    { event: 'detached_asked', ...runKey(1), ask: 'state', from: 0 },
  ]
  for (const event of asked) {
    const outgoing = new Journal({ clock: new ManualClock(), log: silent }, { path: join(directory, `${event.event}.jsonl`), ...init })
    await outgoing.start()
    t.after(async () => outgoing.stop())
    await outgoing.append(event)
    await assert.rejects(
      async () => {
        for (let n = 0; n < 8; n++) await outgoing.append(event)
      },
      (error) => isAppError(error, 'rate_limited'),
    )
    // Cancellations are limited where they are signed.
    await outgoing.append({ event: 'detached_asked', ...runKey(1), ask: 'cancel', from: 0 })
  }
})

test('endless refusals of a rexd client write a journal of limited size', { timeout: 120_000 }, async (t) => {
  const host = await LocalHost.start(t, { rules: ruleText('allow_commands', ['/bin/true']) })
  const session = await host.open()
  for (let n = 0; n < 1_000; n++) await assert.rejects(host.run(session, ['/bin/echo', ...LONG]).then((run) => run.outcome()))
  const { size } = await stat(host.journalPath!)
  assert.ok(size < 2 * REFUSAL_LINES.burst * 4_096, `${size}`)
  const written = (await host.lines()).filter(({ event }) => event === 'refused').length
  await host.stop()
  const told = (await host.lines()).flatMap((line) => (line.event === 'refusals_suppressed' ? [line.count] : []))
  assert.deepEqual(told, [1_000 - written])
})

test('endless requests to other agents leave disk space for local runs and operator changes', async (t) => {
  const disk = await smallDisk(t, 4_096)
  if (disk === null) return t.skip(NO_DISK)
  const clock = new ManualClock()
  const init = { marks: null, rate: ASKED_BYTES, floors: ASKED_FLOORS }
  const outgoing = new Journal({ clock, log: silent }, { path: join(disk, 'requests.jsonl'), ...init })
  const { journal } = await openJournal(t, disk)
  await outgoing.start()
  // All at once, within the second for which a check of the disk is valid.
  const asked = await Promise.allSettled(Array.from({ length: 60 }, async (_item, n) => outgoing.append(requestEvent(n, LONG))))
  assert.ok(asked.some(({ status }) => status === 'fulfilled'))
  const small = Promise.all(Array.from({ length: 2_000 }, async (_item, n) => outgoing.append(requestEvent(n))))
  await assert.rejects(small, { code: 'journal_unavailable' })
  await outgoing.append({ ...unproven, code: null, detail: null })
  for (let n = 0; n < 20; n++) {
    await journal.append(requestEvent(n))
    await journal.append(exitEvent(n))
  }
  assert.equal((await journal.status()).writable, true)
  await outgoing.stop()
})

test('below the limit of free space, active runs may end but no run may begin', async (t) => {
  const disk = await smallDisk(t, 1_024)
  if (disk === null) return t.skip(NO_DISK)
  const path = join(disk, 'exec.log')
  const clock = new ManualClock()
  const journal = new Journal(
    { clock, log: silent },
    { path, marks: new RunningMarks({ log: silent }, { directory: join(await temporaryDirectory(t), 'running'), journal: path }) },
  )
  await journal.start()
  await journal.append(requestEvent(1))
  await journal.append(requestEvent(3))
  await writeFile(join(disk, 'ballast'), Buffer.alloc(980 * 1024))
  await clock.advance(1_000)
  const low = { code: 'journal_unavailable', message: /too little space left/ }
  await assert.rejects(journal.append(requestEvent(2)), low)
  const { writable, problem } = await journal.status()
  assert.deepEqual([writable, problem], [false, 'too little space left on the disk'])
  await journal.append(startedEvent(1))
  await journal.append(exitEvent(1))
  // This refusal is the end of a run as well.
  await journal.refuse(denialEvent(3, 'spawn_failed') as DenialEvent)
  const { size } = await stat(path)
  for (let n = 0; n < 100; n++) await journal.refuse(refusal(n))
  assert.equal((await stat(path)).size, size)
  await rm(join(disk, 'ballast'))
  await journal.append(requestEvent(2))
  assert.equal((await journal.status()).writable, true)
  await journal.append(exitEvent(2))
  await journal.stop()
  assert.deepEqual(
    suppressed(await linesOf(path)).map(({ count }) => count),
    [100],
  )
  assert.equal((await verifyJournal([path])).ok, true)
})
