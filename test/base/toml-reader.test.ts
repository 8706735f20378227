import assert from 'node:assert/strict'
import { test } from 'node:test'

import { parseToml } from '../../src/base/toml.ts'
import { deepFreeze, nameOf, TomlReader } from '../../src/base/toml.ts'

const readerOf = (text: string): { toml: TomlReader; value: Record<string, unknown> } => {
  const document = parseToml(text, 'a.toml', 'bad_config', { bigints: true })
  return { toml: new TomlReader(document, 'bad_config'), value: document.value }
}

/** The result of a reader for the value of one key, and its problems. */
const readOne = <T>(literal: string, read: (toml: TomlReader, value: unknown) => T): { value: T; problems: readonly string[] } => {
  const { toml, value } = readerOf(`key = ${literal}\n`)
  return { value: read(toml, value['key']), problems: toml.problems }
}

/** Asserts that the literal is refused with one problem, which names its place. */
const refuses = <T>(literal: string, read: (toml: TomlReader, value: unknown) => T, reason: RegExp): void => {
  const { value, problems } = readOne(literal, read)
  assert.equal(value, null, literal)
  assert.equal(problems.length, 1, `${literal}: ${problems.join('; ')}`)
  assert.ok(problems[0]?.startsWith('a.toml:1: key: '), problems[0])
  assert.match(problems[0] ?? '', reason)
}

const boolean = (toml: TomlReader, value: unknown) => toml.boolean(['key'], value)
const whole = (toml: TomlReader, value: unknown) => toml.wholeNumber(['key'], value, 1, 10)
const text = (toml: TomlReader, value: unknown) => toml.text(['key'], value)
const path = (toml: TomlReader, value: unknown) => toml.absolutePath(['key'], value)
const strings = (toml: TomlReader, value: unknown) => toml.strings(['key'], value)

/** One value of each type in TOML. */
const VALUES = [
  'true',
  '5',
  '4.0',
  '0.5',
  'inf',
  'nan',
  '"text"',
  '["a"]',
  '[1]',
  '{ a = 1 }',
  '2026-01-01',
  '2026-01-01T00:00:00Z',
  '12:00:00',
]
const except = (...right: string[]): string[] => VALUES.filter((literal) => !right.includes(literal))

test('a value of the right type is read, and an absent value is null without a problem', () => {
  assert.deepEqual(readOne('true', boolean), { value: true, problems: [] })
  assert.deepEqual(readOne('false', boolean), { value: false, problems: [] })
  assert.deepEqual(readOne('5', whole), { value: 5, problems: [] })
  assert.deepEqual(readOne('" a b "', text), { value: ' a b ', problems: [] })
  assert.deepEqual(readOne('"/srv/app"', path), { value: '/srv/app', problems: [] })
  assert.deepEqual(readOne('["", "b\\n"]', strings), { value: ['', 'b\n'], problems: [] })
  assert.deepEqual(readOne('[]', strings), { value: [], problems: [] })
  const { toml } = readerOf('')
  for (const read of [boolean, whole, text, path, strings]) assert.equal(read(toml, undefined), null)
  assert.deepEqual(toml.tables(['key'], undefined), [])
  assert.deepEqual(toml.problems, [])
})

test('a value of every other type is refused', () => {
  for (const literal of except('true')) refuses(literal, boolean, /must be true or false, not /)
  for (const literal of except('5')) refuses(literal, whole, /must be a whole number from 1 to 10, not /)
  for (const literal of except('"text"')) refuses(literal, text, /must be a string, not /)
  for (const literal of except('"text"')) refuses(literal, path, /must be a string, not /)
  for (const literal of except('["a"]')) refuses(literal, strings, /must be a list of strings, not /)
})

test('a whole number must be within its bounds, and a float is refused even if it has no fraction', () => {
  for (const literal of ['1', '10', '0x0a', '0b1', '+7', '1_0']) assert.deepEqual(readOne(literal, whole).problems, [], literal)
  for (const literal of ['0', '-1', '11', '9007199254740993', '-9223372036854775808']) refuses(literal, whole, /not -?\d+$/)
  refuses('4.0', whole, /not 4\.0$/)
  refuses('4.5', whole, /not 4\.5$/)
  refuses('"4"', whole, /not "4"$/)
  const large = (toml: TomlReader, value: unknown) => toml.wholeNumber(['key'], value, 0, Number.MAX_SAFE_INTEGER)
  assert.equal(readOne('9007199254740991', large).value, Number.MAX_SAFE_INTEGER)
  refuses('9007199254740992', large, /must be a whole number/)
})

