import { LATENESS_PARDON_MS, EventLoopLag } from '../../src/mesh/sources.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { LATENESS_CHECK_MS, LATE_MS, Sources, CROWD_FACTOR, REFUSED_CONNECTION_COST } from '../../src/mesh/sources.ts'
import { MAX_METERED_SOURCES, RateLimit } from '../../src/base/rate-limit.ts'
import { perMinute } from '../../src/protocol/limits/mesh.ts'
import { RATES, type Metered, type PeerClass } from '../../src/protocol/limits/mesh.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** Machines are named after their peer class. `hosts` is the number of hosts that share the limit of unlisted peers. */
const sourcesOf = (clock: ManualClock, hosts = 1, random?: () => number): Sources =>
  new Sources(
    { clock, outsideHosts: () => hosts, ...(random !== undefined && { random }) },
    { classOf: (machineId) => (machineId in RATES ? (machineId as PeerClass) : 'unlisted') },
  )
const metersOf = (clock: ManualClock, hosts = 1) => {
  const sources = sourcesOf(clock, hosts)
  return {
    take: (standing: PeerClass, source: string, what: Metered, count = 1): boolean =>
      sources.charge({ machineId: standing, host: source }, what, count) === 'allowed',
  }
}

/** Deterministic random numbers from 0 to below 1 (mulberry32). */
const chance = (seed: number) => (): number => {
  seed = (seed + 0x6d2b79f5) | 0
  let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
}

test('a source has a burst and then a rate per second, and other sources keep theirs', async () => {
  const clock = new ManualClock()
  const limit = new RateLimit({ clock }, perMinute(60))
  assert.equal(limit.allows('a', 60), true)
  assert.equal(limit.allows('a'), false)
  assert.equal(limit.allows('b', 60), true)
  await clock.advance(1_000)
  assert.deepEqual([limit.allows('a'), limit.allows('a')], [true, false])
})

test('sources need bounded memory, and the one that was quiet longest gets a fresh limit', () => {
  const limit = new RateLimit({ clock: new ManualClock() }, { burst: 1, perSecond: 0 })
  assert.equal(limit.allows('first'), true)
  for (let i = 0; i < MAX_METERED_SOURCES - 1; i++) limit.allows(`source ${i}`)
  assert.equal(limit.allows('first'), false)
  for (let i = 0; i < MAX_METERED_SOURCES; i++) limit.allows(`other ${i}`)
  assert.equal(limit.allows('first'), true)
})

test('when unlisted peers together exceed their limit, heavy ones are refused and light ones continue', async () => {
  const clock = new ManualClock()
  const hosts = 64
  const meters = metersOf(clock, hosts)
  const { perSecond } = RATES.unlisted.streams
  const found = new Set<number>()
  for (let second = 0; second < 60; second++) {
    for (let host = 0; host < hosts; host++) {
      // Each stays below the limit of a single host.
      for (let i = 0; i < perSecond * 0.9; i++) if (!meters.take('unlisted', `host ${host}`, 'streams')) found.add(host)
    }
    assert.equal(meters.take('unlisted', 'quiet', 'streams'), true)
    await clock.advance(1_000)
  }
  assert.ok(found.size >= hosts / 2)
})

test('hosts that use a fresh budget and leave achieve little more together than hosts that stay', async () => {
  const secs = 120
  for (const what of ['bytes', 'frames', 'streams', 'resets', 'messages', 'handshakes'] as const) {
    const clock = new ManualClock()
    // Eight hosts are connected, and new ones arrive each second at the maximum rate.
    const meters = metersOf(clock, 8)
    const { burst, perSecond } = RATES.unlisted[what]
    const once = Math.max(1, burst / 1_000)
    let done = 0
    for (let second = 0; second < secs; second++) {
      for (let host = 0; host < CROWD_FACTOR * RATES.unlisted.connections.perSecond; host++)
        while (meters.take('unlisted', `${second} ${host}`, what, once)) done += once
      await clock.advance(1_000)
    }
    assert.ok(done <= 4 * CROWD_FACTOR * (burst + perSecond * secs), `${what}: ${done / burst} bursts`)
  }
})

test('refused work of an unlisted peer does not reduce the budget of others', async () => {
  const clock = new ManualClock()
  const meters = metersOf(clock, 200)
  for (let second = 0; second < 30; second++) {
    for (let i = 0; i < 50; i++) meters.take('unlisted', 'loud', 'handshakes')
    assert.equal(meters.take('unlisted', 'quiet', 'handshakes'), true)
    await clock.advance(1_000)
  }
})

test('unlisted peers use no budget of named peers, and neither class uses that of accepted peers', () => {
  const meters = metersOf(new ManualClock())
  while (meters.take('unlisted', 'host', 'streams')) continue
  for (let i = 0; i < 2 * CROWD_FACTOR; i++) while (meters.take('unlisted', `host ${i}`, 'streams', 10)) continue
  assert.equal(meters.take('named', 'machine', 'streams', RATES.named.streams.burst), true)
  assert.equal(meters.take('named', 'machine', 'streams'), false)
  assert.equal(meters.take('accepted', 'machine', 'streams', RATES.accepted.streams.burst), true)
})

