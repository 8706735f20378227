import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import { Outbox, UnackedTotal } from '../../../src/executor/runs/outbox.ts'
import { execFrame } from '../../../src/protocol/wire/exec.ts'
import {
  AGENT_SIGNATURE_BYTES,
  FIRST_UNACKED_PER_RUN,
  FRAME_COST,
  MAX_UNACKED_PER_RUN,
  MAX_UNACKED_TOTAL,
  MIN_UNACKED_PER_RUN,
} from '../../../src/protocol/limits/wire.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
/** A frame of this size counts as 1 KiB. */
const DATA = new Uint8Array(1024 - FRAME_COST)
const FIRST = FIRST_UNACKED_PER_RUN / 1024
const PER_RUN = MAX_UNACKED_PER_RUN / 1024

const START = { stdout: 0, stderr: 0 }
const NOTE = execFrame.encode({ type: 'started', request_id: ID, pid: 7 })
const EXIT = execFrame.encode({ type: 'exit', body: new Uint8Array(1), signature: new Uint8Array(AGENT_SIGNATURE_BYTES) })

const boxOf = (total = new UnackedTotal()) => {
  const sent: { type: string; seq: number }[] = []
  const state = { rooms: 0, full: false, drained: Promise.withResolvers<void>() }
  const send = (...parts: readonly Uint8Array[]): void => {
    const frame = execFrame.decode(Buffer.concat(parts))
    sent.push({ type: frame.type, seq: 'seq' in frame ? frame.seq : -1 })
  }
  const line = {
    send,
    sendAndRelease: (_released: () => void, ...parts: readonly Uint8Array[]) => send(...parts),
    get full() {
      return state.full
    },
    drained: () => state.drained.promise,
  }
  const outbox = new Outbox({ total }, { requestId: ID, onRoom: () => state.rooms++ })
  outbox.attach(line, START)
  return { outbox, line, sent, state }
}

/** Acknowledges output until the window has its largest size. Returns the next frame number. */
const widen = (outbox: Outbox): number => {
  for (let seq = 0; seq < PER_RUN - FIRST; seq++) {
    outbox.push('stdout', DATA)
    outbox.ack({ stdout: seq + 1, stderr: 0 })
  }
  return PER_RUN - FIRST
}

/** Runs whose unread output reaches the limit for all runs. */
const fullOf = (total: UnackedTotal) => {
  const boxes = Array.from({ length: MAX_UNACKED_TOTAL / MAX_UNACKED_PER_RUN }, () => boxOf(total))
  for (const { outbox } of boxes) {
    widen(outbox)
    for (let i = 0; i < PER_RUN; i++) outbox.push('stdout', DATA)
  }
  return boxes
}

for (const [title, grow, window] of [
  ['its first window', () => 0, FIRST],
  ['the largest window', widen, PER_RUN],
] as const)
  test(`the run pauses exactly at ${title} and continues after the next acknowledgement`, () => {
    const { outbox, state } = boxOf()
    const seq = grow(outbox)
    for (let i = 0; i < window - 1; i++) assert.equal(outbox.push('stdout', DATA), true)
    assert.equal(outbox.push('stdout', DATA), false)
    outbox.ack({ stdout: seq, stderr: 0 })
    assert.equal(state.rooms, 0)
    outbox.ack({ stdout: seq + 1, stderr: 0 })
    assert.equal(state.rooms, 1)
    outbox.ack({ stdout: seq + 2, stderr: 0 })
    assert.equal(state.rooms, 1)
  })

test('the window grows with acknowledged output, up to its largest size', () => {
  const { outbox } = boxOf()
  const windows: number[] = []
  let seq = 0
  while (windows.at(-1) !== windows.at(-2) || windows.length < 2) {
    let pushed = 1
    while (outbox.push('stdout', DATA)) pushed += 1
    seq += pushed
    windows.push(pushed)
    outbox.ack({ stdout: seq, stderr: 0 })
  }
  assert.deepEqual(windows, [FIRST, 2 * FIRST, 4 * FIRST, PER_RUN, PER_RUN])
})

test('an acknowledgement of unsent frames, or below an earlier one, is malformed', () => {
  const { outbox } = boxOf()
  outbox.push('stdout', DATA)
  outbox.push('stdout', DATA)
  outbox.ack({ stdout: 2, stderr: 0 })
  for (const seqs of [
    { stdout: 3, stderr: 0 },
    { stdout: 1, stderr: 0 },
    { stdout: 2, stderr: 1 },
  ])
    assert.throws(
      () => outbox.ack(seqs),
      (error) => isAppError(error, 'malformed'),
    )
})

test('all runs together pause at the common limit, and continue when there is room again', () => {
  const total = new UnackedTotal()
  const boxes = fullOf(total)
  const late = boxOf(total)
  for (let i = 1; i < MIN_UNACKED_PER_RUN / 1024; i++) assert.equal(late.outbox.push('stdout', DATA), true)
  assert.equal(late.outbox.push('stdout', DATA), false)
  assert.equal(late.state.rooms, 0)
  boxes[0]!.outbox.ack({ stdout: PER_RUN - FIRST + MIN_UNACKED_PER_RUN / 1024 + 1, stderr: 0 })
  assert.equal(late.state.rooms, 1)
  assert.equal(boxes[0]!.state.rooms, 1)
  assert.equal(boxes[1]!.state.rooms, 0)
  // The end of a run frees its frames.
  for (const { outbox } of boxes) outbox.close()
  assert.equal(total.full, false)
  // After it closes, an outbox lets the program write and drops the output.
  assert.equal(boxes[1]!.state.rooms, 1)
  assert.equal(boxes[1]!.outbox.push('stdout', DATA), true)
})

