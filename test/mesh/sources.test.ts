import { LATENESS_PARDON_MS, EventLoopLag } from '../../src/mesh/sources.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { LATENESS_CHECK_MS, LATE_MS, Sources, CROWD_FACTOR, REFUSED_CONNECTION_COST } from '../../src/mesh/sources.ts'
import { MAX_METERED_SOURCES, RateLimit } from '../../src/base/rate-limit.ts'
import { perMinute } from '../../src/protocol/limits/mesh.ts'
import { RATES, type Metered, type PeerClass } from '../../src/protocol/limits/mesh.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** Machines are called by their standing; `hosts` share what strangers may do. */
const sourcesOf = (clock: ManualClock, hosts = 1, random?: () => number): Sources =>
  new Sources(
    { clock, outsideHosts: () => hosts, ...(random !== undefined && { random }) },
    { classOf: (machineId) => (machineId in RATES ? (machineId as PeerClass) : 'stranger') },
  )
const metersOf = (clock: ManualClock, hosts = 1) => {
  const sources = sourcesOf(clock, hosts)
  return {
    take: (standing: PeerClass, source: string, what: Metered, count = 1): boolean =>
      sources.charge({ machineId: standing, host: source }, what, count) === 'allowed',
  }
}

/** Numbers from 0 to below 1, the same for the same seed (mulberry32). */
const chance = (seed: number) => (): number => {
  seed = (seed + 0x6d2b79f5) | 0
  let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
}

test('a source may do so much at once, then so much a second, and no other pays for it', async () => {
  const clock = new ManualClock()
  const limit = new RateLimit({ clock }, perMinute(60))
  assert.equal(limit.allows('a', 60), true)
  assert.equal(limit.allows('a'), false)
  assert.equal(limit.allows('b', 60), true)
  await clock.advance(1_000)
  assert.deepEqual([limit.allows('a'), limit.allows('a')], [true, false])
})

test('sources are remembered in bounded memory: the one that was quiet longest starts afresh', () => {
  const limit = new RateLimit({ clock: new ManualClock() }, { burst: 1, perSecond: 0 })
  assert.equal(limit.allows('first'), true)
  for (let i = 0; i < MAX_METERED_SOURCES - 1; i++) limit.allows(`source ${i}`)
  assert.equal(limit.allows('first'), false)
  for (let i = 0; i < MAX_METERED_SOURCES; i++) limit.allows(`other ${i}`)
  assert.equal(limit.allows('first'), true)
})

test('when strangers together do too much, who does much is found and who does little goes on', async () => {
  const clock = new ManualClock()
  const hosts = 64
  const meters = metersOf(clock, hosts)
  const { perSecond } = RATES.stranger.streams
  const found = new Set<number>()
  for (let second = 0; second < 60; second++) {
    for (let host = 0; host < hosts; host++) {
      // Each stays below what one host alone may do.
      for (let i = 0; i < perSecond * 0.9; i++) if (!meters.take('stranger', `host ${host}`, 'streams')) found.add(host)
    }
    assert.equal(meters.take('stranger', 'quiet', 'streams'), true)
    await clock.advance(1_000)
  }
  assert.ok(found.size >= hosts / 2)
})

test('hosts that come, do what a fresh budget allows and leave do little more together than those that stay', async () => {
  const secs = 120
  for (const what of ['bytes', 'frames', 'streams', 'resets', 'messages', 'handshakes'] as const) {
    const clock = new ManualClock()
    // Eight at a time, and as many new ones each second as may connect.
    const meters = metersOf(clock, 8)
    const { burst, perSecond } = RATES.stranger[what]
    const once = Math.max(1, burst / 1_000)
    let done = 0
    for (let second = 0; second < secs; second++) {
      for (let host = 0; host < CROWD_FACTOR * RATES.stranger.connections.perSecond; host++)
        while (meters.take('stranger', `${second} ${host}`, what, once)) done += once
      await clock.advance(1_000)
    }
    assert.ok(done <= 4 * CROWD_FACTOR * (burst + perSecond * secs), `${what}: ${done / burst} bursts`)
  }
})

