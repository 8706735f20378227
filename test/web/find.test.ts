import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { hitsOf, outputFileName, partsOf, stepOf } from '../../src/web/runs/find.ts'

test('a search matches exact characters in upper or lower case, and not patterns', () => {
  const text = 'Error: a.b\nerror: a+b (x) [y] \\n'
  const found = (search: string): readonly string[] => hitsOf(text, search).map(({ start, end }) => text.slice(start, end))
  assert.deepEqual(found('error'), ['Error', 'error'])
  assert.deepEqual(found('a.b'), ['a.b'])
  for (const search of ['a+b', '(x)', '[y]', '\\n', ': ', '\n']) assert.ok(found(search).includes(search), search)
  for (const search of ['', '.*', '^', '$', '|', '(a+)+$', '{1}']) assert.deepEqual(found(search), [], search)
  // Characters whose lower case has another length do not move the later hits.
  assert.deepEqual(hitsOf('\u0130\u0130x', 'x'), [{ start: 2, end: 3 }])
})

test('the marked parts join to the whole text and include the current hit', () => {
  fc.assert(
    fc.property(fc.string(), fc.string({ minLength: 1, maxLength: 2 }), fc.nat(50), (text, search, position) => {
      const hits = hitsOf(text, search)
      const at = hits.length === 0 ? 0 : position % hits.length
      const parts = partsOf(text, hits, at)
      assert.equal(parts.map((part) => part.text).join(''), text)
      if (hits.length > 0) assert.ok(parts.some(({ hit }) => hit === at))
    }),
  )
  const many = 'a'.repeat(20_000)
  const hits = hitsOf(many, 'a')
  for (const at of [0, 10_000, 19_999]) {
    const parts = partsOf(many, hits, at)
    assert.ok(parts.filter(({ hit }) => hit !== null).length <= 400)
    assert.ok(parts.some(({ hit }) => hit === at))
    assert.equal(parts.map(({ text }) => text).join(''), many)
  }
})

test('the search steps from the last hit to the first, and back', () => {
  assert.deepEqual([stepOf(0, 3, 1), stepOf(2, 3, 1), stepOf(0, 3, -1), stepOf(0, 0, 1), stepOf(0, 0, -1)], [1, 0, 2, 0, 0])
})

test('the name of a host or a run cannot change the directory or the type of a download', () => {
  const name = (on: string | null, request_id: string): string => outputFileName({ on, request_id }, false)
  assert.equal(name('web1', '01890a5d-ac96'), 'x0x-web1-01890a5d-ac96.txt')
  assert.equal(outputFileName({ on: null, request_id: 'run_7' }, true), 'x0x-this-machine-run-7-end.txt')
  for (const bad of ['../../.bashrc', 'C:\\x', 'a\u202etxt.exe', '.profile', 'x.exe\0', 'CON', '~', '', '\n', '%2e%2e', 'a'.repeat(500)]) {
    const made = name(bad, bad)
    assert.match(made, /^x0x(-[A-Za-z0-9]+)*\.txt$/, JSON.stringify(made))
    assert.ok(made.length <= 124)
  }
})
