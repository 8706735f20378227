import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { fromBase64, toBase64 } from '../../src/protocol/text.ts'

const written = (text: string): boolean => Buffer.from(text, 'base64').toString('base64') === text

test('base64 is accepted only in its canonical form', () => {
  const odd = [
    '',
    '=',
    '==',
    '====',
    'A',
    'AA',
    'AAA',
    'AAAA',
    'AA==',
    'AB==',
    'AAA=',
    'AAB=',
    'AA =',
    'AA AAAA=',
    ' AAA',
    'AA==AAAA',
    'AA-_',
    'A===',
    'AAAA=',
    'é===',
    'AAAA\n',
  ]
  for (const text of odd) assert.equal(fromBase64(text) !== null, written(text), JSON.stringify(text))
  const texts = fc.array(fc.constantFrom('A', 'B', 'Q', 'g', '+', '/', '=', '-', '_', ' ', '\n', 'é', '\0'), { maxLength: 12 })
  fc.assert(fc.property(texts, (parts) => (fromBase64(parts.join('')) !== null) === written(parts.join(''))))
  fc.assert(fc.property(fc.uint8Array({ maxLength: 9 }), (bytes) => fromBase64(toBase64(bytes))!.equals(bytes)))
})
