import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { ApiCall, LocalApi } from '../../../src/clients/daemon.ts'
import { DaemonLists, SharedAnswer } from '../../../src/programs/ui/daemon-lists.ts'
import { PeerList } from '../../../src/programs/ui/peer-list.ts'
import { hasWords, sliceOf } from '../../../src/programs/ui/slices.ts'
import { contactsOf } from '../../../src/programs/ui/contact-list.ts'
import { MAX_PAGE_ROWS, PAGE_PINGS_AT_ONCE, PAGE_SHARED_MS, PAGE_VERSION_MS } from '../../../src/protocol/limits/page.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const idOf = (at: number): string => at.toString(16).padStart(64, '0')
const PEERS = 1_000

/** A daemon with a thousand peers, of which every second one is linked. `calls` are the paths of the calls that it received. */
const largeMesh = () => {
  const calls: string[] = []
  let pings = 0
  let mostPings = 0
  const contacts = Array.from({ length: PEERS }, (_, at) => ({
    name: `web${at}`,
    agent_id: idOf(at),
    trust: 'known',
    machines: [],
    addresses: [],
    formerly: [],
    labels: { role: at % 2 === 0 ? 'db' : 'web' },
    revoked: false,
    revoked_machines: [],
  }))
  const peers = contacts.slice(0, PEERS - 10).map(({ agent_id, name }, at) => ({
    agent_id,
    machine_id: idOf(at + 100_000),
    name,
    addresses: [],
    connected: at % 2 === 0,
    linked: at % 2 === 0,
    relayed_by: null,
    rtt_ms: at % 2 === 0 ? 1 : null,
    last_heard: null,
    last_seen: '2026-01-01T00:00:00.000Z',
  }))
  const json = async ({ path, body }: ApiCall): Promise<unknown> => {
    calls.push(path)
    if (path === '/agents/ping') {
      pings += 1
      mostPings = Math.max(mostPings, pings)
      await new Promise((resolve) => setImmediate(resolve))
      pings -= 1
      const { agent_id } = body as { agent_id: string }
      return { agent_id, machine_id: idOf(Number.parseInt(agent_id, 16) + 100_000), rtt_ms: 1, version: '9.9.9', clock_ahead_ms: 0 }
    }
    if (path === '/contacts') return { ok: true, contacts, groups: [] }
    if (path === '/agent') return { ok: true, agent_id: idOf(999_999), machine_id: idOf(1), name: 'bob', version: '1' }
    return { ok: true, peers, mesh: { heard: 0, known: 0, standing: 0, connected: 0 } }
  }
  return { calls, most: () => mostPings, api: { json, read: json } as unknown as LocalApi }
}

const QUERY = { text: '', label: '', state: null, version: '', unseen_ms: null, order: 'name', from: 0 } as const

test('many pages cost the daemon as many calls as one, and the page asks again after an error', async () => {
  const clock = new ManualClock()
  let loads = 0
  let fails = false
  const shared = new SharedAnswer({ clock }, async () => {
    loads += 1
    if (fails) throw new Error('gone')
    return loads
  })
  assert.deepEqual(await Promise.all(Array.from({ length: 50 }, async () => shared.get())), Array(50).fill(1))
  await clock.advance(PAGE_SHARED_MS - 1)
  assert.equal(await shared.get(), 1)
  await clock.advance(1)
  fails = true
  await assert.rejects(shared.get(), /gone/)
  fails = false
  assert.equal(await shared.get(), 3)
  shared.forget()
  assert.equal(await shared.get(), 4)
})

test('a page shows fifty of a thousand peers, with any filter and order', async () => {
  const { api, calls } = largeMesh()
  const clock = new ManualClock()
  const peers = new PeerList({ api, clock, lists: new DaemonLists({ api, clock }) })
  const first = await peers.peers(QUERY)
  assert.deepEqual([first.rows.length, first.total, first.labels], [MAX_PAGE_ROWS, PEERS, ['role=db', 'role=web']])
  assert.equal((await peers.peers({ ...QUERY, label: 'role=db', state: 'up' })).total, PEERS / 2 - 5)
  assert.equal((await peers.peers({ ...QUERY, state: 'not_seen' })).total, 10)
  assert.deepEqual(
    (await peers.peers({ ...QUERY, text: 'WEB99 role=db' })).rows.map(({ name }) => name),
    ['web990', 'web992', 'web994', 'web996', 'web998'],
  )
  // A position after the end shows the last page.
  const last = await peers.peers({ ...QUERY, from: 5_000 })
  assert.deepEqual([last.from, last.rows.length], [PEERS - MAX_PAGE_ROWS, MAX_PAGE_ROWS])
  assert.equal((await peers.peers({ ...QUERY, order: 'rtt' })).rows[0]?.state, 'linked')
  assert.equal(calls.filter((path) => path === '/peers').length, 1)
})

test('the page asks only linked peers for versions, a few at a time, and again when they are old', async () => {
  const { api, calls, most } = largeMesh()
  const clock = new ManualClock()
  const peers = new PeerList({ api, clock, lists: new DaemonLists({ api, clock }) })
  const pinged = (): number => calls.filter((path) => path === '/agents/ping').length
  const settle = async (): Promise<void> => {
    for (let at = 0; at < 5; at++) await new Promise((resolve) => setImmediate(resolve))
  }
  await peers.peers(QUERY)
  await settle()
  assert.deepEqual([pinged(), most()], [PAGE_PINGS_AT_ONCE, PAGE_PINGS_AT_ONCE])
  for (let at = 0; at < 10; at++) {
    await peers.peers(QUERY)
    await settle()
  }
  const { rows } = await peers.peers(QUERY)
  assert.equal(rows.filter(({ version }) => version === '9.9.9').length, rows.filter(({ state }) => state === 'linked').length)
  const before = pinged()
  await peers.peers(QUERY)
  await settle()
  assert.deepEqual([pinged(), most()], [before, PAGE_PINGS_AT_ONCE])
  await clock.advance(PAGE_VERSION_MS)
  await peers.peers(QUERY)
  await settle()
  assert.equal(pinged(), before + PAGE_PINGS_AT_ONCE)
})

test('the page lists contacts in pages, with the machines on which they were seen', async () => {
  const { api } = largeMesh()
  const lists = new DaemonLists({ api, clock: new ManualClock() })
  const { rows, total, machines } = await contactsOf({ api, lists }, { text: 'role=db', level: 'known', agents: null, from: 0 })
  assert.deepEqual([rows.length, total], [MAX_PAGE_ROWS, PEERS / 2])
  assert.deepEqual(machines[rows[0]!.agent_id], [idOf(100_000)])
})

test('a filter matches all words in any order and case, and a slice ends at the end of the list', () => {
  assert.ok(hasWords('Web DB')('role=db web1'))
  assert.ok(!hasWords('web mail')('role=db web1'))
  assert.ok(hasWords('')(''))
  assert.deepEqual(sliceOf([1, 2, 3], 0, 2), { rows: [1, 2], from: 0, total: 3 })
  assert.deepEqual(sliceOf([1, 2, 3], 2, 2), { rows: [3], from: 2, total: 3 })
  assert.deepEqual(sliceOf([1, 2, 3], 9, 2), { rows: [2, 3], from: 1, total: 3 })
  assert.deepEqual(sliceOf([], 9, 2), { rows: [], from: 0, total: 0 })
})
