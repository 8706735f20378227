import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { firstMismatch, overlap } from '../../../src/policy/mesh/match.ts'
import { findMetacharacter, MAX_URL_PATH, parseToken, URL_PATH_SHAPE, type PatternToken } from '../../../src/protocol/argv-template.ts'

const SEED = 20_260_101

const tokensOf = (argv: readonly string[]): PatternToken[] =>
  argv.map((text) => {
    const token = parseToken(text)
    assert.ok(typeof token !== 'string', `${text}: ${String(token)}`)
    return token
  })

const matches = (pattern: readonly string[], argv: readonly string[]): boolean => firstMismatch(tokensOf(pattern), argv) === null

test('a literal matches only itself, byte for byte', () => {
  assert.ok(matches(['systemctl', 'status', 'x0xd'], ['systemctl', 'status', 'x0xd']))
  for (const token of ['x0xD', 'x0xd ', ' x0xd', 'x0xd\0', 'x0x', 'x0xdd', '', 'х0xd', 'x0xd\n'])
    assert.ok(!matches(['systemctl', 'status', 'x0xd'], ['systemctl', 'status', token]), JSON.stringify(token))
})

test('letters that look alike or compose to the same text are different', () => {
  assert.ok(!matches(['caf\u00e9'], ['cafe\u0301']))
  assert.ok(!matches(['a'], ['\u0430']))
})

test('<INT> matches 1 to 999999', () => {
  for (const text of ['1', '9', '10', '12345', '99999', '100000', '999999']) assert.ok(matches(['echo', '<INT>'], ['echo', text]), text)
})

test('<INT> matches no other text', () => {
  const others = [
    '0',
    '-1',
    '+1',
    '1e5',
    '1.0',
    '5`a',
    '5a',
    '',
    ' 1',
    '1 ',
    '01',
    '00',
    '1000000',
    '1\n',
    '0x1',
    '1_000',
    '١',
    '１',
    '<INT>',
  ]
  for (const text of others) assert.ok(!matches(['echo', '<INT>'], ['echo', text]), JSON.stringify(text))
})

test('<URL_PATH> matches a path of plain characters', () => {
  for (const text of ['/', '/health', '/foo/bar', '/a.b', '/a_b-c', '//', '/.', `/${'a'.repeat(256)}`])
    assert.ok(matches(['curl', '<URL_PATH>'], ['curl', text]), text)
})

test('<URL_PATH> matches no other text', () => {
  const others = [
    '',
    'health',
    '/..',
    '/../etc',
    '/a/../b',
    '/a..b',
    '/foo bar',
    '/foo;ls',
    '/a?b',
    '/a#b',
    '/%2e%2e',
    '/a\n',
    '/ä',
    '-/',
    '/a\\b',
  ]
  for (const text of [...others, `/${'a'.repeat(257)}`]) assert.ok(!matches(['curl', '<URL_PATH>'], ['curl', text]), JSON.stringify(text))
})

test('<URL_PATH> at the end of a token needs the exact prefix and a whole path', () => {
  const pattern = ['curl', 'http://127.0.0.1:12600<URL_PATH>']
  assert.ok(matches(pattern, ['curl', 'http://127.0.0.1:12600/health']))
  for (const text of [
    'http://127.0.0.1:12600',
    'http://127.0.0.1:12600health',
    'http://127.0.0.1:126000/health',
    'http://127.0.0.1:12600@evil.example/',
    'http://127.0.0.1:12600.evil.example/',
    'http://127.0.0.1:12601/health',
    'xhttp://127.0.0.1:12600/health',
    'http://127.0.0.1:12600/..',
    '/health',
  ])
    assert.ok(!matches(pattern, ['curl', text]), text)
})

test('a pattern matches only an argv of the same length', () => {
  assert.ok(!matches(['git', 'status'], ['git']))
  assert.ok(!matches(['git', 'status'], ['git', 'status', '--exec-path=/tmp']))
  assert.ok(!matches(['git', 'status'], []))
})

