import assert from 'node:assert/strict'
import { PassThrough, Readable } from 'node:stream'
import { finished } from 'node:stream/promises'
import { test } from 'node:test'

import fc from 'fast-check'

import {
  relayLog,
  RELAYED_LINE_BYTES,
  RELAYED_LINES_BURST,
  RELAYED_LINES_PER_SECOND,
  RELAYED_BYTES,
} from '../../src/supervision/relayed-log.ts'
import { ManualClock } from '../support/manual-clock.ts'

type Line = Record<string, unknown>

const relayed = async (chunks: readonly Uint8Array[], clock = new ManualClock()): Promise<string[]> => {
  const stream = new PassThrough()
  const lines: string[] = []
  relayLog(stream, { clock }, { name: 'half', pid: 7, write: (line) => lines.push(line) })
  for (const chunk of chunks) stream.write(chunk)
  stream.end()
  await finished(stream)
  return lines
}

const parse = (lines: readonly string[]): Line[] => lines.map((line) => JSON.parse(line) as Line)

test('a JSON line keeps its fields except name and pid, and any other line becomes a message', async () => {
  const text = '{"level":"warn","name":"x0xd","pid":1,"msg":"far"}\n\nnot JSON\n[1]\nthe last has no end'
  const lines = parse(await relayed([Buffer.from(text)]))
  assert.deepEqual(lines[0], { level: 'warn', name: 'half', pid: 7, msg: 'far' })
  assert.deepEqual(
    lines.slice(1).map(({ level, name, pid, msg }) => [level, name, pid, msg]),
    ['not JSON', '[1]', 'the last has no end'].map((msg) => ['error', 'half', 7, msg]),
  )
})

test("for systemd's journal, each line has the priority of its level and no time", async () => {
  const stream = new PassThrough()
  const lines: string[] = []
  relayLog(stream, { clock: new ManualClock() }, { name: 'half', pid: 7, write: (line) => lines.push(line), journald: true })
  stream.end('{"level":"info","time":"2026-01-01T00:00:00.000Z","msg":"a"}\n{"level":"constructor","msg":"b"}\nno JSON\n')
  await finished(stream)
  assert.deepEqual(lines, [
    '<6>{"level":"info","msg":"a","name":"half","pid":7}\n',
    '<3>{"level":"constructor","msg":"b","name":"half","pid":7}\n',
    '<3>{"level":"error","msg":"no JSON","name":"half","pid":7}\n',
  ])
})

test('lines above the rate are dropped, and their number is logged when there is room again', async () => {
  const clock = new ManualClock()
  const stream = new PassThrough()
  const lines: string[] = []
  relayLog(stream, { clock }, { name: 'half', pid: 7, write: (line) => lines.push(line) })
  const say = async (count: number): Promise<void> => {
    stream.write('x\n'.repeat(count))
    await new Promise(setImmediate)
  }
  await say(RELAYED_LINES_BURST + 41)
  assert.equal(lines.length, RELAYED_LINES_BURST)
  await clock.advance(1_000)
  await say(1)
  assert.deepEqual(
    parse(lines.slice(RELAYED_LINES_BURST)).map(({ msg, dropped }) => [msg, dropped]),
    [
      ['lines of this log came too fast and were dropped', 41],
      ['x', undefined],
    ],
  )
  await say(RELAYED_LINES_PER_SECOND)
  assert.equal(lines.length, RELAYED_LINES_BURST + 2 + RELAYED_LINES_PER_SECOND - 1)
})

test('a process that writes without end is read only as fast as its log may grow', async () => {
  const clock = new ManualClock()
  let read = 0
  const endless = new Readable({
    read() {
      read += 64 * 1024
      // Stops after this amount, in case the reader is not limited.
      this.push(read > 64 * RELAYED_BYTES.burst ? null : Buffer.alloc(64 * 1024, '\n'))
    },
  })
  relayLog(endless, { clock }, { name: 'half', pid: 7, write: () => undefined })
  const settled = async (): Promise<number> => {
    for (let before = -1; before !== read;) {
      before = read
      for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate)
    }
    return read
  }
  // Bytes that the stream buffers in addition.
  const held = 4 * 64 * 1024
  const first = await settled()
  assert.ok(first >= RELAYED_BYTES.burst && first <= RELAYED_BYTES.burst + held, `${first}`)
  for (let second = 0; second < 8; second++) {
    await clock.advance(1_000)
    await settled()
  }
  assert.ok(read > first && read <= first + 8 * (RELAYED_BYTES.perSecond + 64 * 1024) + held, `${read - first}`)
  endless.destroy()
})

test('for any input, each relayed line is bounded JSON with the process name and without control characters', async () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 64 }),
    fc.string({ unit: 'binary' }).map((text) => new TextEncoder().encode(`${text}\n`)),
  )
  await fc.assert(
    fc.asyncProperty(fc.array(bytes, { maxLength: 40 }), async (chunks) => {
      for (const line of await relayed(chunks)) {
        assert.ok(line.endsWith('\n') && line.length <= 6 * RELAYED_LINE_BYTES + 256)
        assert.doesNotMatch(line.slice(0, -1), /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u)
        const { name, pid } = JSON.parse(line) as Line
        assert.deepEqual([name, pid], ['half', 7])
      }
    }),
  )
  const [long] = parse(await relayed([Buffer.alloc(3 * RELAYED_LINE_BYTES, 'y'), Buffer.from('z\n')]))
  assert.equal(String(long?.['msg']).length, RELAYED_LINE_BYTES)
})
