import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'

import { FleetProgress, timeText } from '../../../../src/programs/x0x/fleet/fleet-progress.ts'
import { denied, hostEnd } from '../../../support/fleet-daemon.ts'
import { ManualClock } from '../../../support/manual-clock.ts'

const open = (columns = 80, isTTY = true, init = { env: { NO_COLOR: '1' } as Record<string, string>, off: false }) => {
  const stderr = Object.assign(new PassThrough(), { isTTY, columns })
  const clock = new ManualClock()
  return { clock, progress: new FleetProgress({ stderr, clock }, init), text: () => String(stderr.read() ?? '') }
}

test('the progress line shows how many hosts are done and which is slowest', async () => {
  const { clock, progress, text } = open()
  progress.asked(3)
  progress.begun('web1')
  progress.begun('web2')
  await clock.advance(14_000)
  progress.ended(hostEnd('web1'))
  progress.begun('web3')
  progress.ended(denied('web3'))
  await clock.advance(100)
  assert.ok(text().endsWith('\r\u001b[Kx0x: 2 of 3 done, 1 running, 1 failed, 14 s, slowest web2 14 s'))
  progress.cancelling()
  await clock.advance(100)
  assert.match(text(), /x0x: cancelling, 2 of 3 done/)
})

test('the progress line is drawn at most ten times a second, and updates itself each second', async () => {
  const { clock, progress, text } = open()
  progress.asked(1_000)
  let drawn = 0
  for (let at = 0; at < 1_000; at += 1) {
    progress.begun(`web${at}`)
    await clock.advance(1)
  }
  drawn = text().split('\u001b[K').length - 1
  assert.ok(drawn >= 9 && drawn <= 11, `${drawn}`)
  await clock.advance(5_000)
  assert.equal(text().split('\u001b[K').length - 1, 5)
})

test('the progress line never wraps, and is erased before other output and at the end', async () => {
  const { clock, progress, text } = open(30)
  progress.asked(1_000)
  progress.begun('a-host-with-a-name-that-is-long')
  await clock.advance(100)
  assert.equal(text().replace('\r\u001b[K', '').length, 29)
  progress.clear()
  assert.equal(text(), '\r\u001b[K')
  progress.clear()
  assert.equal(text(), '')
  await clock.advance(100)
  assert.ok(text().startsWith('\r\u001b[Kx0x: '))
  progress.end()
  assert.deepEqual([text(), clock.pending], ['\r\u001b[K', 0])
  progress.begun('other')
  await clock.advance(5_000)
  assert.equal(text(), '')
})

test('the progress line needs a terminal and can be switched off, and shows failures in red if colours are allowed', async () => {
  for (const { clock, progress, text } of [open(80, false), open(80, true, { env: {}, off: true })]) {
    progress.asked(1)
    await clock.advance(3_000)
    progress.end()
    assert.deepEqual([text(), clock.pending], ['', 0])
  }
  const { clock, progress, text } = open(80, true, { env: {}, off: false })
  progress.asked(2)
  progress.begun('web1')
  progress.ended(denied('web1'))
  await clock.advance(100)
  assert.ok(text().includes('\u001b[31m1 failed\u001b[0m'))
  progress.end()
})

test('durations are short texts', () => {
  assert.deepEqual([0, 999, 59_999, 60_000, 3_661_000].map(timeText), ['0 s', '0 s', '59 s', '1:00', '61:01'])
})
