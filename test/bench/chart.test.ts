import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { ratioChart } from '../../bench/chart.ts'
import { charts, type Row } from '../../bench/report.ts'

const BENCH = join(import.meta.dirname, '../../bench')
const one = (median: number) => ({ n: 1, median, p99: median, min: median })
const row = (unit: Row['unit'], ours: number, theirs: number, more: Partial<Row> = {}): Row => ({
  what: '`a` & <b>',
  unit,
  ours: one(ours),
  theirs: one(theirs),
  peer: 'ssh',
  ...more,
})

/** The side, length and figure of each bar. */
const barsOf = (svg: string): [side: string, length: number, figure: string][] => {
  const bars = [...svg.matchAll(/width="([\d.]+)" height="12" rx="2" fill="var\(--(\w+)\)"\/>.*?>([^<>]+)<\/text>\n/g)]
  return bars.map(([, width, side, figure]) => [side!, Number(width), figure!])
}

test('a bar points to the better side with its figure, and each doubling of the ratio has the same length', () => {
  const svg = ratioChart('T', [row('ms', 10, 40), row('ms', 20, 10), row('MB/s', 40, 10), row('bytes', 20, 10, { target: '≤ 0.5' })])!
  const [faster, slower, more, worse] = barsOf(svg)
  assert.deepEqual([faster![0], slower![0], more![0], worse![0]], ['ahead', 'behind', 'ahead', 'behind'])
  assert.deepEqual([faster![2], slower![2], more![2], worse![2]], ['4.0 × faster', '2.0 × slower', '4.0 × faster', '2.0 × more'])
  assert.deepEqual([faster![1], more![1]], [2 * slower![1], 2 * worse![1]])
  assert.match(svg, /a &amp; &lt;b&gt;/)
  assert.equal(svg.match(/stroke-dasharray/g)?.length, 1)
  assert.equal(ratioChart('T', [{ what: 'alone', unit: 'ms', ours: one(1) }]), null)
})

test('the stored charts match the results, and RESULTS.md shows each (update: npm run bench -- charts)', async () => {
  const drawn = await charts()
  assert.deepEqual(globSync('charts/*.svg', { cwd: BENCH }).toSorted(), drawn.map(([file]) => file).toSorted())
  const results = readFileSync(join(BENCH, 'RESULTS.md'), 'utf8')
  for (const [file, svg] of drawn) {
    assert.equal(readFileSync(join(BENCH, file), 'utf8'), svg, file)
    assert.ok(results.includes(`](${file})`), file)
  }
})
