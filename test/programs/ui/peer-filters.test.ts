import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { PagePeersQuery } from '../../../src/protocol/page-lists.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { type DaemonPeer, peerListOf } from '../../support/peer-daemon.ts'

const QUERY: PagePeersQuery = { text: '', label: '', state: null, version: '', unseen_ms: null, order: null, from: 0 }
const HOUR_MS = 60 * 60_000

/** The list at a given time. `ago` gives the time some milliseconds before. */
const listAt = (make: (ago: (ms: number) => string) => readonly DaemonPeer[]) => {
  const clock = new ManualClock()
  return peerListOf(
    make((ms) => new Date(clock.now() - ms).toISOString()),
    clock,
  )
}

const settle = async (): Promise<void> => {
  for (let at = 0; at < 50; at++) await new Promise((resolve) => setImmediate(resolve))
}

test('peers that were not seen for a time include those never seen, and no connected one', async () => {
  const list = listAt((ago) => [
    { name: 'linked', isLinked: true, seen: ago(9 * HOUR_MS), version: null },
    { name: 'recent', isLinked: false, seen: ago(HOUR_MS), version: null },
    { name: 'old', isLinked: false, seen: ago(HOUR_MS + 1), version: null },
    { name: 'never', isLinked: false, seen: null, version: null },
  ])
  const names = async (unseen_ms: number | null) => (await list.peers({ ...QUERY, unseen_ms })).rows.map(({ name }) => name)
  assert.deepEqual(await names(HOUR_MS), ['never', 'old'])
  assert.deepEqual(await names(24 * HOUR_MS), ['never'])
  assert.equal((await names(null)).length, 4)
})

test('a filter by version asks all linked peers for it, and says how many are not known', async () => {
  const list = listAt((ago) =>
    Array.from({ length: 120 }, (_, at) => ({
      name: `web${at}`,
      isLinked: at < 100,
      seen: ago(0),
      version: at === 99 ? null : at % 10 === 9 ? '0.10.0' : '0.9.1',
    })),
  )
  const query = { ...QUERY, version: '0.10.0' }
  const first = await list.peers(query)
  assert.deepEqual([first.total, first.versions, first.versions_missing], [0, [], 100])
  await settle()
  const { rows, total, versions, versions_missing } = await list.peers(query)
  assert.deepEqual([total, versions, versions_missing], [9, ['0.9.1', '0.10.0'], 1])
  assert.ok(rows.every(({ version }) => version === '0.10.0'))
  const sorted = await list.peers({ ...QUERY, order: '-version' })
  assert.deepEqual([sorted.rows[0]?.version, sorted.rows[9]?.version], ['0.10.0', '0.9.1'])
  assert.equal((await list.peers({ ...QUERY, version: '0.1' })).total, 0)
})

test('a version that is too long for a filter is not offered, and at most 100 are', async () => {
  const list = listAt((ago) =>
    Array.from({ length: 150 }, (_, at) => ({
      name: `web${at}`,
      isLinked: true,
      seen: ago(0),
      version: at === 0 ? 'v'.repeat(257) : `1.${at}`,
    })),
  )
  await list.peers({ ...QUERY, order: 'version' })
  await settle()
  const { versions } = await list.peers(QUERY)
  assert.deepEqual([versions.length, versions[0], versions[99]], [100, '1.1', '1.100'])
})

test('without a further request for the list, the page stops to ask peers for their versions', async () => {
  const clock = new ManualClock()
  const seen = new Date(clock.now()).toISOString()
  const list = peerListOf(
    Array.from({ length: 100 }, (_, at) => ({ name: `web${at}`, isLinked: true, seen, version: '1.0' })),
    clock,
  )
  await list.peers({ ...QUERY, order: 'version' })
  clock.hold(10_000)
  await settle()
  const missing = (await list.peers({ ...QUERY, order: 'version' })).versions_missing
  assert.ok(missing > 90 && missing < 100, String(missing))
})
