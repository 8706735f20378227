import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { VIEWS, hrefOf, routeOf } from '../../src/web/router.ts'

test('the router reads each address of the page back to its view, item and query', () => {
  const text = fc.string({ unit: 'grapheme', minLength: 1 }).filter((one) => one.isWellFormed())
  fc.assert(
    fc.property(
      fc.constantFrom(...VIEWS),
      fc.option(text),
      fc.dictionary(fc.stringMatching(/^[a-z]{1,8}$/), text),
      ({ id }, item, query) => {
        const { view, item: readItem, query: readQuery } = routeOf(hrefOf(id, item, query))
        assert.deepEqual([view, readItem, { ...readQuery }], [id, item, { ...query }])
      },
    ),
  )
})

test('any other address shows the overview and throws no error', () => {
  for (const hash of ['', '#', '#/', '#/nothing', '#x', '#/runs2']) assert.equal(routeOf(hash).view, 'overview', hash)
  assert.deepEqual(routeOf('#/runs/%E0%A4%A?from=50'), { view: 'runs', item: '%E0%A4%A', query: { from: '50' } })
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (hash) => void routeOf(hash)))
})
