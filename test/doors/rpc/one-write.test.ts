import assert from 'node:assert/strict'
import type { IncomingMessage } from 'node:http'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { RpcSessions } from '../../../src/doors/rpc/sessions.ts'
import { serveLines } from '../../../src/doors/rpc/stdio.ts'
import { WebSockets } from '../../../src/doors/rpc/websockets.ts'
import { CountedWrites } from '../../support/counted-writes.ts'

const ANSWERS = 20

const questions = Array.from({ length: ANSWERS }, (_, id) => JSON.stringify({ jsonrpc: '2.0', id, method: 'no.such' }))

class Counted extends CountedWrites {
  get answers(): number {
    return this.written.toString('latin1').split('"id":').length - 1
  }

  async answered(): Promise<void> {
    while (this.answers < ANSWERS) await new Promise(setImmediate)
  }
}

/** The minimum of components that answers requests for unknown sessions. */
const components = { executor: {} as never, clock: systemClock, log: silentLogger }

test('answers of one event loop turn leave in one write', async () => {
  const [input, output] = [new PassThrough(), new Counted()]
  const served = serveLines({ ...components, input, output }, { door: 'stdio', available: [] }, new AbortController().signal)
  input.write(questions.map((line) => `${line}\n`).join(''))
  await output.answered()
  assert.equal(output.writes, 1)
  input.end()
  await served
})

test('WebSocket answers of one event loop turn leave in one write', async () => {
  const sockets = new WebSockets({ ...components, sessions: new RpcSessions(components), metrics: null }, { available: [] })
  const connection = new Counted()
  const headers = { upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': 'A'.repeat(22) + '==' }
  sockets.accept({ method: 'GET', headers } as unknown as IncomingMessage, connection, Buffer.alloc(0))
  const greeted = connection.writes
  // A text frame with a mask of zeros (RFC 6455, 5.2).
  connection.push(Buffer.concat(questions.flatMap((text) => [Buffer.of(0x81, 0x80 | text.length, 0, 0, 0, 0), Buffer.from(text)])))
  await connection.answered()
  assert.equal(connection.writes - greeted, 1)
  sockets.close()
})
