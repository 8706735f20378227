import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { globOf, GlobWork, MAX_GLOB_PATTERN } from '../../src/fs/glob.ts'
import { MAX_GLOB_EXPANDED } from '../../src/fs/glob.ts'
import { isAppError } from '../../src/base/errors.ts'
import { alone } from '../support/files.ts'

const WORK = new GlobWork({ share: alone() }, { max: Infinity })

/** True if a path matches. It goes from directory to directory as a search does. A slash at the end marks a directory. */
const fits = async (pattern: string, path: string): Promise<boolean> => {
  const names = path.split('/')
  const isDirectory = names.at(-1) === '' && names.pop() === ''
  let position = globOf(pattern)
  assert.notEqual(position, null)
  for (const name of names.slice(0, -1)) position = position && (await position.below(name, WORK))
  return (await position?.fits(names.at(-1)!, isDirectory, WORK)) ?? false
}

const CASES: Readonly<Record<string, { yes: string; no: string }>> = {
  a: { yes: 'a a/', no: 'b aa A a/b .a' },
  'a/b': { yes: 'a/b', no: 'a b a/b/c x/a/b' },
  './a//b/.': { yes: 'a/b', no: 'a b' },
  '*': { yes: 'a abc a.b ümlaut 日本 💚', no: '.a a/b' },
  '*.ts': { yes: 'a.ts a.b.ts ts.ts', no: '.ts a.tsx a/b.ts ats' },
  '.*': { yes: '.a .a.b', no: 'a' },
  '*a*b*': { yes: 'ab xaxbx aabb abab', no: 'ba a b' },
  '?': { yes: 'a ü 💚', no: '. ab a/b' },
  'a?c': { yes: 'abc a.c', no: 'ac abbc' },
  '?a': { yes: 'aa', no: '.a' },
  '[ab]c': { yes: 'ac bc', no: 'cc c abc' },
  '[a-c]': { yes: 'a b c', no: 'd - B' },
  '[!a-c]': { yes: 'd - 💚', no: 'a b c .' },
  '[^a]x': { yes: 'bx', no: 'ax .x' },
  '[]a]': { yes: '] a', no: 'b' },
  '[!]a]': { yes: 'b', no: '] a' },
  '[a-]': { yes: 'a -', no: 'b' },
  '[\\]a]': { yes: '] a', no: 'b \\ \\a]' },
  '[a\\-c]': { yes: 'a - c', no: 'b \\' },
  '[!\\!]': { yes: 'a \\', no: '!' },
  '[a\\]': { yes: '[a]', no: 'a ]' },
  '[.]a': { yes: '', no: '.a' },
  '[💚-💜]': { yes: '💚 💛', no: '💙x a' },
  '[a': { yes: '[a', no: 'a [' },
  'a[]': { yes: 'a[]', no: 'a' },
  '**': { yes: 'a a/ a/b a/b/c', no: '.a a/.b .a/b' },
  '**/a': { yes: 'a b/a b/c/a', no: 'b a/b .b/a b/.c/a ba' },
  'a/**': { yes: 'a/b a/b/c', no: 'a a/.b b/a' },
  'a/**/b': { yes: 'a/b a/x/b a/x/y/b', no: 'a/xb ab a/.x/b b' },
  '**/a/**/b': { yes: 'a/b x/a/b a/x/b x/a/y/b a/a/b', no: 'b a x/b' },
  '**/**/a': { yes: 'a b/a', no: 'ab' },
  '**/*.{ts,js}': { yes: 'a.ts b/c.js', no: 'a.rs .a.ts' },
  '**/.a': { yes: '.a b/.a', no: 'a .b/.a' },
  '.a/**/b': { yes: '.a/b .a/c/b', no: 'a/b' },
  'a**b': { yes: 'ab axb', no: 'a/b' },
  '*/': { yes: 'a/', no: 'a a/b/ .a/' },
  'a/**/': { yes: 'a/b/ a/b/c/', no: 'a/ a/b' },
  '{a,b}/c': { yes: 'a/c b/c', no: 'c a {a,b}/c' },
  '{a/b,c}/*': { yes: 'a/b/x c/x', no: 'a/x a/b' },
  '{a,b{c,d}}e': { yes: 'ae bce bde', no: 'be abce' },
  '{a}{b,}': { yes: '{a}b {a}', no: 'a ab' },
  'x{,y}': { yes: 'x xy', no: 'y' },
  'a{b,c': { yes: 'a{b,c', no: 'ab ac' },
  'a}b': { yes: 'a}b', no: 'ab' },
  '{a,{b}': { yes: '{a,{b}', no: 'a b' },
  '{**/a,b}/c': { yes: 'a/c x/a/c b/c', no: 'x/b/c' },
  '\\*': { yes: '*', no: 'a \\*' },
  '\\{a,b\\}': { yes: '{a,b}', no: 'a b' },
  '{a\\,b,c}': { yes: 'a,b c', no: 'a b' },
  'a\\': { yes: 'a\\', no: 'a' },
  '\\.a': { yes: '.a', no: 'a' },
  'a.b+c(d)|^$': { yes: 'a.b+c(d)|^$', no: 'axb' },
  '...': { yes: '...', no: '..x' },
}

