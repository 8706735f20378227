import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ConsoleKeys } from '../../../src/doors/console/screen/keys.ts'
import { ManualClock } from '../../support/manual-clock.ts'

test('a confirmation expires after 5 s, and later keys have their usual meaning', async () => {
  const clock = new ManualClock()
  const done: string[] = []
  let asked: readonly string[] = []
  const keys = new ConsoleKeys({
    clock,
    controls: {
      abort: (n) => done.push(`abort ${n}`),
      paused: new Set(),
      pause: (whoami) => done.push(`pause ${whoami}`),
      resume: () => {},
      stop: () => done.push('stop'),
    },
    targets: () => ({ current: { n: 7, whoami: 'codex', argv: ['make'] }, running: 1, agents: ['codex'] }),
    ask: (rows) => (asked = rows),
    help: () => {},
    record: () => {},
    repaint: () => {},
  })
  for (const [key, answer] of [
    ['x', 'x'],
    ['p', '1'],
    ['\u0003', '\u0003'],
  ] as const) {
    keys.press(key)
    assert.notDeepEqual(asked, [])
    await clock.advance(5_000)
    assert.deepEqual(asked, [])
    keys.press(answer)
    await clock.advance(5_000)
  }
  assert.deepEqual(done, [])
  for (const key of ['x', 'x', 'p', '1', '\u0003', '\u0003']) {
    keys.press(key)
    await clock.advance(4_999)
  }
  assert.deepEqual(done, ['abort 7', 'pause codex', 'stop'])
  keys.close()
  assert.equal(clock.pending, 0)
})
