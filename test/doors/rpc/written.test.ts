import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import fc from 'fast-check'

import { jsonText } from '../../../src/protocol/lines.ts'
import { Base64, written } from '../../../src/doors/rpc/message.ts'

const SEED = 20_261_122

const answer = (content: unknown, path = '/a', id: unknown = 1): object => ({
  jsonrpc: '2.0',
  id,
  result: { path, encoding: 'base64', content, truncated: true },
})

test('property: an answer with a file has the same text as an ordinary serialization', () => {
  const trap = fc.constantFrom('"content":"', '\\"content":"', '{"content":""}', '\u2028', '😀')
  const text = fc.oneof(fc.string({ unit: 'grapheme' }), trap)
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), text, text, (bytes, path, id) => {
      const said = String(written(answer(new Base64(bytes), path, id), '\n'))
      assert.equal(said, `${jsonText(answer(Buffer.from(bytes).toString('base64'), path, id))}\n`)
    }),
    { seed: SEED },
  )
})

test('a batch with a file, and a message without one, use the ordinary serialization', () => {
  const batch = [answer(new Base64(Buffer.from('ab'))), answer('text')]
  assert.equal(written(batch), jsonText([answer('YWI='), answer('text')]))
  for (const message of [{ jsonrpc: '2.0', id: 1, error: { code: -1 } }, { result: null }, { result: 'x' }, { method: 'm', params: {} }])
    assert.equal(written(message, '\n'), `${jsonText(message)}\n`)
})

test('serializing an answer does not process the characters of its file', (t) => {
  const stringify = t.mock.method(JSON, 'stringify')
  const size = 2 * 1024 * 1024
  const said = written(answer(new Base64(randomBytes(size))), '\n')
  const looked = stringify.mock.calls.reduce((sum, { result }) => sum + String(result).length, 0)
  assert.ok(said.length > (size * 4) / 3)
  assert.ok(looked < 200, `${looked} characters were looked at`)
})