for (const [pattern, { yes, no }] of Object.entries(CASES)) {
  test(`the pattern ${pattern} matches exactly the expected paths`, async () => {
    for (const path of yes.split(' ').filter(Boolean)) assert.equal(await fits(pattern, path), true, path)
    for (const path of no.split(' ').filter(Boolean)) assert.equal(await fits(pattern, path), false, path)
  })
}

test('a pattern that could lead outside its directory is rejected', () => {
  for (const pattern of [
    '/',
    '/etc/*',
    '..',
    '../a',
    'a/../b',
    'a/..',
    '{a,..}/b',
    '{/etc,a}',
    '\\../a',
    '.\\./a',
    '**/../a',
    '/{a,b}',
    '{,a}/b',
  ])
    assert.equal(globOf(pattern), null, pattern)
  for (const pattern of ['a..b', '..a', 'a/...', 'a/\\/b']) assert.notEqual(globOf(pattern), null, pattern)
})

const fails = (pattern: string, code: 'bad_request' | 'resource_limit'): void =>
  assert.throws(
    () => globOf(pattern),
    (error) => isAppError(error, code),
  )

test('a pattern without any name is refused', () => {
  for (const pattern of ['', '.', './', '{,}', '{.,./}']) fails(pattern, 'bad_request')
})

test('a pattern is refused if it is longer than the limit, before or after its braces are expanded', async () => {
  assert.notEqual(globOf('a'.repeat(MAX_GLOB_PATTERN)), null)
  fails('a'.repeat(MAX_GLOB_PATTERN + 1), 'resource_limit')
  // There are 2^n alternatives of n characters, with a separator. 2^10 * 11 is within the limit, and 2^11 * 12 is not.
  assert.ok(2 ** 10 * 11 <= MAX_GLOB_EXPANDED && 2 ** 11 * 12 > MAX_GLOB_EXPANDED)
  assert.equal(await fits('{a,b}'.repeat(10), 'abababbbaa'), true)
  fails('{a,b}'.repeat(11), 'resource_limit')
  fails('{a,b}'.repeat(200), 'resource_limit')
  fails('{,}'.repeat(300), 'resource_limit')
  fails(`${'{a,'.repeat(30)}${'{b,c}'.repeat(40)}${'}'.repeat(30)}`, 'resource_limit')
})

test('no pattern takes exponential time to compare', async () => {
  // A comparison that tries every way to divide the name would never end with these patterns.
  const name = 'a'.repeat(255)
  for (const pattern of ['*a'.repeat(500) + 'b', '**/'.repeat(300) + 'b', '*?'.repeat(500), '[!b]*'.repeat(200) + 'b'])
    assert.equal(await fits(pattern, name), false)
  assert.equal(await fits('**/'.repeat(300) + 'b', `${'a/'.repeat(60)}b`), true)
  assert.equal(await fits('{'.repeat(1_024), 'x'), false)
  assert.equal(await fits('{a,'.repeat(341), 'x'), false)
})

/** The pattern as a regular expression. */
const asExpression = (pattern: string): RegExp =>
  new RegExp(
    `^${pattern
      .replaceAll('*', '[^/]*')
      .replaceAll('?', '[^/]')
      .replace(/^(?=\[\^\/\])/, '(?!\\.)')}$`,
    'u',
  )

test('stars and question marks match the same names as the regular expression', async () => {
  const pattern = fc.string({ unit: fc.constantFrom('a', 'b', '*', '?'), minLength: 1, maxLength: 8 })
  const name = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 1, maxLength: 8 })
  await fc.assert(
    fc.asyncProperty(pattern, name, async (pattern, name) => {
      if (pattern === '**') return
      assert.equal(await fits(pattern, name), asExpression(pattern).test(name))
    }),
    { seed: 7, numRuns: 3_000 },
  )
})

test('any text is a valid pattern, or is rejected with a known error', async () => {
  const unit = fc.constantFrom('a', '.', '/', '*', '?', '[', ']', '!', '-', '{', '}', ',', '\\', '💚')
  await fc.assert(
    fc.asyncProperty(
      fc.string({ unit, maxLength: 40 }),
      fc.string({ unit: fc.constantFrom('a', '.', '💚'), minLength: 1, maxLength: 5 }),
      async (text, name) => {
        try {
          const position = globOf(text)
          await position?.fits(name, true, WORK)
          await (await position?.below(name, WORK))?.fits(name, false, WORK)
        } catch (error) {
          assert.ok(isAppError(error, 'bad_request') || isAppError(error, 'resource_limit'), String(error))
        }
      },
    ),
    { seed: 11, numRuns: 5_000 },
  )
})
