import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { matchesPath, MAX_PATTERN_LENGTH, parsePathPattern } from '../../../src/policy/approval/path-pattern.ts'
import { patient } from '../../support/wait-limits.ts'

const fits = (text: string, path: string): boolean => {
  const pattern = parsePathPattern(text, '/home/me')
  assert.ok(typeof pattern !== 'string', String(pattern))
  return matchesPath(pattern, path)
}

test('* and ? stop at a slash, ** crosses slashes, and ~ is the home directory', () => {
  for (const [text, path] of [
    ['/usr/bin/git', '/usr/bin/git'],
    ['/usr/bin/*', '/usr/bin/git'],
    ['/usr/bin/gi?', '/usr/bin/git'],
    ['/usr/**/git', '/usr/git'],
    ['/usr/**/git', '/usr/lib/x/git'],
    ['/usr/**', '/usr/lib/x/git'],
    ['/**/git', '/opt/git'],
    ['~/bin/*', '/home/me/bin/tool'],
    ['/a/*b*c', '/a/xbxbxc'],
    ['/a/?', '/a/💡'],
    ['/a/[x]{y}\\', '/a/[x]{y}\\'],
  ] as const)
    assert.ok(fits(text, path), `${text} ${path}`)
  for (const [text, path] of [
    ['/usr/bin/*', '/usr/bin/x/git'],
    ['/usr/bin/*', '/usr/bin'],
    ['/usr/?bin', '/usr//bin'],
    ['/usr/bin/git', '/usr/bin/git2'],
    ['/usr/bin/GIT', '/usr/bin/git'],
    ['~/bin/*', '/home/you/bin/tool'],
    ['/usr/**/git', '/usr/lib/gita'],
    ['/a/[x]', '/a/x'],
    ['/**', '/'],
    ['/usr/**', '/usr/../etc/passwd'],
    ['/usr/**', 'usr/bin/git'],
  ] as const)
    assert.ok(!fits(text, path), `${text} ${path}`)
})

test('B12: a pattern must be an absolute path, and matches no program of that name elsewhere', () => {
  for (const text of [
    'git',
    './git',
    '',
    'usr/bin/git',
    '~',
    '~you/git',
    '/a//b',
    '/a/./b',
    '/a/../b',
    '/a/',
    '/a**',
    '/a/**b',
    '/a\0b',
    `/${'a'.repeat(MAX_PATTERN_LENGTH)}`,
  ])
    assert.equal(typeof parsePathPattern(text, '/home/me'), 'string', JSON.stringify(text))
  assert.ok(!fits('/usr/bin/skill-bin', '/srv/skill-bin'))
})

/** The meaning of a pattern, as a regular expression of the runtime. */
const asRegExp = (text: string): RegExp => {
  const parts = text.split('/').slice(1)
  const body = parts
    .map((part) =>
      part === '**'
        ? '(?:/[^/]+)*'
        : `/${[...part].map((one) => (one === '*' ? '[^/]*' : one === '?' ? '[^/]' : one.replace(/[.[\]{}\\^$|()+-]/g, '\\$&'))).join('')}`,
    )
    .join('')
  return new RegExp(`^${body}$`, 'u')
}

test('property: a pattern matches a path exactly if its regular expression matches', () => {
  const part = fc.oneof(
    fc.constant('**'),
    fc.string({ unit: fc.constantFrom('a', 'b', '*', '?'), minLength: 1, maxLength: 4 }).filter((one) => !one.includes('**')),
  )
  const name = fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 4 })
  let fitted = 0
  fc.assert(
    fc.property(fc.array(part, { minLength: 1, maxLength: 4 }), fc.array(name, { minLength: 1, maxLength: 5 }), (parts, names) => {
      const [text, path] = [`/${parts.join('/')}`, `/${names.join('/')}`]
      const expected = asRegExp(text).test(path)
      if (expected) fitted += 1
      assert.equal(fits(text, path), expected, `${text} ${path}`)
    }),
    { seed: 20_260_501, numRuns: 5_000 },
  )
  assert.ok(fitted > 200, String(fitted))
})

test('a pattern that is slow to match stops after a fixed number of steps and does not match', () => {
  const began = performance.now()
  for (const [text, path] of [
    [`/${'*a'.repeat(500)}b`, `/${'a'.repeat(4_000)}`],
    [`/${'**/a/'.repeat(200)}b`, `/${'a/'.repeat(2_000)}c`],
    [`/${'**/*a*/'.repeat(140)}b`, `/${'aaaa/'.repeat(800)}c`],
  ] as const)
    for (let times = 0; times < 20; times++) assert.ok(!fits(text, path))
  // Exponential work would take years. The limit of steps reduces it to milliseconds.
  assert.ok(performance.now() - began < patient(30_000))
})
