import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { EscapeKeys } from '../../../../src/programs/x0x/terminal/escape-keys.ts'

/** The bytes that reach the program and the actions of x0x, for input cut at these positions. */
const typed = (bytes: Uint8Array, cuts: readonly number[] = []): { data: string; does: string[] } => {
  const keys = new EscapeKeys()
  const edges = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length]
  const all: Uint8Array[] = []
  const does: string[] = []
  for (const [at, end] of edges.slice(1).entries())
    for (let rest = bytes.subarray(edges[at], end); rest.length > 0;) {
      const found = keys.take(rest)
      all.push(found.data)
      if (found.does !== null) does.push(found.does)
      rest = found.rest
    }
  return { data: Buffer.concat(all).toString('latin1'), does }
}

const ofText = (text: string): { data: string; does: string[] } => typed(Buffer.from(text, 'latin1'))

test('a tilde after Enter starts an escape sequence for x0x', () => {
  assert.deepEqual(ofText('~.'), { data: '', does: ['end'] })
  assert.deepEqual(ofText('a\r~.'), { data: 'a\r', does: ['end'] })
  assert.deepEqual(ofText('a\n~?b'), { data: 'a\nb', does: ['help'] })
  assert.deepEqual(ofText('\r~~.'), { data: '\r~.', does: [] })
  assert.deepEqual(ofText('\r~x'), { data: '\r~x', does: [] })
  assert.deepEqual(ofText('\r~\r~.'), { data: '\r~\r', does: ['end'] })
  assert.deepEqual(ofText('\r~?~.'), { data: '\r', does: ['help', 'end'] })
})

test('a tilde elsewhere, and every other byte, goes to the program', () => {
  assert.deepEqual(ofText('a~.'), { data: 'a~.', does: [] })
  assert.deepEqual(ofText('\r ~.'), { data: '\r ~.', does: [] })
  const noTilde = fc.uint8Array({ maxLength: 40 }).map((bytes) => bytes.filter((byte) => byte !== 0x7e))
  fc.assert(fc.property(noTilde, (bytes) => assert.deepEqual(typed(bytes), { data: Buffer.from(bytes).toString('latin1'), does: [] })))
})

test('a tilde that waits for another key is sent at the end of input', () => {
  const keys = new EscapeKeys()
  assert.equal(Buffer.from(keys.take(Buffer.from('a\n~')).data).toString(), 'a\n')
  assert.equal(Buffer.from(keys.end()).toString(), '~')
  assert.equal(keys.end().length, 0)
})

test('the result does not depend on how the keys are cut', () => {
  const keys = fc.array(fc.constantFrom(0x7e, 0x0d, 0x0a, 0x2e, 0x3f, 0x61), { maxLength: 20 }).map((list) => Uint8Array.from(list))
  fc.assert(fc.property(keys, fc.array(fc.nat(), { maxLength: 6 }), (bytes, cuts) => assert.deepEqual(typed(bytes, cuts), typed(bytes))))
})
