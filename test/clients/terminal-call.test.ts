import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import { TerminalBody } from '../../src/clients/terminal-call.ts'

const TERMINAL = { columns: 80, rows: 24, term: 'dumb' }
const bodyOf = (): TerminalBody => new TerminalBody({ agent: 'bob', argv: ['sh'], request_id: 'r', terminal: TERMINAL })

/** The lines that the daemon reads now. */
const taken = (body: TerminalBody): object[] =>
  String(body.read() ?? '')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as object)

test('the first line is the request, and each input is one line', () => {
  const body = bodyOf()
  assert.equal(body.type(Buffer.from('ls\n')), true)
  body.resize({ columns: 100, rows: 30 })
  body.endOfFile()
  body.type(Buffer.from('x'))
  body.endOfFile()
  const data = (text: string): object => ({ data: Buffer.from(text).toString('base64') })
  const request = { agent: 'bob', argv: ['sh'], request_id: 'r', terminal: TERMINAL, clamp: true }
  assert.deepEqual(taken(body), [request, data('ls\n'), { columns: 100, rows: 30 }, data('\u0004'), data('x'), data('\u0004\u0004')])
  assert.deepEqual(JSON.parse(body.head), request)
})

test('while the daemon does not read, ten thousand size changes become one, and typing waits', async () => {
  const body = bodyOf()
  while (body.type(Buffer.alloc(10_000, 'x')));
  const before = body.readableLength + body.writableLength
  for (let rows = 1; rows <= 10_000; rows++) body.resize({ columns: 80, rows: 1 + (rows % 1_000) })
  assert.equal(body.readableLength + body.writableLength, before)
  const drained = body.drained().then(() => 'drained')
  const next = async (): Promise<string> => Promise.race([drained, turn('not yet')])
  assert.equal(await next(), 'not yet')
  const lines: object[] = []
  do lines.push(...taken(body))
  while ((await next()) === 'not yet')
  lines.push(...taken(body))
  assert.deepEqual(
    lines.filter((line) => 'rows' in line),
    [{ columns: 80, rows: 1 }],
  )
})

test('a destroyed body accepts everything and blocks no writer', async () => {
  const body = bodyOf()
  while (body.type(Buffer.alloc(10_000, 'x')));
  const waiting = body.drained()
  body.destroy()
  await waiting
  await body.drained()
  assert.equal(body.type(Buffer.from('x')), true)
  body.resize({ columns: 80, rows: 24 })
  assert.equal(body.listenerCount('drain'), 0)
})
