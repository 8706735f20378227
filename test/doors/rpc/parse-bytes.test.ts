import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { parseFailure, parseMessage, tooManyValues, type RpcMessage } from '../../../src/doors/rpc/message.ts'
import { parseBytes } from '../../../src/doors/rpc/message.ts'
import { MAX_RPC_SHAPE } from '../../../src/protocol/limits/rexd.ts'

/** Long enough that the parser treats the content separately. */
const BASE64 = randomBytes(96 * 1024).toString('base64')
const PADDED = randomBytes(96 * 1024 + 1).toString('base64')

const lineOf = (params: string): string => `{"jsonrpc":"2.0","id":1,"method":"fs.write","params":{${params}}}`

const same = (text: string): RpcMessage => {
  const said = parseBytes(Buffer.from(text))
  assert.deepEqual(said, parseMessage(text), `${text.slice(0, 100)}…`)
  return said
}

const contentOf = ({ parts: [part] }: RpcMessage): unknown => (part !== undefined && 'params' in part ? part.params['content'] : undefined)

test('the fast parser reads base64 content as JSON.parse does, at any position in the params', () => {
  for (const content of [BASE64, PADDED, `${BASE64}AA==`])
    for (const text of [
      lineOf(`"path":"f","content":"${content}","encoding":"base64"`),
      lineOf(`"content":"${content}"`),
      lineOf(`"path":"ä\\"\\\\","content":"${content}","__proto__":{"x":1}`),
      lineOf(`"path":"f","content":"${content}"`).replace('"id":1,', ''),
      ` \t${lineOf(`"content":"${content}" , "encoding" : "utf8"`)}\r`,
    ])
      assert.equal(contentOf(same(text)), content)
})

test('content that only resembles base64 gives the same result as parsing the whole message', () => {
  const escaped = `${BASE64}\\u0041AAA`
  for (const text of [
    lineOf(`"content":"${escaped}"`),
    lineOf(`"content":"${BASE64}\\n"`),
    lineOf(`"content":"${BASE64}\t"`),
    lineOf(`"content":"${BASE64}ä"`),
    lineOf(`"content":"${BASE64.replaceAll('A', '-')}-"`),
    lineOf(`"content":"${BASE64}A"`),
    lineOf(`"content" : "${BASE64}"`),
    lineOf(`"content":"","path":"${BASE64}"`),
    lineOf(`"path":"\\"content\\":\\"","content":"${BASE64}"`),
    lineOf(`"path":"x\\\\","content":"${BASE64}"`),
    lineOf(`"content":"${BASE64}","content":"other"`),
    lineOf(`"content":"other","content":"${BASE64}"`),
    lineOf(`"content":"${BASE64}","\\u0063ontent":"other"`),
    lineOf(`"env":{"content":"${BASE64}"}`),
    lineOf(`"env":{"content":"${BASE64}"},"content":"x"`),
    `{"content":"${BASE64}",${lineOf('"path":"f"').slice(1)}`,
    `[${lineOf(`"content":"${BASE64}"`)},${lineOf('"content":"x"')}]`,
    `[${lineOf(`"content":"${BASE64}"`)}]`,
    `"content":"${BASE64}"`,
    `{"content":"${BASE64}"}`,
    `{"x":"content":"${BASE64}"}`,
    `"\\"content":"${BASE64}"`,
    lineOf(`"content":"${BASE64}"`).slice(0, -1),
    lineOf(`"content":"${BASE64}`),
    `${lineOf(`"content":"${BASE64}"`)}}`,
    `{"jsonrpc":"1.0","id":1,"method":"fs.write","params":{"content":"${BASE64}"}}`,
    `{"jsonrpc":"2.0","id":{},"method":"fs.write","params":{"content":"${BASE64}"}}`,
    `{"jsonrpc":"2.0","id":1,"method":"fs.write","params":[{"content":"${BASE64}"}]}`,
  ])
    same(text)
})

test('invalid UTF-8 before, inside or after the content is refused', () => {
  const text = Buffer.from(lineOf(`"path":"x","content":"${BASE64}","mode":"x"`))
  for (const at of [text.indexOf('path'), text.indexOf(BASE64) + 5, text.indexOf('mode')]) {
    const broken = Buffer.from(text)
    broken[at] = 0xff
    assert.deepEqual(parseBytes(broken), parseFailure('not valid UTF-8'))
  }
  for (const blank of ['', ' \t\r', ' '.repeat(128 * 1024)]) same(blank)
})

test('a message with more values than the limit is refused before it is parsed, also with a file', () => {
  const { values, depth } = MAX_RPC_SHAPE
  const ones = (count: number): string => `"argv":[${Array.from({ length: count }, () => 1).join()}]`
  // The count also includes the request, its params, their list and four commas of the message.
  for (const text of [lineOf(ones(values - 6)), lineOf(`"text":"${',[{'.repeat(values)}"`)]) same(text)
  const deep = `"x":${'['.repeat(depth)}${']'.repeat(depth)}`
  for (const params of [ones(values + 1), ones(2_000_000), deep, `"content":"${BASE64}",${ones(values + 1)}`])
    assert.deepEqual(parseBytes(Buffer.from(lineOf(params))), tooManyValues(MAX_RPC_SHAPE))
  for (const text of ['['.repeat(values), lineOf(deep).slice(0, -1)])
    assert.match(JSON.stringify(parseBytes(Buffer.from(text))), /-32700.*not valid JSON/)
  assert.deepEqual(parseBytes(Buffer.from('['.repeat(values + 1))), tooManyValues(MAX_RPC_SHAPE))
})
