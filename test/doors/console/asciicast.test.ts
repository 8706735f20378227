import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as fc from 'fast-check'

import { shown } from '../../../src/base/visible-text.ts'
import { Asciicast } from '../../../src/doors/console/asciicast.ts'
import { parseEntry, type TranscriptEntry } from '../../../src/protocol/console/transcript.ts'
import { entry } from '../../support/transcripts.ts'

/** Removes carriage returns. One before a line feed is part of the line end only if both arrived in the same piece. */
const withoutReturns = (text: string): string => text.replaceAll('\\x0d', '')

type Event = [number, string, string]

/** Reads a cast as the asciicast specification requires of players. */
const read = (entries: readonly TranscriptEntry[]): { readonly header: Record<string, unknown>; readonly events: Event[] } => {
  const cast = new Asciicast()
  const text = cast.header('a title', entries[0] ?? null) + entries.map((one) => cast.events(one)).join('')
  assert.ok(text.endsWith('\n'))
  const [header, ...events] = text
    .slice(0, -1)
    .split('\n')
    .map((line) => JSON.parse(line) as unknown)
  return { header: header as Record<string, unknown>, events: events as Event[] }
}

test('a cast has a version 2 header and gives each output its recorded time', () => {
  const one = entry({
    output: 'aé\nb',
    timing: [
      [100, 3],
      [2_500, 2],
    ],
    started_at: '2026-05-21T09:42:24.500Z',
    duration_ms: 3_000,
  })
  const two = entry({ time: '2026-05-21T09:42:25Z', started_at: '2026-05-21T09:42:25.000Z', output: 'x\n', exit: 3 })
  const { header, events } = read([one, two])
  assert.deepEqual(header, {
    version: 2,
    width: 80,
    height: 24,
    timestamp: 1779356544,
    idle_time_limit: 2,
    title: 'a title',
    env: { TERM: 'xterm-256color' },
  })
  const banner = (second: number): string => `\u001b[1m[2026-05-21T09:42:${second}Z] Codex:/srv $ id -un\u001b[0m\r\n`
  assert.deepEqual(events, [
    [0, 'o', banner(24)],
    [0.1, 'o', 'aé'],
    [2.5, 'o', '\r\nb'],
    [3, 'o', '\r\n\r\n'],
    [3, 'o', banner(25)],
    [3, 'o', 'x\r\n'],
    [3, 'o', '\u001b[1m= exit 3\u001b[0m\r\n\r\n'],
  ])
})

test('a transcript without commands, and an entry without our own fields, are written as a valid cast', () => {
  assert.deepEqual(read([]).events, [])
  assert.equal(read([]).header['version'], 2)
  assert.deepEqual(
    read([entry()]).events.map(([time]) => time),
    [0, 0, 0],
  )
})

test('property: for any entries, times never decrease, all output is present, and no control sequence except our bold remains', () => {
  const count = fc.oneof(fc.nat(50), fc.nat(), fc.constant(Number.MAX_SAFE_INTEGER))
  const text = fc.string({ unit: 'binary', maxLength: 30 })
  const arbitrary = fc.record({
    output: text,
    whoami: text,
    timing: fc.array(fc.tuple(count, count), { maxLength: 6 }),
    duration_ms: count,
    started_at: fc.constantFrom('2026-05-21T09:42:25.000Z', '1999-05-21T09:42:25Z', '9999-05-21T09:42:25Z'),
  })
  fc.assert(
    fc.property(fc.array(arbitrary, { minLength: 1, maxLength: 4 }), (some) => {
      const entries = some.map((one) => entry(one))
      for (const one of entries) assert.ok('entry' in parseEntry(Buffer.from(JSON.stringify(one))))
      const { events } = read(entries)
      for (const [at, [time, code, data]] of events.entries()) {
        assert.ok(Number.isFinite(time) && time >= (events[at - 1]?.[0] ?? 0))
        assert.equal(code, 'o')
        // oxlint-disable-next-line no-control-regex
        assert.doesNotMatch(data.replaceAll(/\u001b\[[01]m|\r\n/g, ''), /[\u0000-\u0008\u000a-\u001f\u007f-\u009f]/)
      }
      for (const one of entries) {
        const [, ...later] = read([one]).events
        const written = later.slice(0, -1).map(([, , data]) => data.replaceAll('\r\n', '\n'))
        assert.equal(withoutReturns(written.join('')), withoutReturns(shown(one.output)))
      }
    }),
  )
})
