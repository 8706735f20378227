import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import { OutputPump, type OutputBudget, type OutputTotals } from '../../src/process/streams.ts'
import { startProcess } from '../../src/process/running-process.ts'
import { systemClock } from '../../src/base/clock.ts'
import { askRun, permitted, policyOf } from '../support/local-policy.ts'
import { groupCells, script, startGuardian } from '../support/processes.ts'

const MAX = Number.MAX_SAFE_INTEGER
const sha256 = (data: Uint8Array): Uint8Array => new Uint8Array(createHash('sha256').update(data).digest())

/** Waits until the stream has reported its data and the pump has read it. */
const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 3; turn++) await nextTurn()
}

/** A stream with a pump, and a record of the output and events of the pump. */
const pumpOf = (budget: OutputBudget | null, cap = MAX) => {
  const source = new Readable({ read: () => undefined })
  const chunks: Buffer[] = []
  const hits: number[] = []
  const handlers = {
    onData: (data: Uint8Array) => chunks.push(Buffer.from(data)),
    onApproaching: () => assert.fail('nobody asked to be warned'),
    onCapHit: (total: number) => hits.push(total),
  }
  const pump = new OutputPump({ source, handlers }, { cap, budget, warn: MAX })
  pump.resume()
  return { source, pump, hits, chunks, data: () => Buffer.concat(chunks) }
}

interface Ran {
  readonly out: Buffer
  readonly err: Buffer
  readonly warnings: (readonly [string, number | null])[]
  readonly end: { stdout: OutputTotals; stderr: OutputTotals; truncated: boolean; code: number | null }
}

/** Runs a shell script. `bytes` limits the output of both streams together. */
const runWith = async (t: TestContext, text: string, bytes: number): Promise<Ran> => {
  const policy = policyOf(['/usr'], { limits: `max_output_bytes = ${bytes}` })
  const permit = permitted(askRun(policy, { argv: [await script(t, text)] }))
  const output = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
  const warnings: [string, number | null][] = []
  const handlers = {
    onOutput: (stream: 'stdout' | 'stderr', data: Uint8Array) => void output[stream].push(Buffer.from(data)),
    // Another program of this user may hide its environment meanwhile, which gives an ordinary user a warning.
    onWarning: (kind: string, total: number | null) => void (kind !== 'descendants_may_survive' && warnings.push([kind, total])),
  }
  const components = { trees: await groupCells(), clock: systemClock, cleanup: startGuardian(t), handlers }
  const started = await startProcess(permit, components, { stdin: false })
  assert.ok(started.kind === 'started')
  started.process.resume()
  const end = await started.process.ended
  return { out: Buffer.concat(output.stdout), err: Buffer.concat(output.stderr), warnings, end }
}

test('a pump reads no more after its totals are final', async () => {
  const out = pumpOf({ left: 10 })
  out.source.push('abc')
  await settled()
  const totals = out.pump.finish()
  out.pump.resume()
  out.source.push('def')
  await settled()
  assert.deepEqual([out.data().toString(), totals.bytes_total, out.pump.total], ['abc', 3, 3])
})

test('the own limit of a stream applies as well, and dropped bytes do not use the shared budget', async () => {
  const budget = { left: 10 }
  const [out, err] = [pumpOf(budget, 3), pumpOf(budget)]
  out.source.push('123456')
  await settled()
  assert.equal(budget.left, 7)
  err.source.push('abcdefgh')
  await settled()
  assert.deepEqual([out.data().toString(), err.data().toString(), budget.left], ['123', 'abcdefg', 0])
})

test('without a shared budget each stream has only its own limit', async () => {
  const [out, err] = [pumpOf(null, 3), pumpOf(null, 3)]
  out.source.push('123')
  err.source.push('abc')
  await settled()
  assert.deepEqual([out.data().toString(), err.data().toString(), out.hits, err.hits], ['123', 'abc', [], []])
})

test('property: two streams forward the start of their output, together exactly the budget', async () => {
  const stepOf = fc.record({
    err: fc.boolean(),
    size: fc.integer({ min: 1, max: 400 }),
    pause: fc.constantFrom('out', 'err', null, null),
    turn: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 0, max: 1_500 }), fc.array(stepOf, { maxLength: 12 }), async (left, steps) => {
      const budget = { left }
      const pumps = { out: pumpOf(budget), err: pumpOf(budget) }
      const written = { out: [] as Buffer[], err: [] as Buffer[] }
      for (const [at, { err, size, pause, turn }] of steps.entries()) {
        const name = err ? 'err' : 'out'
        const data = Buffer.alloc(size, at + 1)
        written[name].push(data)
        if (pause !== null) pumps[pause].pump.pause()
        pumps[name].source.push(data)
        if (turn) await settled()
        if (pause !== null) pumps[pause].pump.resume()
      }
      await settled()
      let total = 0
      let forwarded = 0
      for (const name of ['out', 'err'] as const) {
        const { pump, data, hits } = pumps[name]
        const whole = Buffer.concat(written[name])
        const { bytes_total, bytes_forwarded, sha256: hash, truncated } = pump.finish()
        assert.deepEqual(data(), whole.subarray(0, bytes_forwarded))
        assert.deepEqual([bytes_total, hash], [whole.length, sha256(data())])
        assert.deepEqual([truncated, hits.length], [bytes_forwarded < bytes_total, truncated ? 1 : 0])
        total += bytes_total
        forwarded += bytes_forwarded
      }
      assert.deepEqual([forwarded, budget.left], [Math.min(total, left), left - forwarded])
    }),
    { seed: 20_260_310, numRuns: 300 },
  )
})

test('a flood on both streams is read to its end, and exactly the budget is forwarded', async (t) => {
  const { out, err, warnings, end } = await runWith(t, 'head -c 3000000 /dev/zero >&2 & head -c 3000000 /dev/zero; wait', 1_000_000)
  assert.equal(out.length + err.length, 1_000_000)
  assert.deepEqual([end.stdout.bytes_total, end.stderr.bytes_total, end.code], [3_000_000, 3_000_000, 0])
  assert.deepEqual(warnings.map(([kind]) => kind).toSorted(), ['stderr_cap_hit', 'stdout_cap_hit'])
  assert.deepEqual([end.stdout.sha256, end.stderr.sha256], [sha256(out), sha256(err)])
})
