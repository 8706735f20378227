import assert from 'node:assert/strict'
import { test } from 'node:test'

import { sortedPeers } from '../../../src/programs/ui/peer-list.ts'
import { sortedRuns } from '../../../src/programs/ui/run-list.ts'
import { compareTexts, sortedBy } from '../../../src/programs/ui/slices.ts'
import { PEER_ORDERS, type PagePeer, type PageRun, type RUN_ORDERS } from '../../../src/protocol/page-lists.ts'
import { nextOrder, orderIn } from '../../../src/web/router.ts'
import { pagePeer, pageRun } from '../../support/page-host.ts'

const NOW = Date.parse('2026-01-01T01:00:00.000Z')

const PEERS: readonly PagePeer[] = [
  pagePeer('web10', { state: 'linked', rtt_ms: 7, version: '0.10.0', last_seen: '2026-01-01T00:10:00.000Z' }),
  pagePeer('"guest"', { trust: null, labels: {}, state: 'connected', rtt_ms: 3, version: null, last_seen: '2026-01-01T00:30:00.000Z' }),
  pagePeer('web2', { state: 'not_seen', rtt_ms: null, version: '0.9.1', last_seen: null, trust: 'blocked', path: null }),
]

const peerNames = (order: (typeof PEER_ORDERS)[number] | null): readonly (string | null)[] =>
  sortedPeers(PEERS, order).map(({ name }) => name)

const RUNS: readonly PageRun[] = [
  pageRun('a', { on: 'web10', result: 'running', duration_ms: null, started_at: '2026-01-01T00:59:00.000Z', argv: ['uptime'] }),
  pageRun('b', { on: 'web2', result: 'failed', duration_ms: 5, started_at: '2026-01-01T00:40:00.000Z' }),
  pageRun('c', { on: null, result: 'ok', duration_ms: null, started_at: '2026-01-01T00:20:00.000Z', argv: [] }),
]

const runIds = (order: (typeof RUN_ORDERS)[number] | null): string =>
  sortedRuns(RUNS, { fanout_id: null, order }, NOW)
    .map(({ request_id }) => request_id)
    .join('')

test('numbers in texts count by value, and texts that look alike still differ', () => {
  assert.deepEqual(['web10', 'web2', 'web1'].toSorted(compareTexts), ['web1', 'web2', 'web10'])
  assert.deepEqual(['0.10.0', '0.9.1'].toSorted(compareTexts), ['0.9.1', '0.10.0'])
  assert.notEqual(compareTexts('web1', 'web\u200b1'), 0)
  assert.equal(compareTexts('web\u200b1', 'web1'), -compareTexts('web1', 'web\u200b1'))
})

test('missing values come last in both directions, and equal rows keep their order', () => {
  const rows = [{ at: 1 }, { at: null }, { at: 3 }, { at: 1 }] as const
  const values = { at: (row: { readonly at: number | null }) => row.at }
  assert.deepEqual(sortedBy(rows, 'at', values), [rows[0], rows[3], rows[2], rows[1]])
  assert.deepEqual(sortedBy(rows, '-at', values), [rows[2], rows[0], rows[3], rows[1]])
  assert.equal(sortedBy(rows, null, values), rows)
})

test('peers sort by each column in both directions', () => {
  assert.deepEqual(peerNames(null), ['web2', 'web10', '"guest"'])
  assert.deepEqual(peerNames('name'), ['"guest"', 'web2', 'web10'])
  assert.deepEqual(peerNames('-name'), ['web10', 'web2', '"guest"'])
  assert.deepEqual(peerNames('state'), ['web10', '"guest"', 'web2'])
  assert.deepEqual(peerNames('trust'), ['web2', 'web10', '"guest"'])
  assert.deepEqual(peerNames('seen'), ['web10', '"guest"', 'web2'])
  assert.deepEqual(peerNames('-seen'), ['"guest"', 'web10', 'web2'])
  assert.deepEqual(peerNames('rtt'), ['"guest"', 'web10', 'web2'])
  assert.deepEqual(peerNames('-version'), ['web10', 'web2', '"guest"'])
  for (const order of PEER_ORDERS) assert.equal(peerNames(order).length, PEERS.length, order)
})

test('runs sort by each column in both directions, and a running one has taken the time until now', () => {
  const orders = { result: 'bac', command: 'bac', who: 'cba', '-who': 'abc', took: 'bac', '-took': 'abc', began: 'cba', '-began': 'abc' }
  for (const [order, ids] of Object.entries(orders)) assert.equal(runIds(order as keyof typeof orders), ids, order)
  assert.equal(runIds(null), 'abc')
})

test('clicks on a heading go through ascending, descending and the default order', () => {
  assert.deepEqual(
    ['', 'name', '-name', 'rtt', '-rtt'].map((order) => nextOrder(order, 'name')),
    ['name', '-name', '', 'name', 'name'],
  )
  assert.deepEqual(
    ['-seen', 'seen', '', 'size', '--seen', 'constructor'].map((order) => orderIn(PEER_ORDERS, order)),
    ['-seen', 'seen', null, null, null, null],
  )
})
