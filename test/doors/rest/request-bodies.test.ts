import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { ClientRequest } from 'node:http'
import { test, type TestContext } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import { counted, MAX_HELD_BODIES, MAX_JSON_BODY } from '../../../src/doors/rest/request-bodies.ts'
import { MAX_SMALL_BODY } from '../../../src/protocol/limits/daemon.ts'
import { HTTP_TRANSFER_MS } from '../../../src/protocol/limits/rexd.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/mesh-of-daemons.ts'
import { AGENT, readAnswer, response, restComponents, startDoor, type TestDoor } from '../../support/rest-server.ts'
import { MAX_NDJSON_LINE } from '../../../src/doors/rest/event-stream.ts'

// Limits on the memory and the time that clients with the token can use for request bodies.

const MIB = 1024 * 1024
const JSON_TYPE = { 'content-type': 'application/json' }
const LINES_TYPE = { 'content-type': 'application/x-ndjson' }
const TIMEOUT = { timeout: 60_000 }

/** Waits for one of these events. Unlike `once`, it does not throw errors of a closed connection. */
const event = async (request: ClientRequest, ...names: string[]): Promise<void> =>
  new Promise((resolve) => {
    for (const name of names) request.once(name, () => resolve())
  })

/** Sends this many bytes of a body that never ends. */
const begin = async (
  t: TestContext,
  door: TestDoor,
  headers: Record<string, string>,
  bytes: number,
  first = '',
): Promise<ClientRequest> => {
  const request = door.open('POST', '/exec/run', { headers })
  t.after(() => request.destroy())
  request.on('error', () => undefined).setMaxListeners(0)
  request.write(first)
  const chunk = Buffer.alloc(MIB, 'A')
  for (let left = bytes; left > 0; left -= chunk.length) {
    const more = request.write(left < chunk.length ? chunk.subarray(0, left) : chunk)
    if (!more && !request.destroyed) await event(request, 'drain', 'response', 'close')
  }
  return request
}

const answerOf = async (request: ClientRequest) => readAnswer(await response(request))

test('a body in pieces of one byte is stored in few buffers', async () => {
  let kept = 0
  const passing = counted({ keep: (bytes) => void (kept += bytes), release: () => undefined, whole: () => undefined })
  const parts: Buffer[] = []
  passing.on('data', (part: Buffer) => parts.push(part))
  const all = Buffer.from(Array.from({ length: 200_000 }, (_, at) => at % 251))
  for (const byte of all) passing.write(Buffer.of(byte))
  passing.end()
  await once(passing, 'end')
  assert.deepEqual([Buffer.concat(parts).equals(all), kept], [true, all.length])
  assert.ok(parts.length < 10, `${parts.length} pieces`)
})

test('endless bodies share one memory limit, a body over it is refused, and small requests still work', TIMEOUT, async (t) => {
  const door = await startDoor(t)
  const length = { ...JSON_TYPE, 'content-length': String(MAX_JSON_BODY) }
  const before = process.memoryUsage().rss
  for (let i = 0; i < 2; i++) await begin(t, door, length, MAX_JSON_BODY - MIB)
  const third = await begin(t, door, length, 0)
  const refused = answerOf(third)
  third.write(Buffer.alloc(4 * MIB, 'A'))
  const { status, json, headers } = await refused
  assert.deepEqual([status, json.error, headers['connection']], [429, 'rate_limited', 'close'])
  const small = await door.call('POST', '/exec/cancel', { body: { request_id: 'x' } })
  assert.equal(small.status, 400, 'one that needs no room is answered')
  assert.ok(process.memoryUsage().rss - before < 4 * MAX_HELD_BODIES)
})

test('a client that leaves frees the memory of its body', TIMEOUT, async (t) => {
  const door = await startDoor(t)
  const length = { ...JSON_TYPE, 'content-length': String(MAX_JSON_BODY) }
  for (let round = 0; round < 3; round++) {
    const two = [await begin(t, door, length, MAX_JSON_BODY - MIB), await begin(t, door, length, MAX_JSON_BODY - MIB)]
    for (const request of two) request.destroy()
    // The server notices the closed connections some time later.
    const large = JSON.stringify({ agent_id: AGENT, argv: ['x'], stdin_b64: 'A'.repeat(20 * MIB), no_such_key: 1 })
    for (let attempt = 0; ; attempt++) {
      const { status } = await door.call('POST', '/exec/run', { body: large, headers: JSON_TYPE })
      if (status === 400) break
      assert.equal(status, 429)
      assert.ok(attempt < 200)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
})

test('first lines of undeclared stdin count against the same memory limit', TIMEOUT, async (t) => {
  const door = await startDoor(t)
  const heads = Math.ceil(MAX_HELD_BODIES / (MAX_NDJSON_LINE - MIB / 2))
  let refused = 0
  const all: ClientRequest[] = []
  for (let i = 0; i < heads + 8; i++) {
    const request = await begin(t, door, LINES_TYPE, 0)
    request.once('response', (answer) => {
      if (answer.statusCode === 429) refused += 1
      answer.resume()
    })
    request.write(Buffer.alloc(MAX_NDJSON_LINE - 1, 'A'))
    all.push(request)
  }
  await until('one is refused', () => refused > 0)
  for (const request of all) request.destroy()
})

test('a body incomplete after two minutes ends its connection, but declared stdin may take as long as its run', TIMEOUT, async (t) => {
  const clock = new ManualClock()
  const running = Promise.withResolvers<void>()
  const runner = {
    ...restComponents().runner,
    run: async (_spec: unknown, _sink: unknown, signal?: AbortSignal): Promise<never> => {
      running.resolve()
      await new Promise((resolve) => signal?.addEventListener('abort', resolve))
      throw new AppError('shutting_down')
    },
  }
  const door = await startDoor(t, { clock, runner })
  const slow = await begin(t, door, { ...JSON_TYPE, 'content-length': String(MAX_SMALL_BODY) }, 100)
  const head = await begin(t, door, LINES_TYPE, 100)
  const announced = `${JSON.stringify({ agent_id: AGENT, argv: ['cat'], stdin_len: 3, stdin_sha256: ['0'.repeat(64)] })}\n`
  const stream = await begin(t, door, LINES_TYPE, 0, announced)
  await running.promise
  const closed = Promise.all([event(slow, 'close'), event(head, 'close')])
  let over = false
  void closed.then(() => (over = true))
  // The server may start its timer later, so advance the clock repeatedly.
  await until('both are closed', async () => {
    await clock.advance(HTTP_TRANSFER_MS)
    return over
  })
  assert.ok(!stream.destroyed)
  assert.equal(stream.socket?.destroyed, false)
  // Ends the run. The server would otherwise wait for it by a clock that does not move.
  stream.destroy()
})

test('at the limit of runs, a body is refused before it is read', TIMEOUT, async (t) => {
  const checkRoom = (): never => {
    throw new AppError('rate_limited', 'too many runs')
  }
  const door = await startDoor(t, { runner: { ...restComponents().runner, checkRoom } })
  const request = await begin(t, door, { ...JSON_TYPE, 'content-length': String(MAX_JSON_BODY) }, 10)
  const { status, headers } = await answerOf(request)
  assert.deepEqual([status, headers['connection']], [429, 'close'])
})
