import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import fc from 'fast-check'

import { DetachedRunStore } from '../../../src/executor/detached/store.ts'
import { SpoolIndex, keptBefore } from '../../../src/executor/detached/spool.ts'
import { SpoolReader } from '../../../src/executor/detached/spool.ts'
import { Spool } from '../../../src/executor/detached/spool.ts'
import { freeSpace } from '../../../src/journal/file.ts'
import { MAX_SPOOL_QUEUE } from '../../../src/protocol/limits/detached.ts'
import { FRAME_COST, MAX_FRAME_DATA } from '../../../src/protocol/limits/wire.ts'
import { exitFrame } from '../../support/detached.ts'
import { silent } from '../../support/processes.ts'
import { NO_DISK, smallDisk } from '../../support/small-disk.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { tempDir } from '../../support/temp-dir.ts'

const quiet = { onRoom: () => undefined, onWritten: () => undefined, onFailed: () => undefined }

interface Read {
  readonly stdout: Buffer
  readonly stderr: Buffer
  readonly all: Buffer
}

/** All output from this byte on, in pieces that fit in a frame. */
const readFrom = async (path: string, spool: Spool, from: number): Promise<Read> => {
  const end = spool.written.file
  const reader = new SpoolReader(path, { place: spool.index.before(from) })
  try {
    const { cut, before } = await reader.skipTo(from, end)
    assert.equal(keptBefore(before), from)
    const parts: { stream: 'stdout' | 'stderr'; data: Uint8Array }[] = []
    for (let left = cut, output = await reader.next(end); output !== null; left = 0, output = await reader.next(end)) {
      assert.ok(output.data.length <= MAX_FRAME_DATA)
      parts.push({ stream: output.stream, data: output.data.subarray(left) })
    }
    const of = (stream?: string): Buffer =>
      Buffer.concat(parts.filter((part) => (stream ?? part.stream) === part.stream).map(({ data }) => data))
    return { stdout: of('stdout'), stderr: of('stderr'), all: of() }
  } finally {
    await reader.close()
  }
}

test('output can be read from any byte on, in order and by stream', async (t) => {
  const directory = await tempDir(t)
  let n = 0
  const pieces = fc.array(
    fc.tuple(fc.constantFrom('stdout' as const, 'stderr' as const), fc.oneof(fc.nat(40), fc.integer({ min: 1, max: 90_000 }))),
    {
      maxLength: 12,
    },
  )
  await fc.assert(
    fc.asyncProperty(pieces, fc.array(fc.nat(1_000_000), { maxLength: 4 }), async (pushed, places) => {
      const path = join(directory, `${(n += 1)}`)
      const spool = await Spool.create(path, quiet)
      const parts = pushed.map(([stream, length], index) => ({ stream, data: Buffer.alloc(length, index + 1) }))
      for (const { stream, data } of parts) spool.push(stream, data)
      await spool.finish()
      const all = Buffer.concat(parts.map(({ data }) => data))
      assert.equal(keptBefore(spool.written), all.length)
      for (const place of [0, all.length, ...places.map((at) => at % (all.length + 1))]) {
        const read = await readFrom(path, spool, place)
        assert.deepEqual(read.all, all.subarray(place))
        for (const stream of ['stdout', 'stderr'] as const) {
          const whole = Buffer.concat(parts.filter((part) => part.stream === stream).map(({ data }) => data))
          assert.deepEqual(read[stream], whole.subarray(whole.length - read[stream].length))
        }
      }
    }),
    { numRuns: 40, seed: 20_261_126 },
  )
})

test('a file with arbitrary bytes is read safely up to its last complete piece', async (t) => {
  const path = join(await tempDir(t), 'any')
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 2_000 }), async (bytes) => {
      await writeFile(path, bytes, { mode: 0o600 })
      const reader = new SpoolReader(path)
      const place = await reader.measure(bytes.length)
      await reader.close()
      assert.ok(place.file <= bytes.length && keptBefore(place) <= place.file)
    }),
    { numRuns: 200, seed: 20_261_126 },
  )
})