test('an empty text and a text with a control character are refused, without showing the character', () => {
  refuses('""', text, /is empty$/)
  for (const character of ['\\u0000', '\\n', '\\t', '\\u001b[31m', '\\u007f', '\\u009b'])
    refuses(`"a${character}b"`, text, /contains a control or invisible character$/)
  assert.equal(readOne('"grüße 🙂"', text).value, 'grüße 🙂')
})

test('a path that is not absolute is refused and not returned', () => {
  for (const literal of ['"srv/app"', '"./srv"', '"../srv"', '"~/srv"', '"."'])
    refuses(literal, path, /^a\.toml:1: key: ".*" must be an absolute path$/)
})

test('an array of tables must be written as [[a.b]]', () => {
  const { toml, value } = readerOf('[[a.b]]\nc = 1\n[[a.b]]\nc = 2\n')
  const table = toml.table(['a'], value['a'], ['b'])
  assert.equal(toml.tables(['a', 'b'], table?.['b']).length, 2)
  assert.deepEqual(toml.problems, [])
  for (const literal of ['true', '5', '"text"', '{ c = 1 }']) {
    const { toml, value } = readerOf(`[a]\nb = ${literal}\n`)
    assert.deepEqual(toml.tables(['a', 'b'], (value['a'] as Record<string, unknown>)['b']), [])
    assert.deepEqual(toml.problems, ['a.toml:2: a.b: must be written [[a.b]]'])
  }
})

test('a table must be a table, and may have known keys only', () => {
  const { toml, value } = readerOf('[a]\nb = 1\nx = 2\n"y z" = 3\n')
  assert.deepEqual({ ...toml.table(['a'], value['a'], ['b', 'c']) }, { b: 1n, x: 2n, 'y z': 3n })
  assert.deepEqual(toml.problems, ['a.toml:3: a.x: unknown key. Did you mean b?', 'a.toml:4: a.y z: unknown key; known keys: b, c'])
  for (const literal of except('{ a = 1 }')) {
    const { toml, value } = readerOf(`a = ${literal}\n`)
    assert.equal(toml.table(['a'], value['a'], ['b']), null)
    assert.equal(toml.problems.length, 1, literal)
    assert.match(toml.problems[0] ?? '', /^a\.toml:1: a: must be a table, not /)
  }
})

test('names that every object has are unknown keys like any other', () => {
  for (const key of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
    const { toml, value } = readerOf(`[a]\n${key} = { b = true }\n`)
    const table = toml.table(['a'], value['a'], ['b'])
    assert.equal(table?.['b'], undefined)
    assert.deepEqual(toml.problems, [`a.toml:2: a.${key}: unknown key; known keys: b`])
  }
})

test('all problems and warnings are kept in order, each with its file, line and key', () => {
  const { toml } = readerOf('# ours\n\n[a]\nb = [\n  "x",\n  "y",\n]\n[[c.d]]\n[[c.d]]\ne = 1\n')
  toml.problem(['a', 'b', 1], 'is wrong')
  toml.warning(['c', 'd', 1, 'e'], 'is odd')
  toml.problem(['c', 'd', 1, 'missing'], 'is required')
  toml.problem(['nowhere'], 'is required')
  toml.problem([], 'is wrong as a whole')
  assert.deepEqual(toml.problems, [
    'a.toml:6: a.b[1]: is wrong',
    'a.toml:9: c.d[1].missing: is required',
    'a.toml:1: nowhere: is required',
    'a.toml:1: is wrong as a whole',
  ])
  assert.deepEqual(toml.warnings, ['a.toml:10: c.d[1].e: is odd'])
})

test('a value is shown as the operator wrote it, and shortened if it is long', () => {
  const names: [unknown, string][] = [
    ['a\n"b"', '"a\\n\\"b\\""'],
    ['x'.repeat(81), `"${'x'.repeat(80)}…"`],
    [['a'], 'a list'],
    [{ a: 1 }, 'a table'],
    [new Date(0), 'a date'],
    [5n, '5'],
    [5, '5.0'],
    [0.25, '0.25'],
    [Number.POSITIVE_INFINITY, 'Infinity'],
    [true, 'true'],
  ]
  for (const [value, name] of names) assert.equal(nameOf(value), name)
})

test('deepFreeze also freezes nested values', () => {
  const value = deepFreeze({ a: [{ b: [1] }], c: null, d: 'x' })
  for (const part of [value, value.a, value.a[0], value.a[0]?.b]) assert.ok(Object.isFrozen(part))
  assert.throws(() => value.a[0]?.b.push(2), TypeError)
})