test('what a stranger is refused is not taken from the others', async () => {
  const clock = new ManualClock()
  const meters = metersOf(clock, 200)
  for (let second = 0; second < 30; second++) {
    for (let i = 0; i < 50; i++) meters.take('stranger', 'loud', 'handshakes')
    assert.equal(meters.take('stranger', 'quiet', 'handshakes'), true)
    await clock.advance(1_000)
  }
})

test('strangers use up nothing of those who are named, and nobody that of the accepted', () => {
  const meters = metersOf(new ManualClock())
  while (meters.take('stranger', 'host', 'streams')) continue
  for (let i = 0; i < 2 * CROWD_FACTOR; i++) while (meters.take('stranger', `host ${i}`, 'streams', 10)) continue
  assert.equal(meters.take('named', 'machine', 'streams', RATES.named.streams.burst), true)
  assert.equal(meters.take('named', 'machine', 'streams'), false)
  assert.equal(meters.take('accepted', 'machine', 'streams', RATES.accepted.streams.burst), true)
})

test('what only the crowd leaves no room for is told apart from what is too much for one', () => {
  const sources = sourcesOf(new ManualClock(), 512)
  const at = (host: string) => ({ machineId: 'stranger', host })
  const { burst } = RATES.stranger.messages
  for (let i = 0; i < 2 * CROWD_FACTOR; i++) while (sources.charge(at(`host ${i}`), 'messages', burst / 4) === 'allowed') continue
  // Two batches of an honest neighbour: the first is worth all that its host has among so many.
  assert.deepEqual(
    [1, 2].map(() => sources.charge(at('quiet'), 'messages', 16)),
    ['allowed', 'crowded'],
  )
})

test('a machine that is named answers for itself, a stranger for the strangers of its host', () => {
  const sources = sourcesOf(new ManualClock())
  for (let i = 0; i < 2; i++) sources.penalise(sources.of({ machineId: 'mallory', host: 'here' }), 'flood')
  assert.equal(sources.refuses({ machineId: 'eve', host: 'here' }), true)
  assert.equal(sources.refuses({ machineId: 'accepted', host: 'here' }), false)
})

test('from a host that is refused a few may still come to prove who they are, and where one is that we know a share is kept', () => {
  const sources = sourcesOf(new ManualClock())
  for (let i = 0; i < 2; i++) sources.penalise('here', 'bad_signature')
  let came = 0
  while (sources.mayConnect('here', false)) came += 1
  assert.equal(came, RATES.stranger.connections.burst / REFUSED_CONNECTION_COST)
  assert.equal(sources.mayConnect('here', true), true)
})

test('however many hosts begin connections, together they get no more than the crowd, and who comes seldom gets in among them', async () => {
  const { burst, perSecond } = RATES.stranger.connections
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
  // A thousand hosts are always there before it, ten times a second; it comes once in five seconds.
  for (let tick = 0; tick < 3_000 && !late; tick++) {
    for (let host = 0; host < 1_000; host++) sources.mayConnect(`host ${host}`, false)
    if (tick > 100 && tick % 50 === 0) late = sources.mayConnect('late', false)
    await clock.advance(100)
  }
  assert.equal(late, true)
})

test('strangers of a host cannot use up what is kept there for those we know, though they always come first', async () => {
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
  assert.ok(strangers + known <= most('stranger') + most('named'), String(strangers))
  // One try a second, for a minute, beside four hundred a second.
  assert.ok(known > 0)
})

test('while our own loop was late nobody is blamed for having been slow, and everybody for a flood', async () => {
  const clock = new ManualClock()
  const sources = sourcesOf(clock)
  await clock.advance(LATENESS_CHECK_MS + LATE_MS)
  for (let i = 0; i < 100; i++) assert.equal(sources.penalise('here', i % 2 === 0 ? 'handshake_failed' : 'unfinished'), false)
  assert.deepEqual(sources.diagnostics().penalties, [])
  sources.penalise('here', 'flood')
  assert.equal(sources.penalise('here', 'flood'), true)
})

test('lateness is forgotten after a while', async () => {
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
