import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { MAX_FANOUT_HOSTS } from '../../src/protocol/limits/fleet.ts'
import { MAX_HOST_WORDS } from '../../src/protocol/limits/fleet.ts'
import { expandNodeSet, foldNodeSet, parseNodeSet } from '../../src/protocol/hosts/node-set.ts'
import { patient } from '../support/wait-limits.ts'

const SEED = 20_261_126

const expand = (text: string, max?: number): string[] => expandNodeSet(parseNodeSet(text, max))

const MEANS: Readonly<Record<string, string>> = {
  alice: 'alice',
  'web[1-3]': 'web1 web2 web3',
  'web[1-2,30]': 'web1 web2 web30',
  'web[09-11]': 'web09 web10 web11',
  'web[099-101]': 'web099 web100 web101',
  'web[9-11]': 'web9 web10 web11',
  'web[1-9/2]': 'web1 web3 web5 web7 web9',
  'web[01-10/5]': 'web01 web06',
  'web[1-3/9]': 'web1',
  'web[7]': 'web7',
  'web[007]': 'web007',
  'rack[1-2]-node[01-02]': 'rack1-node01 rack1-node02 rack2-node01 rack2-node02',
  'a[1-2]b[3]c': 'a1b3c a2b3c',
  '[1-3]': '1 2 3',
  'a[0-1]5': 'a05 a15',
  'n1[9-10]': 'n19 n110',
  'a,b[1-2],a': 'a b1 b2',
  'a[1,1,1-2]': 'a1 a2',
  '10.0.0.[1-2]': '10.0.0.1 10.0.0.2',
  'a[999999999999999]': 'a999999999999999',
}

test('a node set expands to its names in order, without duplicates', () => {
  for (const [text, names] of Object.entries(MEANS)) assert.equal(expand(text).join(' '), names, text)
})

/** The text, the expected problem, and the position of the problem. */
const WRONG: readonly [string, RegExp, number][] = [
  ['', /a name is missing/, 1],
  [',a', /a name is missing/, 1],
  ['a,', /a name is missing/, 3],
  ['a,,b', /a name is missing/, 3],
  ['a[]', /a number is missing/, 3],
  ['a[1,]', /a number is missing/, 5],
  ['a[,1]', /a number is missing/, 3],
  ['a[1,,2]', /a number is missing/, 5],
  ['a[1-2', /missing "\]"/, 2],
  ['a[', /missing "\]"/, 2],
  ['a]', /"\]" without "\["/, 2],
  ['a[1]]', /"\]" without "\["/, 5],
  ['a[1[2]]', /nested brackets/, 4],
  ['a[[1]]', /nested brackets/, 3],
  ['a[1][2]', /without text between/, 5],
  ['a[3-1]', /goes backwards/, 3],
  ['a[1,20-10]', /goes backwards/, 5],
  ['a[1-3/0]', /the step of a range is 0/, 3],
  ['a[1-3/]', /invalid range/, 3],
  ['a[1-]', /invalid range/, 3],
  ['a[-3]', /invalid range/, 3],
  ['a[1--3]', /invalid range/, 3],
  ['a[1-2-3]', /invalid range/, 3],
  ['a[b]', /invalid range/, 3],
  ['a[ 1]', /invalid range/, 3],
  ['a[1.5]', /invalid range/, 3],
  ['a[0x1]', /invalid range/, 3],
  ['a[01-100]', /leading zeros/, 3],
  ['a[8-011]', /leading zeros/, 3],
  ['a[00-3]', /leading zeros/, 3],
  ['a b', /a name cannot contain " "/, 2],
  ['a*', /a name cannot contain "\*"/, 2],
  ['@a', /a name cannot contain "@"/, 1],
  ['ü', /a name cannot contain "ü"/, 1],
  ['a\n', /a name cannot contain "\\n"/, 2],
  ['a[1-9999999999999999]', /more than 15 digits/, 3],
  [`a[${'9'.repeat(500)}]`, /more than 15 digits/, 3],
  ['a'.repeat(65), /more than 64 characters/, 1],
  [`${'a'.repeat(60)}[1-10000]`, /more than 64 characters/, 61],
  [`${'a'.repeat(60)}[0001]b`, /more than 64 characters/, 67],
]

