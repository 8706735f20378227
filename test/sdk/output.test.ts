import type { OutputName } from '../../src/protocol/reasons.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { OutputQueue } from '../../src/sdk/output.ts'
import { ReadGate, type Fullness } from '../../src/sdk/connection.ts'
import { all, SEED } from './pieces.ts'

test('property: output is read once and in order, by one reader or by one per stream', async () => {
  const piece = fc.record({
    stream: fc.constantFrom<OutputName>('stdout', 'stderr'),
    size: fc.integer({ min: 1, max: 3 }),
    wait: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(piece, { maxLength: 40 }), fc.boolean(), async (pieces, apart) => {
      const queue = new OutputQueue({ onFullness: () => undefined })
      const readers = apart ? [queue.read('stdout'), queue.read('stderr')] : [queue.read('stdout', 'stderr')]
      const reading = Promise.all(readers.map(async (reader) => all(reader)))
      const seqs = { stdout: 0, stderr: 0 }
      const pushed = pieces.map(({ stream, size }) => ({ stream, data: new Uint8Array(size), seq: ++seqs[stream] }))
      for (const [i, chunk] of pushed.entries()) {
        queue.push(chunk)
        if (pieces[i]!.wait) await Promise.resolve()
      }
      queue.end(null)
      const read = await reading
      const of = (name: OutputName): typeof pushed => pushed.filter(({ stream }) => stream === name)
      assert.deepEqual(read, apart ? [of('stdout'), of('stderr')] : [pushed])
    }),
    { seed: SEED },
  )
})

test('a queue reports its fullness, and has room again after enough is read or after its end or discard', async () => {
  const told: Fullness[] = []
  const queue = (): OutputQueue => new OutputQueue({ onFullness: (fullness) => told.push(fullness) })
  const chunk = (seq: number) => ({ stream: 'stdout', data: new Uint8Array(100_000), seq }) as const
  const first = queue()
  for (let seq = 1; seq <= 175; seq++) first.push(chunk(seq))
  assert.deepEqual(told.splice(0), ['high', 'limit'])
  const reader = first.read('stdout')
  for (let i = 0; i < 10; i++) await reader.next()
  assert.deepEqual(told.splice(0), ['high'])
  // Room is reported when 5 of the chunks remain, but not yet at 6.
  for (let i = 0; i < 159; i++) await reader.next()
  assert.deepEqual(told.splice(0), [])
  await reader.next()
  assert.deepEqual(told.splice(0), ['room'])
  first.push(chunk(176))
  assert.deepEqual(told.splice(0), [])
  const second = queue()
  for (let seq = 1; seq <= 20; seq++) second.push(chunk(seq))
  second.end(null)
  second.push(chunk(21))
  assert.deepEqual(told.splice(0), ['high', 'room'])
  assert.equal((await all(second.read('stdout'))).length, 20)
  const third = queue()
  for (let seq = 1; seq <= 20; seq++) third.push(chunk(seq))
  third.discard('stdout')
  assert.deepEqual(told.splice(0), ['high', 'room'])
  // Discarded output is not stored, so the same amount does not fill the queue.
  for (let seq = 21; seq <= 40; seq++) third.push(chunk(seq))
  third.fail(new Error('first'))
  third.end(null)
  assert.deepEqual(told.splice(0), [])
  await assert.rejects(third.read('stdout').next(), /first/)
})

test('a full reader stops the reading unless an answer is expected, and the limit always stops it', () => {
  const told: boolean[] = []
  const gate = new ReadGate({ onHeld: (held) => told.push(held) })
  const [a, b] = [{}, {}]
  gate.set(a, 'high')
  gate.set(b, 'high')
  gate.expect(true)
  gate.set(b, 'limit')
  gate.expect(false)
  gate.set(b, 'room')
  gate.set(a, 'room')
  assert.deepEqual(told, [true, false, true, false])
})