test('a host below its own limit is refused as crowded when all unlisted peers together do too much', () => {
  const sources = sourcesOf(new ManualClock(), 512)
  const at = (host: string) => ({ machineId: 'unlisted', host })
  const { burst } = RATES.unlisted.messages
  for (let i = 0; i < 2 * CROWD_FACTOR; i++) while (sources.charge(at(`host ${i}`), 'messages', burst / 4) === 'allowed') continue
  // Two batches of an honest peer. The first one uses the whole share of its host in this crowd.
  assert.deepEqual(
    [1, 2].map(() => sources.charge(at('quiet'), 'messages', 16)),
    ['allowed', 'crowded'],
  )
})

test('violations of an unlisted peer refuse all unlisted peers of its host, but no accepted machine', () => {
  const sources = sourcesOf(new ManualClock())
  for (let i = 0; i < 2; i++) sources.penalise(sources.of({ machineId: 'mallory', host: 'here' }), 'flood')
  assert.equal(sources.refuses({ machineId: 'eve', host: 'here' }), true)
  assert.equal(sources.refuses({ machineId: 'accepted', host: 'here' }), false)
})

test('a refused host may open a few connections, and has another share if a known machine was there', () => {
  const sources = sourcesOf(new ManualClock())
  for (let i = 0; i < 2; i++) sources.penalise('here', 'bad_signature')
  let came = 0
  while (sources.mayConnect('here', false)) came += 1
  assert.equal(came, RATES.unlisted.connections.burst / REFUSED_CONNECTION_COST)
  assert.equal(sources.mayConnect('here', true), true)
})

test('connections from many hosts stay within the limit of the crowd, and a rare newcomer gets in', async () => {
  const { burst, perSecond } = RATES.unlisted.connections
  await fc.assert(
    fc.asyncProperty(fc.integer(), fc.integer({ min: 100, max: 6_000 }), fc.integer({ min: 1, max: 4 }), async (seed, hosts, eager) => {
      const clock = new ManualClock()
      const sources = sourcesOf(clock, 160, chance(seed))
      const secs = 30
      let came = 0
      for (let second = 0; second < secs; second++) {
        for (let i = 0; i < hosts * eager; i++) if (sources.mayConnect(`host ${i % hosts}`, false)) came += 1
        await clock.advance(1_000)
      }
      assert.ok(came <= CROWD_FACTOR * (burst + perSecond * secs), String(came))
    }),
    { numRuns: 2 },
  )
  const clock = new ManualClock()
  const sources = sourcesOf(clock, 160, chance(1))
  let late = false
  // A thousand hosts try ten times a second. The late one tries once in five seconds.
  for (let tick = 0; tick < 3_000 && !late; tick++) {
    for (let host = 0; host < 1_000; host++) sources.mayConnect(`host ${host}`, false)
    if (tick > 100 && tick % 50 === 0) late = sources.mayConnect('late', false)
    await clock.advance(100)
  }
  assert.equal(late, true)
})

test('unlisted peers of a host cannot use up the share of known machines there, even if they come first', async () => {
  const clock = new ManualClock()
  const sources = sourcesOf(clock, 1, chance(2))
  let [strangers, known] = [0, 0]
  const secs = 120
  for (let tick = 0; tick < 20 * secs; tick++) {
    for (let i = 0; i < 20; i++) if (sources.mayConnect('here', true)) strangers += 1
    if (tick >= 20 * 60 && tick % 20 === 0 && sources.mayConnect('here', true)) known += 1
    await clock.advance(50)
  }
  const most = (standing: PeerClass): number => RATES[standing].connections.burst + RATES[standing].connections.perSecond * secs
  assert.ok(strangers + known <= most('unlisted') + most('named'), String(strangers))
  // One attempt per second for a minute, among four hundred per second.
  assert.ok(known > 0)
})

test('after event loop lag, missed deadlines are not penalised, but floods are', async () => {
  const clock = new ManualClock()
  const sources = sourcesOf(clock)
  await clock.advance(LATENESS_CHECK_MS + LATE_MS)
  for (let i = 0; i < 100; i++) assert.equal(sources.penalise('here', i % 2 === 0 ? 'handshake_failed' : 'unfinished'), false)
  assert.deepEqual(sources.diagnostics().penalties, [])
  sources.penalise('here', 'flood')
  assert.equal(sources.penalise('here', 'flood'), true)
})

test('event loop lag is forgotten after a while', async () => {
  const clock = new ManualClock()
  const lateness = new EventLoopLag({ clock })
  assert.equal(lateness.recent, false)
  await clock.advance(LATENESS_CHECK_MS + LATE_MS)
  assert.equal(lateness.recent, true)
  for (let waited = 0; waited < LATENESS_PARDON_MS; waited += LATENESS_CHECK_MS) {
    await clock.advance(LATENESS_CHECK_MS)
    assert.equal(lateness.recent, waited + LATENESS_CHECK_MS < LATENESS_PARDON_MS)
  }
})