test('an invalid node set is refused with the problem and its position', () => {
  for (const [text, why, at] of WRONG)
    assert.throws(
      () => parseNodeSet(text),
      (error) => isAppError(error, 'bad_request') && why.test(error.message) && error.data.at === at && error.message.length < 250,
      `${text} at ${at}`,
    )
})

test('a node set with too many names is refused before it is expanded', () => {
  assert.equal(expand(`a[1-${MAX_FANOUT_HOSTS}]`).length, MAX_FANOUT_HOSTS)
  assert.equal(expand('a[1-100]-[1-100]').length, MAX_FANOUT_HOSTS)
  assert.equal(expand('a[1-3]', 3).length, 3)
  const many: readonly [string, RegExp][] = [
    [`a[1-${MAX_FANOUT_HOSTS + 1}]`, /selects 10001 hosts; the limit is 10000/],
    ['a[1-999999999]', /selects 999999999 hosts/],
    ['a[0-999999999999999]', /selects 1000000000000000 hosts/],
    ['a[1-100]-[1-101]', /selects 10100 hosts/],
    ['a[1-5000],b[1-5001]', /select 10001 hosts/],
    ['a[1-10000]b[0-999999999999999]', /more hosts than can be counted/],
    [Array.from({ length: MAX_FANOUT_HOSTS + 1 }, () => 'a').join(), /select 10001 hosts/],
    ['a[1-9]'.repeat(5000), /selects 59049 hosts/],
    [`a[${'1,'.repeat(20_000)}1]`, /selects 10001 hosts/],
  ]
  for (const [text, why] of many) assert.throws(() => parseNodeSet(text), why, text.slice(0, 40))
})

test('an enormous text is refused quickly', () => {
  const million = 1_000_000
  const texts = [',', '[', ']', 'a', '1', 'a,', 'a[1],', '[1]', '[1-2]a', 'a[1-2,', '[1', '1-'].map((piece) => piece.repeat(million))
  const before = performance.now()
  for (const text of [...texts, ...texts.map((one) => `a[${one}`), ...texts.map((one) => `a[${one}]`)])
    assert.throws(
      () => parseNodeSet(text),
      (error) => isAppError(error, 'bad_request') && error.message.length < 250,
    )
  assert.ok(performance.now() - before < patient(5000), 'every text is read once at most')
  assert.throws(() => parseNodeSet('a'.repeat(MAX_HOST_WORDS + 1)), /more than 1048576 characters/)
})

const FOLDS: readonly [string, string][] = [
  ['web1 web2 web3 web4 web5 web6 web7 web9 web10', 'web[1-7,9-10]'],
  ['web3 web1 db web2', 'db,web[1-3]'],
  ['web8', 'web8'],
  ['', ''],
  ['a a a', 'a'],
  ['n08 n09 n10 n11', 'n[08-11]'],
  ['n8 n9 n10 n11', 'n[8-11]'],
  ['n1 n01 n001', 'n[1,01,001]'],
  ['n8 n9 n10 n08 n09', 'n[8-10,08-09]'],
  ['n099 n100 n98 n99', 'n[98-100,099]'],
  ['n99 n100 n099', 'n[99-100,099]'],
  ['n0 n1 n00', 'n[0-1,00]'],
  ['r1-n1 r1-n2 r2-n1 r2-n2 r3-n1', 'r[1-2]-n[1-2],r3-n1'],
  ['r1-n1 r2-n1 r3-n1 r3-n2', 'r[1-3]-n1,r3-n2'],
  ['r1-n1 r1-n2 r3-n2', 'r1-n[1-2],r3-n2'],
  ['r1-n01 r1-n02 r2-n1', 'r1-n[01-02],r2-n1'],
  ['10.0.0.1 10.0.0.2 10.0.1.1', '10.0.0.[1-2],10.0.1.1'],
  ['a1b a2b a2c', 'a[1-2]b,a2c'],
  ['web web1 web2', 'web,web[1-2]'],
  ['1 2 3 7', '[1-3,7]'],
  [`n${'9'.repeat(16)} n${'9'.repeat(15)}8`, `n${'9'.repeat(15)}8,n${'9'.repeat(16)}`],
  ['n999999999999998 n999999999999999', 'n[999999999999998-999999999999999]'],
]

