import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import {
  MAX_CONSOLE_STDIN,
  MAX_WHOAMI,
  readConsoleLine,
  refusalOf,
  whoamiProblem,
  type ConsoleMessage,
} from '../../src/protocol/console/messages.ts'
import { MAX_COMMAND_JSON } from '../../src/protocol/limits/daemon.ts'

const SEED = 20_261_123
const REQUEST = { whoami: 'Codex', dir: '/repo', envs: { CI: '1' }, exec: ['make', 'test'] }

const read = (value: unknown): ConsoleMessage => readConsoleLine(Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)))

const problemOf = (value: unknown): string => {
  const message = read(value)
  assert.ok(message.kind === 'bad', JSON.stringify(message))
  assert.ok(message.problem.length < 500, 'what was sent does not come back in full')
  return message.problem
}

test('requests with or without the newer fields are read, and missing fields get defaults', () => {
  const plain = { whoami: 'Codex', dir: '/repo', exec: ['make', 'test'], stdin: null, timeout_ms: null, clear_env: false }
  assert.deepEqual(read(REQUEST), { kind: 'request', request: { ...plain, envs: { CI: '1' } } })
  const { envs: _envs, ...without } = REQUEST
  assert.deepEqual(read(without), { kind: 'request', request: { ...plain, envs: {} } })
  assert.deepEqual(read({ ...REQUEST, stdin: '', timeout: 0.25, clear_env: true }), {
    kind: 'request',
    request: { ...plain, envs: { CI: '1' }, stdin: '', timeout_ms: 250, clear_env: true },
  })
  assert.deepEqual(read({ ...REQUEST, timeout: 0, stdin: null }), { kind: 'request', request: { ...plain, envs: { CI: '1' } } })
})

test('the actions ping, abort and attach are read', () => {
  assert.deepEqual(read({ action: 'ping' }), { kind: 'ping' })
  assert.deepEqual(read({ action: 'abort' }), { kind: 'abort' })
  assert.deepEqual(read({ action: 'attach' }), { kind: 'attach', ansi: false })
  assert.deepEqual(read({ action: 'attach', ansi: true }), { kind: 'attach', ansi: true })
})

for (const [what, value, problem] of [
  ['a line that is not JSON', 'echo hi', /not JSON/],
  ['a list', [REQUEST], /not an object/],
  ['null', null, /not an object/],
  ['no name', { ...REQUEST, whoami: ' ' }, /whoami/],
  ['a name with a line feed', { ...REQUEST, whoami: 'a\nb' }, /visible/],
  ['a name that is shown backwards', { ...REQUEST, whoami: 'a\u202eb' }, /visible/],
  ['a long name', { ...REQUEST, whoami: 'ü'.repeat(MAX_WHOAMI / 2 + 1) }, /66 bytes; the maximum is 64/],
  ['a relative directory', { ...REQUEST, dir: 'repo' }, /absolute/],
  ['a directory with NUL', { ...REQUEST, dir: '/a\0b' }, /absolute/],
  ['variables in a list', { ...REQUEST, envs: ['A=1'] }, /envs/],
  ['a variable without a name', { ...REQUEST, envs: { '': 'x' } }, /not a variable name/],
  ['a variable with = in its name', { ...REQUEST, envs: { 'A=B': 'x' } }, /not a variable name/],
  ['a variable whose value is not a text', { ...REQUEST, envs: { A: 1 } }, /must be a Unicode text/],
  ['a lone surrogate in a directory', { ...REQUEST, dir: '/a\ud800' }, /^dir: /],
  ['a lone surrogate in the name of a variable', { ...REQUEST, envs: { 'A\ud800': 'x' } }, /not a variable name/],
  ['a lone surrogate in the value of a variable', { ...REQUEST, envs: { A: '\ud800' } }, /"A" must be a Unicode text/],
  ['a lone surrogate in a word', { ...REQUEST, exec: ['a', '\ud800'] }, /every word must be a Unicode text/],
  ['a lone surrogate in stdin', { ...REQUEST, stdin: 'a\udc00b' }, /stdin: must be a Unicode text/],
  [
    'too many variables',
    { ...REQUEST, envs: Object.fromEntries(Array.from({ length: 1_025 }, (_one, at) => [`V${at}`, ''])) },
    /1025 variables/,
  ],
  ['no program', { ...REQUEST, exec: [] }, /exec/],
  ['a program without a name', { ...REQUEST, exec: [''] }, /program name is empty/],
  ['a word that is not a text', { ...REQUEST, exec: ['a', 1] }, /every word/],
  ['a word with NUL', { ...REQUEST, exec: ['a', 'b\0c'] }, /every word/],
  ['too much stdin', { ...REQUEST, stdin: 'x'.repeat(MAX_CONSOLE_STDIN + 1) }, /more than/],
  ['a negative time', { ...REQUEST, timeout: -1 }, /timeout/],
  ['an infinite time', '{"whoami":"a","dir":"/","exec":["a"],"timeout":1e999}', /timeout/],
  ['an unknown field', { ...REQUEST, sandbox: true }, /"sandbox" is not a field/],
  ['an unknown action', { action: 'exec' }, /action/],
  ['an action with another field', { action: 'ping', exec: ['x'] }, /"exec" is not a field/],
  ['a command with an action', { ...REQUEST, action: 'abort' }, /is not a field/],
] as const)
  test(`a request is refused: ${what}`, () => assert.match(problemOf(value), problem))

