import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import fc from 'fast-check'

import { attempt } from '../../src/base/errors.ts'
import { expandNodeSet, foldNodeSet, parseNodeSet } from '../../src/protocol/hosts/node-set.ts'

const nodeset = (args: readonly string[]): string =>
  execFileSync('nodeset', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim()

const missing = attempt(() => nodeset(['--version'])) === null
const needs = missing ? { skip: 'needs nodeset: apt-get install clustershell' } : {}

const CASES = 150

/** All cases share one call, because each call takes a fifth of a second. Every case has a different prefix without digits. */
const beginningOf = (index: number): string => `q${String.fromCharCode(97 + (index % 26), 97 + Math.floor(index / 26))}-`
const byCase = (names: readonly string[]): string[][] =>
  Array.from({ length: CASES }, (_, index) => names.filter((name) => name.startsWith(beginningOf(index))).toSorted())

const range = fc
  .tuple(fc.integer({ min: 0, max: 120 }), fc.integer({ min: 0, max: 12 }), fc.integer({ min: 1, max: 4 }), fc.constantFrom(0, 0, 3, 4))
  .map(([first, more, step, width]) => {
    const [from, to] = [first, first + more].map((number) => String(number).padStart(width, '0'))
    return more === 0 ? from! : `${from}-${to}${step === 1 ? '' : `/${step}`}`
  })
const bracket = fc.array(range, { minLength: 1, maxLength: 3 }).map((ranges) => `[${ranges.join()}]`)
/** Has no digits directly before a bracket, because ClusterShell expands `n1[5-10]` to n15 until n110. */
const nodeSet = fc
  .tuple(fc.constantFrom('', 'web', 'n1-'), bracket, fc.constantFrom('', '-n', '.x'), fc.option(bracket, { nil: '' }))
  .map(([begin, first, between, second]) => `${begin}${first}${between === '' ? '' : between + second}`)

test('x0x expands node sets as ClusterShell does, and ClusterShell expands sets that x0x folded to the same names', needs, () => {
  const sets = fc.sample(nodeSet, { seed: 20_261_126, numRuns: CASES }).map((set, index) => beginningOf(index) + set)
  const ours = sets.map((set) => expandNodeSet(parseNodeSet(set)).toSorted())
  for (const [index, names] of byCase(nodeset(['-e', ...sets]).split(' ')).entries()) assert.deepEqual(names, ours[index], sets[index])
  const folded = ours.map(foldNodeSet)
  for (const [index, names] of byCase(nodeset(['-e', ...folded]).split(' ')).entries()) assert.deepEqual(names, ours[index], folded[index])
})

test('x0x folds names to the same text as ClusterShell if leading zeros are not mixed', needs, () => {
  for (const names of ['web[1-7,9-20]', 'rack[1-4]-node[01-16]', 'n[098-102]', 'a,b[1-3],c7', '10.0.0.[1-20,30]']) {
    const list = expandNodeSet(parseNodeSet(names))
    assert.equal(foldNodeSet(list), nodeset(['-f', ...list]))
  }
})

test('x0x refuses the node sets that ClusterShell refuses', needs, () => {
  for (const text of ['a[3-1]', 'a[]', 'a[1-2', 'a]', 'a[1-3/0]', 'a[01-100]', 'a[1][2]', 'a,,b', 'a[1[2]]']) {
    assert.throws(() => nodeset(['-e', text]), text)
    assert.throws(() => parseNodeSet(text), text)
  }
})
