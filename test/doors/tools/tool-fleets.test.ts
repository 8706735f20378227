import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { NEVER } from '../../../src/base/abort.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { AppError } from '../../../src/base/errors.ts'
import { shown } from '../../../src/base/visible-text.ts'
import { ExecutorSessions } from '../../../src/doors/executor-sessions.ts'
import type { ToolFleetRequest } from '../../../src/doors/tools/tool-fleet.ts'
import { ToolFleets } from '../../../src/doors/tools/tool-fleet.ts'
import { ToolRuns } from '../../../src/doors/tools/tool-runs.ts'
import type { TargetRequest, TargetRunner } from '../../../src/executor/local/target-runner.ts'
import { MAX_FLEETS_ENDED, MAX_FLEETS_GOING, MAX_FLEET_DETAIL, MAX_FLEET_HOSTS } from '../../../src/protocol/limits/fleet.ts'
import { CAPABILITY_NAMES } from '../../../src/protocol/rexd/fields.ts'
import type { RunPart } from '../../../src/protocol/api/run-events.ts'
import { exitEvent as exit } from '../../support/journal-exit.ts'
import { LocalHost } from '../../support/local-engine.ts'

/** A suggestion that is too long and contains an invisible character. */
const NEXT = `wait for \u202e${'x'.repeat(1_000)}`
const KEY = { key: null, places: 8 }

const output = (text: string): RunPart => ({ type: 'stdout', data: Buffer.from(text) })

const request = (more: Partial<ToolFleetRequest> = {}): ToolFleetRequest => ({
  command: {
    operation: 'exec_fleet',
    command: 'id',
    args: [],
    cwd: null,
    target: null,
    env: {},
    stdin: new Uint8Array(0),
    timeout_ms: 30_000,
  },
  words: ['all'],
  plan: { parallel: 64, canary: 0, maxFailures: null, deadlineMs: null },
  view: { stdout: 100, stderr: 100 },
  total: 10_000,
  ...more,
})

const hostsOf = (...names: readonly string[]) =>
  names.map((host) => ({ host, target: host, agent_id: Buffer.from(host).toString('hex').padEnd(64, '0') }))
const many = (count: number) => hostsOf(...Array.from({ length: count }, (_, at) => `n${at + 1}`))

/** Fleets on an executor of this process, whose targets give these answers. */
const fleetsOn = async (t: TestContext, answer: (asked: TargetRequest) => AsyncIterable<RunPart>) => {
  const most = { now: 0, ever: 0 }
  const none = async () => assert.fail('it is asked to run')
  const targets: TargetRunner = {
    async *run(asked) {
      most.ever = Math.max(most.ever, ++most.now)
      for await (const part of answer(asked)) {
        if (part.type === 'exit') most.now -= 1
        yield part
      }
    },
    openTerminal: () => assert.fail('no terminal is asked for'),
    cancel: async () => undefined,
    reach: none,
    files: () => assert.fail('it is asked to run'),
    rules: none,
    select: none,
  }
  const host = await LocalHost.start(t, { targets, security: 'allow_targets = ["*"]' })
  const { executor } = host
  const opening = (target: string | null) => ({ door: 'mcp' as const, client_name: 'a test', available: CAPABILITY_NAMES, target })
  const sessions = new ExecutorSessions({ executor }, { opening, maxIdle: 4 })
  const runs = new ToolRuns({ executor, sessions, clock: systemClock }, { caller: 'a test', ready: async () => NEVER.throwIfAborted() })
  return { fleets: new ToolFleets({ runs, clock: systemClock }), runs, most, host }
}

test('a fan-out to 60 hosts uses a limited number of sessions, and equal answers share one run', async (t) => {
  const { fleets, runs, most, host } = await fleetsOn(t, async function* ({ target }) {
    yield output(target === 'n7' ? 'other\n' : 'same\n')
    yield exit({ stdout_bytes_total: target === 'n7' ? 6 : 5 })
  })
  const fleet = fleets.start(request(), many(60), KEY)
  await fleet.ended
  const { ran, failed, going, answers, not_run } = fleet.result()
  assert.deepEqual([ran, failed, going, not_run], [60, 0, 0, []])
  assert.deepEqual(
    answers.map(({ hosts, count, stdout }) => [hosts, count, stdout]),
    [
      ['n[1-6,8-60]', 59, 'same\n'],
      ['n7', 1, 'other\n'],
    ],
  )
  assert.deepEqual(runs.all.map(({ id }) => id).toSorted(), answers.map(({ run_id }) => run_id).toSorted())
  assert.ok(most.ever <= KEY.places, `${most.ever} at once`)
  const lines = await host.lines()
  assert.equal(lines.filter(({ event }) => event === 'request').length, 60)
  assert.equal(lines.filter(({ event }) => event === 'refused').length, 0)
})

test("a host whose output was cut by its target's limit counts as failed", async (t) => {
  const { fleets } = await fleetsOn(t, async function* ({ target }) {
    yield output('same\n')
    yield exit(target === 'n2' ? { stdout_bytes_total: 6, truncated: true, warnings: ['stdout_cap_hit'] } : { stdout_bytes_total: 5 })
  })
  const fleet = fleets.start(request(), many(2), KEY)
  await fleet.ended
  const { ran, failed, answers } = fleet.result()
  assert.deepEqual([ran, failed], [2, 1])
  assert.deepEqual(
    answers.map(({ hosts, incomplete }) => [hosts, incomplete]),
    [
      ['n1', false],
      ['n2', true],
    ],
  )
})

