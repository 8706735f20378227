import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { bodyLines, decodeBase64, LineSplitter, parseJson } from '../../../src/doors/rest/ndjson.ts'
import { MAX_NDJSON_LINE } from '../../../src/protocol/local-limits.ts'

/** The bytes in pieces that end anywhere, also inside a character. */
const cut = (bytes: Uint8Array, at: readonly number[]): Uint8Array[] => {
  const ends = [...new Set(at.map((number) => number % (bytes.length + 1)))].toSorted((a, b) => a - b)
  return [0, ...ends].map((start, index) => bytes.subarray(start, ends[index] ?? bytes.length))
}

async function* from(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks
}

test('lines come out whole wherever the chunks end', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.jsonValue(), { maxLength: 12 }),
      fc.array(fc.nat(), { maxLength: 20 }),
      fc.boolean(),
      async (values, at, ended) => {
        const text = values.map((value) => JSON.stringify(value)).join('\r\n\n') + (ended ? '\n' : '')
        const read: unknown[] = []
        for await (const line of bodyLines(from(cut(Buffer.from(text), at)))) read.push(parseJson(line))
        assert.deepEqual(read, JSON.parse(JSON.stringify(values)))
      },
    ),
  )
})

test('the splitter loses and adds no byte', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.array(fc.nat(), { maxLength: 10 }), (bytes, at) => {
      const splitter = new LineSplitter()
      const lines: Uint8Array[] = []
      for (const chunk of cut(bytes, at)) lines.push(...splitter.push(chunk))
      lines.push(splitter.rest())
      const joined = Buffer.concat(lines.flatMap((line, index) => (index === 0 ? [line] : [Buffer.from('\n'), line])))
      assert.deepEqual(joined, Buffer.from(bytes))
    }),
  )
})

test('a line may be as long as the limit and no longer', () => {
  const fits = new LineSplitter()
  assert.equal([...fits.push(Buffer.alloc(MAX_NDJSON_LINE, 0x20)), ...fits.push(Buffer.from('\n'))][0]?.length, MAX_NDJSON_LINE)
  const over = new LineSplitter()
  assert.deepEqual([...over.push(Buffer.alloc(MAX_NDJSON_LINE, 0x20))], [])
  assert.throws(() => [...over.push(Buffer.from(' '))], { code: 'too_large' })
})

test('only canonical base64 is read', () => {
  assert.deepEqual(Buffer.from(decodeBase64('AAE=', 'k')), Buffer.from([0, 1]))
  assert.equal(decodeBase64('', 'k').length, 0)
  for (const text of ['AAE', 'AAF=', 'AA E=', 'AAE=\n', 'AA-_', '=', 'AAE==', 'ä']) {
    assert.throws(() => decodeBase64(text, 'stdin_b64'), { code: 'bad_request', message: 'stdin_b64: not base64' }, text)
  }
})
