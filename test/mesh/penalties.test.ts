import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Penalties, PENALTY_MS, MIN_PENALTY_MS, MAX_PENALTY_MS, MAX_PENALISED_SOURCES } from '../../src/mesh/penalties.ts'
import { ManualClock } from '../support/manual-clock.ts'

test('a source is refused once its penalties add up to the minimum time, until all of that has passed', async () => {
  const clock = new ManualClock()
  const penalties = new Penalties({ clock })
  const needed = MIN_PENALTY_MS / PENALTY_MS.malformed
  for (let i = 1; i < needed; i++) assert.equal(penalties.penalise('192.0.2.1', 'malformed'), false)
  assert.equal(penalties.refuses('192.0.2.1'), false)
  assert.equal(penalties.penalise('192.0.2.1', 'malformed'), true)
  assert.equal(penalties.refuses('192.0.2.1'), true)
  assert.equal(penalties.refuses('192.0.2.2'), false)
  // The refusal does not end when less than the minimum time is left.
  await clock.advance(MIN_PENALTY_MS - 1)
  assert.equal(penalties.refuses('192.0.2.1'), true)
  await clock.advance(1)
  assert.equal(penalties.refuses('192.0.2.1'), false)
  assert.deepEqual(penalties.list(), [])
})

test('violations that are far apart lead to no refusal', async () => {
  const clock = new ManualClock()
  const penalties = new Penalties({ clock })
  for (let i = 0; i < 100; i++) {
    assert.equal(penalties.penalise('192.0.2.1', 'denied'), false)
    await clock.advance(PENALTY_MS.denied)
  }
})

test('a source is refused for at most the maximum time', async () => {
  const clock = new ManualClock()
  const penalties = new Penalties({ clock })
  for (let i = 0; i < 1_000; i++) penalties.penalise('192.0.2.1', 'bad_signature')
  assert.deepEqual(penalties.list(), [{ source: '192.0.2.1', refused: true, offence: 'bad_signature', secs: MAX_PENALTY_MS / 1000 }])
  await clock.advance(MAX_PENALTY_MS)
  assert.equal(penalties.refuses('192.0.2.1'), false)
})

test('many sources need bounded memory, and a refused source stays refused', async () => {
  const penalties = new Penalties({ clock: new ManualClock() })
  for (let i = 0; i < 2; i++) penalties.penalise('192.0.2.1', 'bad_signature')
  for (let i = 0; i < 2 * MAX_PENALISED_SOURCES; i++) penalties.penalise(`2001:db8:${i.toString(16)}:0`, 'denied')
  assert.equal(penalties.list().length, MAX_PENALISED_SOURCES)
  assert.equal(penalties.refuses('192.0.2.1'), true)
})