test('words and variable names that need more JSON than a log line allows are refused', () => {
  const empty = JSON.stringify([
    ['true', ''],
    ['CI', 'REXEC_WHOAMI'],
  ]).length
  const of = (word: string) => ({ ...REQUEST, exec: ['true', word] })
  assert.equal(read(of('x'.repeat(MAX_COMMAND_JSON - empty))).kind, 'request')
  const size = `${MAX_COMMAND_JSON + 1} bytes as JSON, including the names of envs; the maximum is ${MAX_COMMAND_JSON}; send long data by stdin`
  assert.ok(problemOf(of('x'.repeat(MAX_COMMAND_JSON - empty + 1))).endsWith(size))
  // Each of these invisible characters is written as an escape of six characters.
  const hidden = '\u202e'.repeat(Math.floor((MAX_COMMAND_JSON - empty) / 6))
  assert.equal(read(of(hidden)).kind, 'request')
  assert.match(problemOf(of(`${hidden}\u202e`)), /^exec: /)
})

test('a line that is not valid UTF-8 is refused', () => {
  assert.equal(readConsoleLine(Buffer.from([0x22, 0xff, 0x22])).kind, 'bad')
})

test('an error message does not repeat a long field name', () => {
  assert.ok(JSON.stringify(refusalOf(problemOf({ ...REQUEST, ['x'.repeat(100_000)]: 1 }))).length < 1_000)
})

const requests = fc.record({
  whoami: fc.string({ minLength: 1, maxLength: 16, unit: 'grapheme' }).filter((name) => whoamiProblem(name) === null),
  dir: fc.string({ maxLength: 40 }).map((text) => `/${text.replaceAll('\0', '')}`),
  envs: fc.dictionary(
    fc.stringMatching(/^[A-Za-z_]\w{0,9}$/),
    fc.string().map((text) => text.replaceAll('\0', '')),
    { noNullPrototype: true },
  ),
  exec: fc.array(
    fc.string({ minLength: 1 }).map((text) => `a${text.replaceAll('\0', '')}`),
    { minLength: 1, maxLength: 8 },
  ),
  stdin: fc.string(),
  timeout: fc.nat({ max: 604_800 }),
  clear_env: fc.boolean(),
})

test('property: every valid request is read unchanged', () => {
  fc.assert(
    fc.property(requests, (asked) => {
      const message = read(asked)
      assert.ok(message.kind === 'request', JSON.stringify(message))
      const { timeout_ms, ...same } = message.request
      const { timeout, ...rest } = asked
      assert.deepEqual(JSON.parse(JSON.stringify(same)), JSON.parse(JSON.stringify(rest)))
      assert.equal(timeout_ms, timeout === 0 ? null : timeout * 1000)
    }),
    { seed: SEED },
  )
})

test('property: the reader never throws, and every request that it accepts is valid', () => {
  const mutated = fc
    .tuple(requests, fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { maxLength: 6 }), fc.nat())
    .map(([asked, edits, cut]) => {
      const bytes = Buffer.from(JSON.stringify(asked))
      for (const [at, byte] of edits) bytes[at % bytes.length] = byte
      return cut % 3 === 0 ? bytes.subarray(0, cut % bytes.length) : bytes
    })
  const bytes = fc.oneof(
    mutated,
    fc.uint8Array({ maxLength: 200 }),
    fc.json().map((text) => Buffer.from(text)),
  )
  fc.assert(
    fc.property(bytes, (line) => {
      const message = readConsoleLine(line)
      if (message.kind === 'bad') return assert.ok(message.problem.length > 0 && message.problem.length < 500)
      if (message.kind !== 'request') return
      const { whoami, dir, envs, exec, stdin } = message.request
      assert.equal(whoamiProblem(whoami), null)
      assert.ok(dir.startsWith('/') && exec.length > 0 && exec[0] !== '')
      for (const text of [dir, ...exec, ...Object.entries(envs).flat()])
        assert.equal(typeof text === 'string' && text.includes('\0'), false)
      assert.ok(stdin === null || typeof stdin === 'string')
    }),
    { seed: SEED, numRuns: 2_000 },
  )
})