test('a late reader scans a file without index once, and stops if its client leaves', async (t) => {
  const path = join(await tempDir(t), 'out')
  const spool = await Spool.create(path, quiet)
  for (let at = 0; at < 60; at += 1) spool.push(at % 2 === 0 ? 'stdout' : 'stderr', Buffer.alloc(30_000, at))
  await spool.finish()
  const [index, { file: end }] = [new SpoolIndex(), spool.written]
  const left = new SpoolReader(path, { index })
  let asked = 0
  const { before } = await left.skipTo(1_700_000, end, () => (asked += 1) < 3)
  assert.ok(before.file < 3 * 256 * 1024, 'two blocks')
  await left.close()
  for (const isNew of [true, false]) {
    const reader = new SpoolReader(path, { place: index.before(1_700_000), index })
    assert.equal(reader.place.file < 1_400_000, isNew)
    assert.equal(keptBefore((await reader.skipTo(1_700_000, end)).before), 1_700_000)
    await reader.close()
  }
})

test('a slow disk pauses the program until there is room', async (t) => {
  const room = Promise.withResolvers<void>()
  const spool = await Spool.create(join(await tempDir(t), 'out'), { ...quiet, onRoom: () => room.resolve() })
  const most = MAX_SPOOL_QUEUE - 2 * FRAME_COST
  assert.equal(spool.push('stdout', Buffer.alloc(most - 1)), true)
  assert.equal(spool.push('stdout', Buffer.alloc(1)), false)
  await room.promise
  await spool.finish()
  assert.equal(keptBefore(spool.written), most)
})

test('single bytes count with their memory use, so that a flood of them also waits for the disk', async (t) => {
  const spool = await Spool.create(join(await tempDir(t), 'out'), quiet)
  let pushed = 1
  while (spool.push(pushed % 2 === 0 ? 'stdout' : 'stderr', Buffer.alloc(1))) pushed += 1
  assert.equal(pushed, Math.ceil(MAX_SPOOL_QUEUE / (1 + FRAME_COST)))
  await spool.finish()
  assert.equal(keptBefore(spool.written), pushed)
})

test('a full disk drops the later output, which is counted, but does not end the run', async (t) => {
  const disk = await smallDisk(t, 512)
  if (disk === null) return t.skip(NO_DISK)
  const runs = new DetachedRunStore(
    { clock: new ManualClock(), log: silent, forgotten: async () => true, neverBegan: async () => exitFrame() },
    { dataDir: disk },
  )
  await runs.load()
  const hash = new Uint8Array(32)
  const init = { request_id: '0192d3a0-1111-7222-8333-444455556666', agent_id: 'a1'.repeat(32), machine_id: 'b2'.repeat(32) }
  const kept = runs.admit({ ...init, content_sha256: hash, request_sha256: hash, keep_bytes: 2_000_000 }, false)
  assert.ok(typeof kept === 'object')
  let failed = 0
  const room = Promise.withResolvers<void>()
  await kept.open({ resume: () => room.resolve(), outputLost: () => void (failed += 1) })
  for (let at = 0; at < 40; at += 1) kept.push('stdout', Buffer.alloc(32_000, at))
  await room.promise
  kept.push('stderr', Buffer.from('late'))
  kept.started(1_000)
  await kept.finish(exitFrame({ stdout: 40 * 32_000, stderr: 4 }))
  runs.stop()
  const { kept: bytes, dropped } = kept.frame()
  assert.deepEqual([failed, bytes + dropped, bytes < 512 * 1024], [1, 40 * 32_000 + 4, true])
  assert.ok((await freeSpace(disk, 1)).spare > 0, 'the journal has room')
  const reader = new SpoolReader(join(disk, 'detached', `${kept.name}.out`))
  assert.equal(keptBefore(await reader.measure(kept.written.file)), bytes)
  await reader.close()
})
