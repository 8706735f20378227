import assert from 'node:assert/strict'
import { test } from 'node:test'
import * as z from 'zod'

import { JsonField, record, text } from '../../src/protocol/json-table.ts'
import { shapeOf, zodOf } from '../../src/doors/zod-of.ts'

test('the schema of a field is made once, at its first read, and a parse uses the same schema', () => {
  let made = 0
  const kind = new Proxy(record({ name: text }).kind, {
    get: (target, key) => {
      if (key === 'is') made += 1
      return Reflect.get(target, key) as unknown
    },
  })
  const table = { inner: new JsonField(kind, 'required') }
  const [shape, schema] = [shapeOf(table), zodOf(table)]
  assert.equal(made, 0)
  const first = shape['inner']
  assert.equal(shape['inner'], first)
  assert.equal(made, 1)
  assert.ok(schema.safeParse({ inner: { name: 'x' } }).success)
  assert.ok(!schema.safeParse({ inner: { name: 1 } }).success)
  assert.ok(!schema.safeParse({ inner: { name: 'x' }, other: 1 }).success)
  assert.deepEqual(Object.keys((z.toJSONSchema(schema) as { properties: object }).properties), ['inner'])
  assert.equal(made, 2)
})