test('tokens that join to the same text are different', () => {
  const pattern = ['cat', '/var/log/messages']
  for (const argv of [
    ['cat /var/log/messages'],
    ['cat', '/var/log/', 'messages'],
    ['cat', '/var/log/messages', '/etc/shadow'],
    ['cat', '/var/log/messages /etc/shadow'],
    ['cat', '', '/var/log/messages'],
    ['cat', '/var/log/messages', ''],
  ])
    assert.ok(!matches(pattern, argv), JSON.stringify(argv))
  assert.ok(!matches(['a b', 'c'], ['a', 'b c']))
})

test('<INT> and <URL_PATH> are the only templates, and each is valid only in its place', () => {
  for (const [text, reason] of [
    ['<ANY>', /unknown template <ANY>/],
    ['<int>', /unknown template <int>/],
    ['<>', /unknown template <>/],
    ['< INT >', /unknown template/],
    ['a<ANY>b', /unknown template <ANY>/],
    ['<\n>', /unknown template/],
    ['-n<INT>', /<INT> must be the whole token/],
    ['<INT>s', /<INT> must be the whole token/],
    ['<INT><INT>', /<INT> must be the whole token/],
    ['<INT><URL_PATH>', /<INT> must be the whole token/],
    ['<<INT>>', /<INT> must be the whole token/],
    ['<URL_PATH>/x', /<URL_PATH> must be the whole token or its end/],
    ['<URL_PATH><URL_PATH>', /<URL_PATH> must be the whole token or its end/],
    ['<ANY><URL_PATH>', /unknown template <ANY>/],
  ] as const) {
    const token = parseToken(text)
    assert.ok(typeof token === 'string', text)
    assert.match(token, reason)
  }
})

test('an unpaired bracket is a literal', () => {
  assert.deepEqual(parseToken('a<b'), { kind: 'literal', text: 'a<b' })
  assert.deepEqual(parseToken('<INT'), { kind: 'literal', text: '<INT' })
  assert.deepEqual(parseToken('URL_PATH>'), { kind: 'literal', text: 'URL_PATH>' })
})

test('each metacharacter is found in any token, and no other character is one', () => {
  for (const character of [';', '|', '&', '>', '<', '`', '$', '\n', '\0'])
    assert.deepEqual(findMetacharacter(['a', `b${character}c`]), { token: 1, character })
  const plain = Array.from({ length: 0x100 }, (_, code) => String.fromCharCode(code)).filter((char) => !';|&><`$\n\0'.includes(char))
  assert.equal(plain.length, 0x100 - 9)
  assert.equal(findMetacharacter(plain), null)
})

test('the first mismatch is the first token that differs, or the end of the shorter side', () => {
  const tokens = tokensOf(['a', '<INT>', 'c'])
  assert.equal(firstMismatch(tokens, ['a', '5', 'c']), null)
  assert.equal(firstMismatch(tokens, ['x', 'y', 'z']), 0)
  assert.equal(firstMismatch(tokens, ['a', '0', 'c']), 1)
  assert.equal(firstMismatch(tokens, ['a', '5']), 2)
  assert.equal(firstMismatch(tokens, ['a', '5', 'c', 'd']), 3)
})

test('property: a template never matches a token that begins with a dash', () => {
  fc.assert(
    fc.property(fc.constantFrom('<INT>', '<URL_PATH>'), fc.string({ unit: 'binary' }), (template, rest) => {
      assert.ok(!matches(['tool', template], ['tool', `-${rest}`]))
    }),
    { seed: SEED, numRuns: 2_000 },
  )
})

test('property: a matching argv equals its pattern token by token, except for templates', () => {
  const piece = fc.constantFrom('a', 'b', '', '-', '/', '/a', '..', '1', '0', '12', '<INT>', '<URL_PATH>', 'p<URL_PATH>', 'p/', 'p/a', 'p')
  const isPattern = (text: string): boolean => typeof parseToken(text) !== 'string'
  let matched = 0
  fc.assert(
    fc.property(fc.array(piece.filter(isPattern), { maxLength: 4 }), fc.array(piece, { maxLength: 4 }), (pattern, argv) => {
      if (!matches(pattern, argv)) return
      matched += 1
      assert.equal(argv.length, pattern.length)
      for (const [at, text] of argv.entries()) {
        const expected = pattern[at] ?? ''
        if (expected === '<INT>') assert.ok(String(Number(text)) === text && Number(text) >= 1 && Number(text) <= 999_999)
        else if (expected.endsWith('<URL_PATH>')) assert.ok(text.startsWith(`${expected.slice(0, -10)}/`) && !text.includes('..'))
        else assert.equal(text, expected)
      }
    }),
    { seed: SEED, numRuns: 6_000 },
  )
  assert.ok(matched > 30, `only ${matched} of the cases matched`)
})

