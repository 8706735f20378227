import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Lateness } from '../../src/mesh/lateness.ts'
import { Meters } from '../../src/mesh/meter.ts'
import { perMinute, RateLimit } from '../../src/mesh/rate-limit.ts'
import { Sources } from '../../src/mesh/sources.ts'
import {
  CROWD_FACTOR,
  LATE_MS,
  LATENESS_CHECK_MS,
  LATENESS_PARDON_MS,
  MAX_METERED_SOURCES,
  RATES,
  REFUSED_CONNECTION_COST,
  type Metered,
} from '../../src/protocol/meter-limits.ts'
import { ManualClock } from '../support/manual-clock.ts'

const metersOf = (clock: ManualClock, hosts = 1): Meters => new Meters({ clock, strangerHosts: () => hosts })

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

test('what a stranger is refused is not taken from the others', async () => {
  const clock = new ManualClock()
  const meters = metersOf(clock, 200)
  for (let second = 0; second < 30; second++) {
    for (let i = 0; i < 50; i++) meters.take('stranger', 'loud', 'handshakes')
    assert.equal(meters.take('stranger', 'quiet', 'handshakes'), true)
    await clock.advance(1_000)
  }
})

test('however many strangers share what is used up, who was quiet for long may do one thing', async () => {
  const clock = new ManualClock()
  for (const what of Object.keys(RATES.stranger) as Metered[]) {
    const meters = metersOf(clock, 512)
    for (let i = 0; i < 2 * CROWD_FACTOR; i++) while (meters.take('stranger', `host ${i}`, what, RATES.stranger[what].burst / 4)) continue
    assert.equal(meters.take('stranger', 'quiet', what), true, what)
    assert.equal(meters.take('stranger', 'quiet', what, RATES.stranger[what].burst), false, what)
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

test('a machine that is named answers for itself, a stranger for the strangers of its host', () => {
  const sources = new Sources(
    { clock: new ManualClock(), strangerHosts: () => 1 },
    { standing: (id) => (id === 'known' ? 'accepted' : 'stranger') },
  )
  for (let i = 0; i < 2; i++) sources.offend(sources.of({ machineId: 'mallory', host: 'here' }), 'flood')
  assert.equal(sources.refuses({ machineId: 'eve', host: 'here' }), true)
  assert.equal(sources.refuses({ machineId: 'known', host: 'here' }), false)
})

test('from a host that is refused a few may still come to prove who they are, and those we know from there as ever', () => {
  const sources = new Sources({ clock: new ManualClock(), strangerHosts: () => 1 }, { standing: () => 'stranger' })
  for (let i = 0; i < 2; i++) sources.offend('here', 'bad_signature')
  let came = 0
  while (sources.mayConnect('here', false)) came += 1
  assert.equal(came, RATES.stranger.connections.burst / REFUSED_CONNECTION_COST)
  assert.equal(sources.mayConnect('here', true), true)
})

test('while our own loop was late nobody is blamed for having been slow, and everybody for a flood', async () => {
  const clock = new ManualClock()
  const sources = new Sources({ clock, strangerHosts: () => 1 }, { standing: () => 'stranger' })
  await clock.advance(LATENESS_CHECK_MS + LATE_MS)
  for (let i = 0; i < 100; i++) assert.equal(sources.offend('here', i % 2 === 0 ? 'handshake_failed' : 'unfinished'), false)
  assert.deepEqual(sources.penalties(), [])
  sources.offend('here', 'flood')
  assert.equal(sources.offend('here', 'flood'), true)
})

test('lateness is forgotten after a while', async () => {
  const clock = new ManualClock()
  const lateness = new Lateness({ clock })
  assert.equal(lateness.recent, false)
  await clock.advance(LATENESS_CHECK_MS + LATE_MS)
  assert.equal(lateness.recent, true)
  for (let waited = 0; waited < LATENESS_PARDON_MS; waited += LATENESS_CHECK_MS) {
    await clock.advance(LATENESS_CHECK_MS)
    assert.equal(lateness.recent, waited + LATENESS_CHECK_MS < LATENESS_PARDON_MS)
  }
})