test('simultaneous fan-outs share the sessions, and no host fails because no session is free', async (t) => {
  const first = Promise.withResolvers<void>()
  const { fleets, most } = await fleetsOn(t, async function* () {
    if (most.now === KEY.places) first.resolve()
    await first.promise
    yield exit()
  })
  const all = ['a', 'b', 'c'].map((name) => fleets.start(request(), hostsOf(...Array.from({ length: 20 }, (_, at) => `${name}${at}`)), KEY))
  await Promise.all(all.map(async ({ ended }) => ended))
  assert.deepEqual(
    all.map((fleet) => fleet.result().ran),
    [20, 20, 20],
  )
  assert.equal(most.ever, KEY.places)
})

test('each host gets the result that matches what is known about its run', async (t) => {
  const { fleets } = await fleetsOn(t, async function* ({ target }) {
    if (target === 'away') throw new AppError('peer_unreachable', 'no address answered', { data: { next: NEXT } })
    if (target === 'never') yield exit({ code: null, incomplete: true, never_arrived: true, message: 'cut off before it was sent' })
    if (target === 'lost') yield exit({ code: null, incomplete: true, message: 'the connection was lost' })
    if (target === 'denies') yield exit({ code: null, denial_reason: 'argv_not_allowed' })
    if (target === 'broken') yield exit({ code: null, denial_reason: 'spawn_failed' })
    if (target === 'short') yield exit({ incomplete: true, message: 'bytes are missing' })
    if (target === 'fails') yield exit({ code: 3 })
    if (target === 'silent') return
    if (target === 'inside') throw new AppError('internal')
    if (target === 'mistaken') yield { type: 'error', request_id: null, error: 'internal', message: 'a mistake' }
    yield exit()
  })
  const fleet = fleets.start(
    request(),
    hostsOf('away', 'never', 'lost', 'denies', 'broken', 'short', 'fails', 'silent', 'inside', 'mistaken', 'well'),
    KEY,
  )
  await fleet.ended
  const { asked, ran, failed, denied, unreachable, unknown, not_run, answers } = fleet.result()
  assert.deepEqual([asked, ran, failed, denied, unreachable, unknown], [11, 3, 2, 2, 2, 4])
  assert.deepEqual(not_run.map(({ end, hosts, reason }) => [end, hosts, reason]).toSorted(), [
    ['denied', 'broken', 'spawn_failed'],
    ['denied', 'denies', 'argv_not_allowed'],
    ['unknown', 'inside,lost,mistaken,silent', null],
    ['unreachable', 'away,never', 'peer_unreachable'],
  ])
  const next = not_run.map((one) => one.next).filter((text) => text !== null)
  const [away, ...denials] = next
  assert.equal(away, shown(NEXT).slice(0, MAX_FLEET_DETAIL), 'cut and cleaned')
  assert.deepEqual(denials, [
    'Try: x0x acl mine denies\nTry, on denies: x0x acl explain --last\nTry, on denies: x0x acl suggest',
    'Try, on broken: x0x audit tail -n 5   (the reason)',
  ])
  assert.deepEqual(answers.map(({ hosts, exit_code, incomplete }) => [hosts, exit_code, incomplete]).toSorted(), [
    ['fails', 3, false],
    ['short', 0, true],
    ['well', 0, false],
  ])
})

test('output that was not kept whole does not count as equal to other output', async (t) => {
  const piece = 'x'.repeat(2 * 1024 * 1024)
  const { fleets } = await fleetsOn(t, async function* () {
    yield output(piece)
    yield exit({ stdout_bytes_total: piece.length })
  })
  const fleet = fleets.start(request(), hostsOf('a', 'b'), KEY)
  await fleet.ended
  assert.deepEqual(
    fleet.result().answers.map(({ count }) => count),
    [1, 1],
  )
})

test('too many hosts, too many fan-outs and a fan-out after the close are refused', async (t) => {
  const gates: (() => void)[] = []
  const { fleets } = await fleetsOn(t, async function* () {
    await new Promise<void>((resolve) => gates.push(resolve))
    yield exit()
  })
  assert.throws(() => fleets.start(request(), many(MAX_FLEET_HOSTS + 1), KEY), { code: 'bad_request' })
  const going = Array.from({ length: MAX_FLEETS_GOING }, () => fleets.start(request(), hostsOf('a'), KEY))
  assert.throws(() => fleets.start(request(), hostsOf('a'), KEY), { code: 'rate_limited' })
  fleets.close()
  const open = setInterval(() => gates.splice(0).forEach((gate) => gate()), 10)
  t.after(() => clearInterval(open))
  await Promise.all(going.map(({ ended }) => ended))
  assert.throws(() => fleets.start(request(), hostsOf('a'), KEY), { code: 'shutting_down' })
})

test('the latest ended fan-outs and their keys are known, and older ones are forgotten', async (t) => {
  const { fleets } = await fleetsOn(t, async function* () {
    yield exit()
  })
  const first = fleets.start(request(), hostsOf('a'), { key: 'first', places: 1 })
  await first.ended
  assert.equal(fleets.withKey('first', request()), first)
  assert.throws(() => fleets.withKey('first', request({ words: ['other'] })), { code: 'conflict' })
  for (let at = 0; at <= MAX_FLEETS_ENDED; at++) await fleets.start(request(), hostsOf('a'), KEY).ended
  fleets.start(request(), hostsOf('a'), KEY)
  assert.throws(() => fleets.get(first.id), { code: 'unknown_run' })
  assert.equal(fleets.withKey('first', request()), null)
})
