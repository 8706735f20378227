import assert from 'node:assert/strict'
import { Writable } from 'node:stream'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

import { systemClock } from '../../../src/base/clock.ts'
import { LiveDisplay, PlainDisplay } from '../../../src/doors/console/screen/display.ts'

const heap = (): number => {
  setFlagsFromString('--expose-gc')
  ;(runInNewContext('gc') as () => void)()
  return process.memoryUsage().heapUsed
}

test('the display keeps at most 4 MiB of the lines that it prints', async () => {
  let drawn = 0
  const output = new Writable({ write: (chunk: Buffer, _encoding, done) => done(void (drawn += chunk.length)) })
  const display = new LiveDisplay({ output, clock: systemClock, bottom: () => ({ live: [], fixed: [] }) })
  const before = heap()
  for (let at = 0; at < 200_000; at += 100) {
    const texts = Array.from({ length: 100 }, (_none, more) => Buffer.alloc(70, String(at + more)).toString())
    display.print(texts.map((text) => ({ first: '', next: '', text })))
    await display.ready()
  }
  assert.ok(drawn > 200_000 * 72 - 64 * 1024, `${drawn} characters of ${200_000 * 72}`)
  const kept = heap() - before
  assert.ok(kept < 4 * 1024 * 1024, `${kept} bytes`)
  await display.close()
})

test('on a terminal that wraps rows itself, a character of ambiguous width counts as wide', async () => {
  let drawn = ''
  const writable = new Writable({ write: (chunk: Buffer, _encoding, done) => done(void (drawn += chunk.toString())) })
  const display = new PlainDisplay(Object.assign(writable, { isTTY: true, columns: 10 }))
  display.print([{ first: '| ', next: ': ', text: 'a'.repeat(8) + '\u00e9'.repeat(7) }])
  await display.close()
  assert.equal(drawn, '| aaaaaaaa\n: \u00e9\u00e9\u00e9\u00e9\n: \u00e9\u00e9\u00e9\n')
})
