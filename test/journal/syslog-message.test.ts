import assert from 'node:assert/strict'
import { test } from 'node:test'

import { SyslogCopy } from '../../src/journal/syslog.ts'
import { syslogMessage } from '../../src/journal/syslog.ts'
import { createLogger } from '../../src/base/log.ts'
import { ManualClock } from '../support/manual-clock.ts'

const HEAD = { ts: '2026-01-01T00:00:00.000Z', chain: 'c', n: 7, prev: 'f'.repeat(64) }
const messageOf = (event: object): string | null => syslogMessage(Buffer.from(JSON.stringify({ ...HEAD, ...event })), 'x0xd')

/** A message parsed as in RFC 5424, with its header and the parameters of its one element. */
const read = (message: string) => {
  const [, head, parameters, text] =
    /^(<\d+>1 \S+ \S+ \S+ \d+ \S+) \[x0x@32473((?: [^\s="\]]+="(?:[^"\\\]]|\\["\\\]])*")*)\] (.*)$/s.exec(message) ?? []
  assert.ok(head !== undefined, message)
  const pairs = [...parameters!.matchAll(/ ([^=]+)="((?:[^"\\\]]|\\.)*)"/g)].map(([, key, value]) => [
    key!,
    value!.replaceAll(/\\(["\\\]])/g, '$1'),
  ])
  return { head, fields: Object.fromEntries(pairs) as Record<string, string>, text: text! }
}

test('a line becomes a message with its fields as structured data and its place in the chain', () => {
  const { head, fields, text } = read(messageOf({ event: 'request', request_id: 'r', argv: ['echo', '7'], account: null, stdin_bytes: 0 })!)
  assert.match(head, new RegExp(`^<86>1 2026-01-01T00:00:00\\.000Z \\S+ x0xd ${process.pid} request$`))
  assert.deepEqual(fields, { chain: 'c', n: '7', request_id: 'r', argv: '["echo","7"]', stdin_bytes: '0' })
  assert.equal(text, 'request r')
  assert.match(messageOf({ event: 'denial', request_id: 'r' })!, /^<84>1 /)
  assert.match(messageOf({ event: 'authority' })!, /^<85>1 /)
  assert.equal(messageOf({ event: 'head', signature: 'x' }), null)
})

test('a value cannot end its field, start a line, hide characters or grow without limit', () => {
  const argv = ['a"b', 'c\\d', 'e]f', 'g\nh', '\u001b[2J', '\u202e', '] <0>1 forged']
  const message = messageOf({ event: 'denial', argv, detail: 'x] y="z"\n' })!
  assert.doesNotMatch(message, /[\p{Cc}\p{Cf}]/u)
  const { fields } = read(message)
  assert.deepEqual(JSON.parse(fields['argv']!), argv)
  assert.equal(fields['detail'], String.raw`x] y=\"z\"\n`)
  const long = messageOf({ event: 'exit', ...Object.fromEntries(Array.from({ length: 40 }, (_, n) => [`field${n}`, 'ä]'.repeat(5_000)])) })!
  assert.ok(Buffer.byteLength(long) <= 8_192, `${Buffer.byteLength(long)}`)
})

test('each lost message is counted, and the losses are logged once a minute', async () => {
  const clock = new ManualClock()
  const lines: { lost: number }[] = []
  const log = createLogger({ name: 'x', destination: { write: (line) => void lines.push(JSON.parse(line) as { lost: number }) } })
  let counted = 0
  const copy = new SyslogCopy(
    { clock, log, sender: { send: () => false }, counted: (lost) => void (counted += lost) },
    { path: '/dev/log' },
  )
  const line = Buffer.from(JSON.stringify({ ...HEAD, event: 'exit' }))
  for (let n = 0; n < 5; n++) copy.take(line)
  await clock.advance(60_000)
  copy.lost(3, 'gone')
  assert.equal(counted, 8)
  assert.deepEqual(
    lines.map(({ lost }) => lost),
    [1, 7],
  )
})
