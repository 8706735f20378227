import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { bodyLines, decodeBase64, parseJson, MAX_NDJSON_LINE } from '../../../src/doors/rest/event-stream.ts'

/** Cuts the bytes into pieces that can end anywhere, also inside a character. */
const cut = (bytes: Uint8Array, at: readonly number[]): Uint8Array[] => {
  const ends = [...new Set(at.map((number) => number % (bytes.length + 1)))].toSorted((a, b) => a - b)
  return [0, ...ends].map((start, index) => bytes.subarray(start, ends[index] ?? bytes.length))
}

async function* from(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks
}

test('lines are read whole, wherever the chunks end', async () => {
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

test('a body with more values than the limit is refused before it is parsed', () => {
  const words = (count: number): Buffer => Buffer.from(`{"argv":[${'"a",'.repeat(count - 1)}"a"]}`)
  assert.equal((parseJson(words(8_000)) as { argv: string[] }).argv.length, 8_000)
  assert.equal((parseJson(Buffer.from(`{"stdin_b64":"${',[{'.repeat(1_000_000)}"}`)) as { stdin_b64: string }).stdin_b64.length, 3_000_000)
  const before = process.cpuUsage()
  for (const bytes of [words(20_000_000), Buffer.alloc(50_000_000, '['), Buffer.from('{"a":'.repeat(33))])
    assert.throws(() => parseJson(bytes), { code: 'bad_request', message: /^the body has more than 8192 values/ })
  // Parsing and checking the first body alone would block the daemon for five seconds.
  assert.ok(process.cpuUsage(before).user < 2_000_000)
})

test('a line of exactly the limit is read, and a longer one is refused', async () => {
  const body = bodyLines(
    from([Buffer.alloc(MAX_NDJSON_LINE, 0x78), Buffer.from('\n'), Buffer.alloc(MAX_NDJSON_LINE, 0x78), Buffer.from('x')]),
  )
  assert.equal((await body.next()).value?.length, MAX_NDJSON_LINE)
  await assert.rejects(body.next(), { code: 'too_large' })
})

test('only canonical base64 is accepted', () => {
  assert.deepEqual(Buffer.from(decodeBase64('AAE=', 'k')), Buffer.from([0, 1]))
  assert.equal(decodeBase64('', 'k').length, 0)
  for (const text of ['AAE', 'AAF=', 'AA E=', 'AAE=\n', 'AA-_', '=', 'AAE==', 'ä']) {
    assert.throws(() => decodeBase64(text, 'stdin_b64'), { code: 'bad_request', message: 'stdin_b64: not base64' }, text)
  }
})
