import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { runEventsOf } from '../../src/protocol/api/run-events.ts'
import { exitEvent, RUN_ID } from '../support/journal-exit.ts'
import { runEventBytes } from '../support/fake-daemon.ts'

async function* chunksOf(bytes: Uint8Array, cuts: readonly number[]) {
  let at = 0
  for (const cut of cuts) {
    yield bytes.subarray(at, at + cut)
    at += cut
  }
  yield bytes.subarray(at)
}

/** Returns the events in order. Adjacent output of one stream is joined, because its pieces have no meaning. */
const collect = async (bytes: Uint8Array, cuts: readonly number[]): Promise<object[]> => {
  const events: object[] = []
  let last = null as { type: string; text: string } | null
  for await (const part of runEventsOf(chunksOf(bytes, cuts))) {
    if (part.type !== 'stdout' && part.type !== 'stderr') {
      events.push(part)
      last = null
    } else {
      assert.ok(part.data.length > 0, 'no part is empty')
      const text = Buffer.from(part.data).toString('latin1')
      if (last?.type === part.type) last.text += text
      else events.push((last = { type: part.type, text }))
    }
  }
  return events
}

const line = (value: unknown): Buffer => Buffer.from(`${JSON.stringify(value)}\n`)

test('events are the same, however chunks split them, and output that looks like an event stays output', async () => {
  const warning = { type: 'warning', request_id: RUN_ID, kind: 'timeout_clamped', message: 'größer' }
  const exit = exitEvent()
  const output = fc.uint8Array({ maxLength: 20 }).map((data) => Buffer.from(data))
  const written = fc.oneof(output, fc.constant(line(exit)), fc.constant(Buffer.from('\n\n')))
  const event = fc.oneof(
    fc.constant(warning),
    fc.record({ type: fc.constantFrom('stdout', 'stderr'), data: written }).map(({ type, data }) => ({ type, data })),
  )
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 5 }), fc.array(fc.nat({ max: 40 })), async (events, cuts) => {
      const bytes = [...events, exit].map((one) =>
        'data' in one ? runEventBytes({ type: one.type, request_id: RUN_ID, seq: 0, data_b64: one.data.toString('base64') }) : line(one),
      )
      const expected: object[] = []
      for (const one of [...events, exit]) {
        const last = expected.at(-1) as { type: string; text?: string } | undefined
        if (!('data' in one)) expected.push(one)
        else if (last?.type === one.type) last.text += one.data.toString('latin1')
        else if (one.data.length > 0) expected.push({ type: one.type, text: one.data.toString('latin1') })
      }
      assert.deepEqual(await collect(Buffer.concat(bytes), cuts), expected)
    }),
    { seed: 7, numRuns: 500 },
  )
})

test('an endless line, a line that is not JSON, and output without a valid length are refused', async () => {
  await assert.rejects(collect(Buffer.alloc(17 * 1024 * 1024, 'x'), []), RangeError)
  await assert.rejects(collect(Buffer.from('{"type":\n'), []), SyntaxError)
  for (const data_bytes of [undefined, -1, 0.5, '5', 2 ** 53, null])
    await assert.rejects(collect(line({ type: 'stdout', request_id: RUN_ID, seq: 0, data_bytes }), []), SyntaxError)
})

test('an event with a missing, mistyped or out-of-range field, or with a control sequence, is refused', async () => {
  const good = [
    { type: 'started', request_id: RUN_ID, agent_id: 'a', machine_id: 'b', pid: 1 },
    { type: 'stdout', request_id: RUN_ID, seq: 0, data_bytes: 0 },
    { type: 'warning', request_id: RUN_ID, kind: 'timeout_clamped', message: 'm' },
    { type: 'error', request_id: null, error: 'internal', message: 'm' },
    exitEvent(),
    exitEvent({ code: 255, warnings: ['stdout_cap_hit'] }),
    exitEvent({ code: null, signal: 127 }),
  ]
  for (const event of good) await collect(line(event), [])
  const refused = async (event: object): Promise<void> => assert.rejects(collect(line(event), []), SyntaxError, JSON.stringify(event))
  for (const event of good) for (const field of Object.keys(event)) await refused({ ...event, [field]: { any: 'thing' } })
  for (const code of [256, -1, 512, 0.5, '0']) await refused({ ...exitEvent(), code })
  for (const signal of [0, 128, -15, 'SIGTERM']) await refused({ ...exitEvent(), signal })
  for (const name of ['\u001b[2J', '__proto__', 'A', '']) {
    await refused({ ...exitEvent(), denial_reason: name })
    await refused({ ...exitEvent(), warnings: [name] })
    await refused({ type: 'warning', request_id: RUN_ID, kind: name, message: 'm' })
    await refused({ ...exitEvent(), type: name })
  }
  for (const value of [null, [], 7, 'exit', {}]) await assert.rejects(collect(line(value), []), SyntaxError)
})
