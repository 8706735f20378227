import assert from 'node:assert/strict'
import { test } from 'node:test'

import { rowsTable, type Row } from '../../bench/report.ts'

const one = (median: number) => ({ n: 1, median, p95: median, p99: median, min: median })
const run: Row = { what: 'a run', unit: 'ms', ours: one(10), theirs: one(20), peer: 'ssh' }

test('a table shows the figure and ratio of an earlier build if that build measured one of its rows', () => {
  const memory: Row = { what: 'memory', unit: 'MB', ours: one(3) }
  const earlier: Row[] = [
    { ...run, ours: one(30) },
    { ...memory, ours: one(4) },
    { ...run, what: 'another run', ours: one(1) },
  ]
  assert.deepEqual(rowsTable([run, memory, { ...run, peer: 'scp' }], earlier).split('\n'), [
    '| measured | unit | x0x | compared with | ratio | before |',
    '| --- | --- | --- | --- | --- | --- |',
    '| a run | ms | 10.0 | 20.0 ssh | **0.50** | 30.0 (ratio 1.50) |',
    '| memory | MB | 3.00 |  |  | 4.00 |',
    '| a run | ms | 10.0 | 20.0 scp | **0.50** |  |',
  ])
})

test('a table leaves out columns without a figure', () => {
  assert.equal(rowsTable([run], []).split('\n')[0], '| measured | unit | x0x | compared with | ratio |')
})
