import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { AppError } from '../../src/base/errors.ts'
import type { TerminalInput } from '../../src/exec/run-spec.ts'
import { TerminalInputSender, type TerminalFrame } from '../../src/exec/terminal-input.ts'
import { MAX_TERMINAL_DATA, MAX_TERMINAL_FRAMES_UNACKED, MAX_TERMINAL_UNACKED } from '../../src/protocol/limits/terminal.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { settle } from '../support/scripted-peer.ts'

interface Signed extends TerminalFrame {
  readonly seq: number
}

/** A sender whose source and signatures the test controls. */
const stage = () => {
  const clock = new ManualClock()
  const waiting: ((input: IteratorResult<TerminalInput>) => void)[] = []
  const given: TerminalInput[] = []
  const signing: { readonly frame: Signed; done(): void; fail(error: unknown): void }[] = []
  const sent: Signed[] = []
  const all = new WeakMap<object, Signed>()
  const state = { autoSign: true, room: true, ended: false, over: false }
  let drained = Promise.withResolvers<void>()
  const source: AsyncIterable<TerminalInput> = {
    [Symbol.asyncIterator]: () => ({
      next: async () => {
        const value = given.shift()
        if (value !== undefined) return { value, done: false }
        if (state.ended) return { value: undefined, done: true }
        return new Promise((resolve) => waiting.push(resolve))
      },
    }),
  }
  const sender = new TerminalInputSender({
    source,
    clock,
    sign: async (seq, frame) => {
      const signed = { body: new Uint8Array(1), signature: new Uint8Array(1) }
      all.set(signed, { ...frame, seq })
      if (state.autoSign) return signed
      return new Promise((resolve, reject) => {
        signing.push({ frame: { ...frame, seq }, done: () => resolve(signed), fail: reject })
      })
    },
    send: (seq, signed) => {
      const frame = all.get(signed)!
      assert.equal(frame.seq, seq)
      sent.push(frame)
      return state.room
    },
    drained: async () => drained.promise,
  })
  const give = (input: TerminalInput): void => {
    const next = waiting.shift()
    if (next === undefined) given.push(input)
    else next({ value: input, done: false })
  }
  const type = (text: string | Uint8Array): void => give({ data: typeof text === 'string' ? Buffer.from(text) : text })
  const end = (): void => {
    state.ended = true
    waiting.shift()?.({ value: undefined, done: true })
  }
  const makeRoom = (): void => {
    state.room = true
    drained.resolve()
    drained = Promise.withResolvers()
  }
  const running = sender.run().then(() => (state.over = true))
  const text = (): string => Buffer.concat(sent.map(({ data }) => data)).toString()
  return { clock, sender, sent, signing, state, give, type, end, makeRoom, running, text }
}

test('input that arrives during a signature joins the next frame', async () => {
  const { type, signing, state, sent, sender } = stage()
  state.autoSign = false
  type('a')
  await settle()
  for (const text of ['b', 'c', 'd']) type(text)
  await settle()
  assert.deepEqual([signing.length, sent.length], [1, 0])
  signing[0]!.done()
  await settle()
  signing[1]!.done()
  await settle()
  assert.deepEqual(
    sent.map(({ seq, data }) => [seq, Buffer.from(data).toString()]),
    [
      [0, 'a'],
      [1, 'bcd'],
    ],
  )
  sender.stop()
})

test('10,000 size changes become few frames, and the last one is sent', async () => {
  const { give, sent, sender } = stage()
  for (let at = 0; at < 10_000; at++) give({ columns: 1 + (at % 999), rows: 24 })
  for (let turn = 0; turn < 200; turn++) await settle()
  assert.ok(sent.length <= MAX_TERMINAL_FRAMES_UNACKED, `${sent.length}`)
  sender.ack(sent.length)
  for (let turn = 0; turn < 2_000 && sent.at(-1)?.size?.columns !== 1 + (9_999 % 999); turn++) {
    await settle()
    sender.ack(sent.length)
  }
  assert.deepEqual(sent.at(-1)?.size, { columns: 1 + (9_999 % 999), rows: 24 })
  sender.stop()
})

