import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'

import type { FastifyReply } from 'fastify'

import { createLogger } from '../../src/base/log.ts'
import { Calls } from '../../src/sdk/calls.ts'
import { Seal } from '../../src/desk/seal.ts'
import type { DeskFeed } from '../../src/doors/page/desk-feed.ts'
import { streamEvents } from '../../src/doors/page/desk-feed.ts'
import { EventStream } from '../../src/doors/rest/event-stream.ts'
import { BatchAnswers } from '../../src/doors/rpc/call-slots.ts'
import { success } from '../../src/doors/rpc/message.ts'
import { Base64, written } from '../../src/doors/rpc/message.ts'
import { consoleLine } from '../../src/protocol/console/messages.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { startDoor } from '../support/rest-server.ts'

/** NEL, LINE SEPARATOR and PARAGRAPH SEPARATOR, which JSON allows raw. */
const TEXT = 'a\u0085b\u2028c\u2029d'
const SEPARATORS = /[\u0085\u2028\u2029]/

const assertWhole = (line: string): void => {
  assert.doesNotMatch(line, SEPARATORS)
  assert.match(line, /\\u2028/)
}

test('REXD writes no raw line separators in answers, answers with content and batches', () => {
  assertWhole(String(written(success(1, { path: TEXT }), '\n')))
  assertWhole(String(written(success(1, { content: new Base64(Buffer.from('x')), path: TEXT }))))
  const batch = new BatchAnswers({ room: { taken: 0 } }, { waits: false })
  batch.add(0, success(1, { path: TEXT }))
  assertWhole(batch.text ?? '')
})

test('the console, the approval service and the log write no raw line separators', () => {
  assertWhole(consoleLine({ output: TEXT }))
  const seal = new Seal({ key: new Uint8Array(32), role: 'human', serverNonce: 'n', side: 'desk', now: () => 1 })
  assertWhole(seal.line({ type: 'question', argv: [TEXT] }))
  let logged = ''
  createLogger({ name: 'test', destination: { write: (line) => void (logged += line) } }).error({ file: TEXT }, 'a message')
  assertWhole(logged)
})

test('the client writes no raw line separators in its requests', () => {
  const calls = new Calls()
  void calls.add({ method: 'fs.stat', params: { session_id: 's_1', path: TEXT }, accept: () => null })
  const text = calls.take({})?.text() ?? ''
  assertWhole(text)
  assert.doesNotMatch(text, /\n/)
})

test('REST answers and errors have no raw line separators', async (t) => {
  const door = await startDoor(t, {}, { displayName: TEXT })
  const { text, json } = await door.call('GET', '/agent')
  assertWhole(text)
  assert.equal(json.name, TEXT)
  const refused = await door.call('POST', '/exec/run', { body: { [TEXT]: 1 } })
  assert.equal(refused.status, 400)
  assert.doesNotMatch(refused.text, SEPARATORS)
})

test('streams of REST and of the approval page have no raw line separators', () => {
  const raw = (): PassThrough =>
    Object.assign(new PassThrough(), {
      setHeader: () => undefined,
      writeHead: () => undefined,
      flushHeaders: () => undefined,
      socket: null,
    })
  const clock = new ManualClock()
  for (const format of ['ndjson', 'sse'] as const) {
    const answer = raw()
    const reply = { getHeaders: () => ({}), hijack: () => undefined, raw: answer } as unknown as FastifyReply
    void new EventStream({ reply, clock }, { format }).send({ name: TEXT })
    if (format === 'sse') void new EventStream({ reply, clock }, { format }).sendWithId({ name: TEXT }, '1')
    const lines = String(answer.read()).trim().split('\n\n')
    assert.equal(lines.length, format === 'sse' ? 2 : 1)
    for (const line of lines) assertWhole(line)
  }
  const page = raw()
  const feed = {
    follow: (tell: (news: object) => void) => (tell({ type: 'question', argv: [TEXT] }), () => undefined),
  } as unknown as DeskFeed
  streamEvents(page as unknown as ServerResponse, { feed, clock, signal: new AbortController().signal })
  assertWhole(String(page.read()))
  page.destroy()
})
