import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'
import * as z from 'zod'

import { zodOf } from '../../src/doors/zod-of.ts'
import {
  byDefault,
  closedProblemOf,
  count,
  either,
  eventReader,
  flag,
  list,
  map,
  matching,
  nameOf,
  number,
  oneOf,
  optional,
  orNull,
  problemOf,
  record,
  text,
  textOf,
  wholeUpTo,
  withoutNulls,
  yes,
} from '../../src/protocol/json-table.ts'

const INNER = { n: count, word: optional(matching(/^[a-z]+$/, 'a word')) }
const TABLE = {
  short: textOf({ min: 1, max: 3 }),
  small: wholeUpTo(9, 1),
  any_number: number,
  is: flag,
  always: optional(yes),
  one: oneOf(['a', 'b']),
  many: list(record(INNER), { max: 2 }),
  names: map(text, orNull(count)),
  two: either(flag, count),
  maybe: orNull(record(INNER)),
}
const GOOD = {
  short: 'abc',
  small: 9,
  any_number: 0.5,
  is: true,
  one: 'a',
  many: [{ n: 1, word: 'x' }],
  names: { k: null },
  two: 3,
  maybe: null,
}

test('the check and the schema of a table accept the same values', () => {
  const schema = zodOf(TABLE)
  const part = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.constantFrom('', 'a', 'abcd', 0, 1, 10, 1.5, [{ n: 0 }], [{ n: 0, x: 1 }], [{}, {}, {}], { n: 0 }, { k: 1 }, { k: 'v' }),
  )
  const changed = fc
    .dictionary(fc.constantFrom(...Object.keys(TABLE), 'unknown'), part)
    .map((changes): Record<string, unknown> => ({ ...GOOD, ...changes }))
  fc.assert(fc.property(changed, (value) => assert.equal(closedProblemOf(value, TABLE) === null, schema.safeParse(value).success)))
})

test('an error names the place of the wrong value', () => {
  assert.equal(closedProblemOf(GOOD, TABLE), null)
  for (const [change, says] of [
    [{ short: undefined }, 'short is missing'],
    [{ short: 'abcd' }, 'short is not a text of 1 to 3 characters'],
    [{ small: 0 }, 'small is not a whole number from 1 to 9'],
    [{ one: 'c' }, 'one is not one of a, b'],
    [{ many: [{ n: 1 }, { n: -1 }] }, 'many[1].n is not a count'],
    [{ many: [{ n: 1, x: 1 }] }, 'many[0]: unknown key "x"'],
    [{ many: [{}, {}, {}] }, 'many is not a list of 0 to 2, each a table'],
    [{ names: { 'a b': '' } }, 'names["a b"] is not a count or null'],
    [{ two: 'x' }, 'two is not true or false or a count'],
    [{ maybe: 1 }, 'maybe is not a table or null'],
    [{ x: 1 }, 'unknown key "x"'],
  ] as const)
    assert.equal(closedProblemOf({ ...GOOD, ...change }, TABLE), says)
})

test('a reader accepts additional fields and unknown kinds of a newer daemon', () => {
  const read = eventReader('a test', { told: { kind: nameOf(['known']), part: record(INNER) } })
  const event = { type: 'told', kind: 'newer_kind', part: { n: 1, more: true }, also: 1 }
  assert.deepEqual(read(event), event)
  assert.throws(() => read({ ...event, kind: '\u001b[2J' }), /told: kind is not a name/)
  assert.throws(() => read({ ...event, part: {} }), /told: part\.n is missing/)
  for (const value of [null, [], {}, { type: 'other' }, { type: 'toString' }]) assert.throws(() => read(value), SyntaxError)
  assert.equal(problemOf({ n: 1, more: 1 }, INNER), null)
})

test('null means that an optional field is absent, unless the field gives null another meaning', () => {
  const stated = { a: optional(text), b: optional(orNull(text)), c: orNull(text), d: byDefault(1, count) }
  assert.deepEqual(withoutNulls({ a: null, b: null, c: null, d: null, e: null }, stated), { b: null, c: null, e: null })
})

test('the schema has the description of each field, also within other types', () => {
  const { properties } = z.toJSONSchema(zodOf({ a: optional(text).says('A'), b: orNull(count.says('inside')).says('B') })) as {
    properties: Record<string, { description?: string; anyOf?: { description?: string }[] }>
  }
  assert.equal(properties['a']?.description, 'A')
  assert.deepEqual([properties['b']?.description, properties['b']?.anyOf?.[0]?.description], ['B', 'inside'])
})