test('a paste of 10 MiB becomes few frames and never exceeds the window', async () => {
  const { type, sent, sender, text } = stage()
  const data = Buffer.alloc(10 * 1024 * 1024, 'p')
  const chunk = 64 * 1024
  for (let at = 0; at < data.length; at += chunk) type(data.subarray(at, at + chunk))
  let acked = 0
  const unacked = (): number => sent.slice(acked).reduce((sum, frame) => sum + frame.data.length, 0)
  while (Buffer.byteLength(text()) < data.length) {
    await settle()
    assert.ok(unacked() <= MAX_TERMINAL_UNACKED)
    acked = sent.length
    assert.ok(sender.ack(acked))
  }
  assert.ok(sent.length <= 2 * Math.ceil(data.length / MAX_TERMINAL_DATA), `${sent.length}`)
  assert.ok(sent.every((frame) => frame.data.length <= MAX_TERMINAL_DATA))
  sender.stop()
})

test('the sender waits for a slow peer', async () => {
  const { type, sent, state, makeRoom, sender } = stage()
  state.room = false
  type('a')
  await settle()
  type('b')
  await settle()
  assert.equal(sent.length, 1)
  makeRoom()
  await settle()
  assert.equal(sent.length, 2)
  sender.stop()
})

test('input above the signature rate is signed later, and another signature error ends the run', async () => {
  const { type, signing, state, clock, sent, running } = stage()
  state.autoSign = false
  type('a')
  await settle()
  signing[0]!.fail(new AppError('rate_limited', 'too much'))
  await settle()
  await clock.advance(100)
  signing[1]!.done()
  await settle()
  assert.equal(sent.length, 1)
  type('b')
  await settle()
  signing[2]!.fail(new AppError('not_found', 'no such terminal'))
  await assert.rejects(running, /no such terminal/)
})

test('the sender ends with its source, or when it is stopped', async () => {
  const one = stage()
  one.end()
  await one.running
  const other = stage()
  other.sender.stop()
  await other.running
})

test('acknowledgements of unsent frames are refused', () => {
  const { sender } = stage()
  assert.deepEqual([sender.ack(1), sender.resume(1), sender.ack(0), sender.resume(0)], [false, false, true, true])
  sender.stop()
})

/** A target that loses frames with each cut, and says how far it came. */
test('the target gets each byte once and in order, despite lost connections and restarts', async () => {
  const step = fc.oneof(
    fc.record({ does: fc.constant('type' as const), text: fc.string({ minLength: 1, maxLength: 5 }) }),
    fc.record({ does: fc.constant('size' as const), columns: fc.integer({ min: 1, max: 1_000 }) }),
    fc.record({ does: fc.constantFrom('sign' as const, 'cut' as const, 'resume' as const, 'ack' as const, 'again' as const) }),
  )
  const property = fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
    const { sender, type, give, sent, signing, state } = stage()
    state.autoSign = false
    let typed = ''
    let got = ''
    let [next, seen, lost, begun] = [0, 0, false, false]
    let size: number | null = null
    let wanted: number | null = null
    /** Delivers the frames that were sent since the last call, unless the connection is lost. */
    const deliver = (): void => {
      for (const frame of sent.slice(seen)) {
        if (lost || frame.seq !== next) continue
        next += 1
        begun = true
        got += Buffer.from(frame.data).toString()
        if (frame.size !== null) size = frame.size.columns
      }
      seen = sent.length
    }
    const resume = (): void => {
      deliver()
      lost = false
      assert.ok(sender.resume(next))
      deliver()
    }
    for (const one of steps) {
      if (one.does === 'type') {
        typed += one.text
        type(one.text)
      } else if (one.does === 'size') {
        wanted = one.columns
        give({ columns: one.columns, rows: 24 })
      } else if (one.does === 'sign') signing.splice(0).forEach(({ done }) => done())
      else if (one.does === 'cut') {
        deliver()
        lost = true
      } else if (one.does === 'resume') resume()
      else if (one.does === 'ack' && !lost) assert.ok(sender.ack(next))
      else if (one.does === 'again' && !begun) {
        // The request never arrived, so it is signed again with all its input.
        seen = sent.length
        lost = false
        assert.ok(sender.restart())
      }
      await settle()
      deliver()
    }
    if (lost) resume()
    const isBehind = (): boolean => got !== typed || size !== wanted
    for (let turn = 0; turn < 100 && isBehind(); turn++) {
      signing.splice(0).forEach(({ done }) => done())
      await settle()
      deliver()
      sender.ack(next)
    }
    assert.deepEqual([got, size], [typed, wanted])
    sender.stop()
  })
  await fc.assert(property, { numRuns: 200 })
})