test('property: the regular expression of the JSON schema matches the same texts as <URL_PATH>', () => {
  const path = fc
    .array(fc.constantFrom('/', '.', '..', 'a', 'Z', '9', '_', '-', ' ', '\n', 'é', '?'), { maxLength: 8 })
    .map((parts) => `/${parts.join('')}`)
  const [token] = tokensOf(['<URL_PATH>'])
  const both = (text: string): void =>
    assert.equal(URL_PATH_SHAPE.test(text) && text.length <= MAX_URL_PATH, firstMismatch([token!], [text]) === null, JSON.stringify(text))
  fc.assert(fc.property(path, both), { seed: 20_261_126, numRuns: 5_000 })
  for (const text of ['', 'a', '//', '/.', '/..', '/a..b', '/.a.', `/${'a'.repeat(256)}`, `/${'a'.repeat(257)}`, `/${'.a'.repeat(128)}`])
    both(text)
})

test('two patterns overlap if some argv matches both', () => {
  const both = (one: string, other: string): boolean => overlap(tokensOf(['x', one]), tokensOf(['x', other]))
  const pairs: readonly (readonly [string, string, boolean])[] = [
    ['a', 'a', true],
    ['a', 'b', false],
    ['7', '<INT>', true],
    ['0', '<INT>', false],
    ['<INT>', '<INT>', true],
    ['<INT>', '<URL_PATH>', false],
    ['<INT>', '7<URL_PATH>', false],
    ['/a', '<URL_PATH>', true],
    ['a', '<URL_PATH>', false],
    ['p/a', 'p<URL_PATH>', true],
    ['<URL_PATH>', '<URL_PATH>', true],
    ['<URL_PATH>', '/a<URL_PATH>', true],
    ['<URL_PATH>', 'a<URL_PATH>', false],
    ['p<URL_PATH>', 'p/a<URL_PATH>', true],
    ['p<URL_PATH>', 'pa<URL_PATH>', false],
    ['p<URL_PATH>', 'p/..<URL_PATH>', false],
    ['p<URL_PATH>', 'p/é<URL_PATH>', false],
    ['p<URL_PATH>', `p/${'a'.repeat(MAX_URL_PATH - 2)}<URL_PATH>`, true],
    ['p<URL_PATH>', `p/${'a'.repeat(MAX_URL_PATH - 1)}<URL_PATH>`, false],
  ]
  for (const [one, other, expected] of pairs) {
    assert.equal(both(one, other), expected, `${one} ${other}`)
    assert.equal(both(other, one), expected, `${other} ${one}`)
  }
  assert.equal(overlap(tokensOf(['x']), tokensOf(['x', 'y'])), false)
})

test('property: two patterns that one argv matches overlap', () => {
  const part = fc.constantFrom(
    'a',
    '7',
    '/x',
    '/x/y',
    'p/x',
    'p/x/y',
    '<INT>',
    '<URL_PATH>',
    'p<URL_PATH>',
    '/x<URL_PATH>',
    'p/x<URL_PATH>',
  )
  const text = fc.constantFrom('a', '7', '/x', '/x/y', '/x/y/z', 'p/x', 'p/x/y', 'p/z')
  fc.assert(
    fc.property(fc.tuple(part, part), fc.tuple(part, part), fc.tuple(text, text), (one, other, argv) => {
      if (matches(one, argv) && matches(other, argv)) assert.ok(overlap(tokensOf(one), tokensOf(other)))
    }),
    { seed: SEED, numRuns: 2_000 },
  )
})