test('names fold into the same short text in every order', () => {
  for (const [names, text] of FOLDS) {
    const list = names === '' ? [] : names.split(' ')
    assert.equal(foldNodeSet(list), text)
    assert.equal(foldNodeSet(list.toReversed()), text)
  }
  const rack = expand('rack[1-40]-node[001-200]x')
  assert.equal(foldNodeSet(rack), 'rack[1-40]-node[001-200]x')
})

test('IDs and invalid names are not folded', () => {
  const ids = ['1', '2', '3'].map((digit) => `${'ab'.repeat(31)}0${digit}`)
  assert.equal(foldNodeSet(ids), ids.join())
  assert.equal(foldNodeSet(['a b1', 'a b2']), 'a b1,a b2')
})

/** Names with many common parts, so that many of them fold. */
const names = fc.array(
  fc
    .tuple(
      fc.constantFrom('', 'a', 'web', 'rack-'),
      fc.constantFrom('0', '1', '2', '3', '8', '9', '10', '11', '00', '01', '09', '099', '100', '12345678901234567'),
      fc.constantFrom('', '-', '-n', '.'),
      fc.constantFrom('', '1', '2', '3', '01', '02', '9', '10'),
      fc.constantFrom('', 'x', '-1-2-3', '-1-2-4', '-2-2-3'),
    )
    .map((parts) => parts.join('')),
  { maxLength: 60 },
)

test('a folded set expands to the same names', () => {
  fc.assert(
    fc.property(names, (list) => {
      const folded = foldNodeSet(list)
      assert.deepEqual(list.length === 0 ? [] : expand(folded).toSorted(), [...new Set(list)].toSorted())
      assert.equal(foldNodeSet(list.toReversed()), folded)
      if (list.length > 0) assert.equal(parseNodeSet(folded).count, new Set(list).size, 'each name stands there once')
    }),
    { seed: SEED, numRuns: 2000 },
  )
})

test('any text is parsed or refused, and a parsed set folds to the same names', () => {
  const piece = fc.constantFrom('a', 'web', '[', ']', ',', '-', '/', '0', '1', '2', '09', '10', '[1-3]', '[01-12/3]', '.', '!', 'é')
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 14 }), (pieces) => {
      const text = pieces.join('')
      try {
        const set = parseNodeSet(text, 200)
        const meant = expandNodeSet(set)
        assert.ok(meant.length > 0 && meant.length <= set.count && set.count <= 200)
        assert.deepEqual(expand(foldNodeSet(meant)).toSorted(), meant.toSorted())
      } catch (error) {
        assert.ok(isAppError(error, 'bad_request'), String(error))
      }
    }),
    { seed: SEED, numRuns: 5000 },
  )
})

test('ten thousand names fold quickly, even if they have little in common', () => {
  const before = performance.now()
  let chance = 1
  const scattered = Array.from({ length: MAX_FANOUT_HOSTS }, (_, index) => {
    chance = (chance * 48_271) % 2_147_483_647
    return `${chance % 97}-${chance % 89}-${chance % 83}-${chance % 79}-${chance % 73}-${index}`
  })
  assert.deepEqual(expand(foldNodeSet(scattered)).toSorted(), scattered.toSorted())
  const steps = Array.from({ length: 5000 }, (_, index) => `n${2 * index}`)
  assert.deepEqual(expand(foldNodeSet(steps)).toSorted(), steps.toSorted())
  assert.ok(performance.now() - before < patient(5000))
})