test('readers that do not read cannot stop a reader that does', () => {
  const total = new UnackedTotal()
  fullOf(total)
  const reader = boxOf(total)
  const window = MIN_UNACKED_PER_RUN / 1024
  for (let round = 0; round < 10; round++) {
    let pushed = 1
    while (reader.outbox.push('stdout', DATA)) pushed += 1
    assert.equal(pushed, round === 0 ? window : 1)
    assert.equal(total.full, true)
    reader.outbox.ack({ stdout: round + 1, stderr: 0 })
    assert.equal(reader.state.rooms, round + 1)
  }
})

test('a full channel gets no frame until it has drained, and the run pauses meanwhile', async () => {
  const { outbox, state, sent } = boxOf()
  state.full = true
  assert.equal(outbox.push('stdout', DATA), false)
  outbox.ack(START)
  assert.deepEqual([sent.length, state.rooms], [0, 0])
  state.full = false
  state.drained.resolve()
  await state.drained.promise
  await Promise.resolve()
  assert.deepEqual([sent.length, state.rooms], [1, 1])
  assert.equal(outbox.push('stdout', DATA), true)
})

test('frames held back by a full channel are sent when it has drained, and the Exit comes last', async () => {
  const { outbox, state, sent } = boxOf()
  state.full = true
  for (let i = 0; i < FIRST; i++) outbox.push('stdout', DATA)
  outbox.finish(EXIT)
  assert.equal(sent.length, 0)
  state.full = false
  state.drained.resolve()
  await state.drained.promise
  await Promise.resolve()
  assert.equal(sent.length, FIRST + 1)
  assert.deepEqual(sent[FIRST], { type: 'exit', seq: -1 })
  assert.equal(state.rooms, 0, 'the window is full')
})

test('a run whose full stream is lost or replaced continues up to its window', () => {
  for (const again of [false, true]) {
    const { outbox, state } = boxOf()
    state.full = true
    assert.equal(outbox.push('stdout', DATA), false)
    if (again) outbox.attach(boxOf().line, START)
    else outbox.detach()
    assert.equal(state.rooms, 1)
    for (let i = 2; i < FIRST; i++) assert.equal(outbox.push('stdout', DATA), true)
    assert.equal(outbox.push('stdout', DATA), false)
  }
})

test('unacknowledged output is sent again in order, after the notes and before the Exit', () => {
  const { outbox, sent } = boxOf()
  outbox.note(NOTE)
  for (const stream of ['stdout', 'stderr', 'stderr', 'stdout'] as const) outbox.push(stream, DATA)
  outbox.ack({ stdout: 1, stderr: 0 })
  outbox.finish(EXIT)
  const before = sent.splice(0)
  assert.deepEqual(
    before.map(({ type }) => type),
    ['started', 'stdout', 'stderr', 'stderr', 'stdout', 'exit'],
  )
  const again = boxOf()
  outbox.attach(again.line, { stdout: 1, stderr: 1 }, [NOTE])
  assert.deepEqual(again.sent, [
    { type: 'started', seq: -1 },
    { type: 'started', seq: -1 },
    { type: 'stderr', seq: 1 },
    { type: 'stdout', seq: 1 },
    { type: 'exit', seq: -1 },
  ])
  assert.deepEqual(sent, [])
})

test('without a requester, output is kept up to the window and sent later', () => {
  const { outbox, sent, state } = boxOf()
  outbox.detach()
  for (let i = 1; i < FIRST; i++) assert.equal(outbox.push('stdout', DATA), true)
  assert.equal(outbox.push('stdout', DATA), false)
  assert.deepEqual([sent.length, outbox.unacked], [0, FIRST_UNACKED_PER_RUN])
  const later = boxOf()
  outbox.attach(later.line, START)
  assert.equal(later.sent.length, FIRST)
  outbox.ack({ stdout: 1, stderr: 0 })
  assert.equal(state.rooms, 1)
})

test('a resume is refused after unsent frames and before acknowledged frames', () => {
  const { outbox, line } = boxOf()
  outbox.push('stdout', DATA)
  outbox.push('stdout', DATA)
  outbox.ack({ stdout: 1, stderr: 0 })
  outbox.detach()
  outbox.push('stdout', DATA)
  for (const from of [
    { stdout: 0, stderr: 0 },
    { stdout: 3, stderr: 0 },
    { stdout: 2, stderr: 1 },
  ])
    assert.throws(
      () => outbox.attach(line, from),
      (error) => isAppError(error, 'malformed'),
    )
  // After frames were sent, another resume may start anywhere between the two.
  outbox.attach(line, { stdout: 2, stderr: 0 })
  outbox.attach(line, { stdout: 1, stderr: 0 })
  outbox.attach(line, { stdout: 3, stderr: 0 })
})

test('a flush sends all frames once, even on a full channel', () => {
  const { outbox, state, sent } = boxOf()
  state.full = true
  outbox.push('stdout', DATA)
  outbox.finish(EXIT)
  outbox.flush()
  outbox.flush()
  assert.deepEqual(
    sent.map(({ type }) => type),
    ['stdout', 'exit'],
  )
  outbox.close()
  assert.deepEqual([outbox.closed, outbox.unacked], [true, 0])
})
