import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'

import { BufferPool } from '../../../src/base/buffers.ts'
import { Outbox, UnackedTotal } from '../../../src/executor/runs/outbox.ts'
import { sha256 } from '../../../src/identity/hash.ts'
import type { OutputName } from '../../../src/protocol/reasons.ts'
import { execFrame } from '../../../src/protocol/wire/exec.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const SIZE = 512
const STREAMS = ['stdout', 'stderr'] as const

/** A write that has not read its bytes yet. */
interface Write {
  readonly parts: readonly Uint8Array[]
  readonly released: () => void
}

/** A run, its requester, and the writes that still read frames, including those on lost streams. */
class Run {
  readonly written = { stdout: [] as string[], stderr: [] as string[] }
  readonly received = { stdout: 0, stderr: 0 }
  readonly #pending: Write[] = []
  readonly #pool: BufferPool
  readonly #outbox: Outbox

  constructor(pool: BufferPool, total: UnackedTotal) {
    this.#pool = pool
    this.#outbox = new Outbox({ total, frames: pool }, { requestId: ID, onRoom: () => undefined })
    this.attach()
  }

  get pending(): number {
    return this.#pending.length
  }

  push(stream: OutputName): void {
    const data = this.#pool.take()
    data.set(randomBytes(SIZE))
    this.written[stream].push(Buffer.from(sha256(data)).toString('hex'))
    this.#outbox.push(stream, data)
  }

  attach(): void {
    this.#outbox.attach(
      {
        send: () => undefined,
        sendAndRelease: (released, ...parts) => void this.#pending.push({ parts, released }),
        full: false,
        drained: async () => undefined,
      },
      this.received,
    )
  }

  /** Lets a pending write read its bytes. Writes of one stream end in order, and those of a lost stream at any time. */
  read(at: number): void {
    const [write] = this.#pending.splice(at, 1)
    if (write === undefined) return
    const frame = execFrame.decode(Buffer.concat(write.parts))
    assert.ok(frame.type === 'stdout' || frame.type === 'stderr')
    assert.equal(Buffer.from(sha256(frame.data)).toString('hex'), this.written[frame.type][frame.seq], 'a frame was overwritten')
    if (frame.seq === this.received[frame.type]) this.received[frame.type] += 1
    write.released()
  }

  /** The requester acknowledges the frames that it received, or those that a captured network process claims. */
  ack(claimed: boolean): void {
    this.#outbox.ack(claimed ? { stdout: this.written.stdout.length, stderr: this.written.stderr.length } : this.received)
    if (claimed) for (const stream of STREAMS) this.received[stream] = this.written[stream].length
  }

  detach(): void {
    this.#outbox.detach()
  }

  close(): void {
    this.#outbox.close()
  }

  get closed(): boolean {
    return this.#outbox.closed
  }
}

const step = fc.record({
  run: fc.nat({ max: 2 }),
  does: fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom('stdout' as const, 'stderr' as const) },
    { weight: 8, arbitrary: fc.nat({ max: 5 }) },
    { weight: 4, arbitrary: fc.constant('ack' as const) },
    { weight: 1, arbitrary: fc.constantFrom('claim' as const, 'detach' as const, 'attach' as const) },
    { weight: 1, arbitrary: fc.constant('close' as const) },
  ),
})

/** Runs in `detached` make no claims, because no frames were sent to them. */
const take = (run: Run, detached: Set<Run>, does: (typeof step extends fc.Arbitrary<infer T> ? T : never)['does']): void => {
  if (typeof does === 'number') return run.read(does)
  if (does === 'close') return run.close()
  if (run.closed) return
  if (does === 'detach') {
    detached.add(run)
    return run.detach()
  }
  if (does === 'attach') {
    detached.delete(run)
    return run.attach()
  }
  if (does === 'stdout' || does === 'stderr') return run.push(does)
  if (!detached.has(run)) run.ack(does === 'claim')
}

test('a buffer is not reused while a write, another stream or a later resume may read it', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
      const pool = new BufferPool({ size: SIZE, max: 8 })
      const total = new UnackedTotal()
      const runs = [new Run(pool, total), new Run(pool, total), new Run(pool, total)]
      const detached = new Set<Run>()
      for (const { run, does } of steps) take(runs[run]!, detached, does)
      // In the end all pending writes read, and a resumed requester receives the rest unchanged.
      for (const run of runs) {
        if (!run.closed) run.attach()
        while (run.pending > 0) run.read(0)
        if (!run.closed) for (const stream of STREAMS) assert.equal(run.received[stream], run.written[stream].length)
      }
    }),
    { seed: 20_261_128, numRuns: 500 },
  )
})

test('a buffer returns to the pool when its frame is acknowledged and written, in either order', () => {
  const pool = new BufferPool({ size: SIZE, max: 8 })
  const released: (() => void)[] = []
  const outbox = new Outbox({ total: new UnackedTotal(), frames: pool }, { requestId: ID, onRoom: () => undefined })
  const line = {
    send: () => undefined,
    sendAndRelease: (release: () => void) => void released.push(release),
    full: false,
    drained: async () => undefined,
  }
  outbox.attach(line, { stdout: 0, stderr: 0 })
  const [first, second] = [pool.take(), pool.take()]
  for (const data of [first, second]) outbox.push('stdout', data)
  outbox.ack({ stdout: 1, stderr: 0 })
  assert.notEqual(pool.take(), first)
  released[0]!()
  assert.equal(pool.take(), first)
  released[1]!()
  assert.notEqual(pool.take(), second)
  outbox.ack({ stdout: 2, stderr: 0 })
  assert.equal(pool.take(), second)
})

test('an outbox that closes returns its buffers, and returns later ones at once', () => {
  const pool = new BufferPool({ size: SIZE, max: 8 })
  const outbox = new Outbox({ total: new UnackedTotal(), frames: pool }, { requestId: ID, onRoom: () => undefined })
  const buffer = pool.take()
  outbox.push('stderr', buffer)
  outbox.close()
  assert.equal(pool.take(), buffer)
  outbox.push('stderr', buffer)
  assert.equal(pool.take(), buffer)
})
