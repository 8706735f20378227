import type { OutputName } from '../../../src/protocol/reasons.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { Outbox, UnackedTotal } from '../../../src/executor/runs/outbox.ts'
import { execFrame } from '../../../src/protocol/wire/exec.ts'
import { AGENT_SIGNATURE_BYTES, FIRST_UNACKED_PER_RUN, FRAME_COST, MAX_UNACKED_PER_RUN } from '../../../src/protocol/limits/wire.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const EXIT = execFrame.encode({ type: 'exit', body: new Uint8Array(1), signature: new Uint8Array(AGENT_SIGNATURE_BYTES) })

/** A requester that attaches and detaches, reads slowly, and keeps each frame that it received. */
class Reader {
  readonly heard = { stdout: [] as string[], stderr: [] as string[] }
  readonly consumed = { stdout: 0, stderr: 0 }
  exits = 0
  #line = 0

  /** Opens a new line and ignores frames on older lines. The new line reports that it is full after `room` frames. */
  line(room: number) {
    const number = ++this.#line
    const drained = Promise.withResolvers<void>()
    let left = room
    const send = (...parts: readonly Uint8Array[]): void => {
      left -= 1
      if (number === this.#line) this.#take(execFrame.decode(Buffer.concat(parts)))
    }
    return {
      send,
      sendAndRelease: (_released: () => void, ...parts: readonly Uint8Array[]) => send(...parts),
      get full() {
        return left <= 0
      },
      drained: () => drained.promise,
      drain: (): void => {
        left = Number.POSITIVE_INFINITY
        drained.resolve()
      },
    }
  }

  get position() {
    return { stdout: this.heard.stdout.length, stderr: this.heard.stderr.length }
  }

  #take(frame: ReturnType<typeof execFrame.decode>): void {
    if (frame.type === 'exit') this.exits += 1
    if (frame.type !== 'stdout' && frame.type !== 'stderr') return
    assert.equal(frame.seq, this.heard[frame.type].length, 'no hole and nothing twice')
    this.heard[frame.type].push(Buffer.from(frame.data).toString())
  }
}

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('push' as const), stream: fc.constantFrom<OutputName>('stdout', 'stderr') }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('ack' as const), share: fc.double({ min: 0, max: 1, noNaN: true }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('lose' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('come' as const), room: fc.nat({ max: 20 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('drain' as const) }) },
)

test('a requester that attaches and detaches at any time receives each frame once, in order, and the Exit last', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 200 }), async (steps) => {
      const total = new UnackedTotal()
      const outbox = new Outbox({ total }, { requestId: ID, onRoom: () => undefined })
      const reader = new Reader()
      const said = { stdout: [] as string[], stderr: [] as string[] }
      let line = reader.line(3)
      let attached = true
      outbox.attach(line, reader.position)
      for (const [index, one] of steps.entries()) {
        if (one.do === 'push') {
          said[one.stream].push(String(index))
          outbox.push(one.stream, Buffer.from(String(index)))
        } else if (one.do === 'ack' && attached) {
          for (const stream of ['stdout', 'stderr'] as const) {
            const open = reader.heard[stream].length - reader.consumed[stream]
            reader.consumed[stream] += Math.floor(open * one.share)
          }
          outbox.ack(reader.consumed)
        } else if (one.do === 'lose') {
          attached = false
          outbox.detach()
        } else if (one.do === 'come') {
          attached = true
          line = reader.line(one.room)
          outbox.attach(line, reader.position)
        } else if (one.do === 'drain') {
          line.drain()
          await line.drained()
        }
        const kept = (['stdout', 'stderr'] as const).reduce((sum, stream) => sum + said[stream].length - reader.consumed[stream], 0)
        assert.ok(outbox.unacked >= kept * FRAME_COST && outbox.unacked <= kept * (FRAME_COST + 3), 'what counts is what is kept')
      }
      outbox.finish(EXIT)
      line = reader.line(Number.POSITIVE_INFINITY)
      reader.exits = 0
      outbox.attach(line, reader.position)
      assert.deepEqual([reader.heard, reader.exits], [said, 1])
      outbox.close()
    }),
    { seed: 20_261_121, numRuns: 500 },
  )
})

test('a run that is lost and resumed repeatedly never keeps more than its window and one frame', () => {
  const outbox = new Outbox({ total: new UnackedTotal() }, { requestId: ID, onRoom: () => undefined })
  const reader = new Reader()
  const data = new Uint8Array(60 * 1024)
  let most = 0
  for (let round = 0; round < 30; round++) {
    outbox.attach(reader.line(Number.POSITIVE_INFINITY), reader.position)
    while (outbox.push('stdout', data)) most = Math.max(most, outbox.unacked)
    most = Math.max(most, outbox.unacked)
    outbox.detach()
    if (round === 0) assert.ok(most < FIRST_UNACKED_PER_RUN + data.length + FRAME_COST)
    outbox.attach(reader.line(Number.POSITIVE_INFINITY), reader.position)
    outbox.ack(reader.position)
  }
  assert.ok(most >= MAX_UNACKED_PER_RUN && most < MAX_UNACKED_PER_RUN + data.length + FRAME_COST, String(most))
})
