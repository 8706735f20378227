import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { silentLogger } from '../../src/base/log.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { AddressBook } from '../../src/mesh/address-book.ts'
import {
  MAX_BACKGROUND_DIALS,
  RECONNECT_MAX_MS,
  RECONNECT_MIN_MS,
  Reconnect,
  SETTLED_CONNECTION_MS,
  RECENT_MS,
  UNUSED_SWEEP_MS,
  FOUND_UNLISTED_PER_MINUTE,
  MAX_UNLISTED_DIALS,
  MAX_FOUND_WAITING,
} from '../../src/mesh/reconnect.ts'
import { DIAL_MS, MAX_STANDING_CONNECTIONS, MAX_UNLISTED_CONNECTIONS } from '../../src/protocol/limits/wire.ts'
import { agentNumber, machineNumber } from '../support/agents.ts'
import { FakeNode } from '../support/fake-node.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { fake } from '../support/fake.ts'

const machineOf = (n: number): string => machineNumber(n).machineId
const addressOf = (n: number): string => `/ip4/10.0.0.1/tcp/${1000 + n}/p2p/${peerIdOf(machineOf(n))}`
const strangers = (first: number, count: number): number[] => Array.from({ length: count }, (_, i) => first + i)

/** Trusts one pinned contact for each of these machines, without an address. */
const setUp = (t: TestContext, pinned: readonly number[]) => {
  const [node, clock] = [new FakeNode(), new ManualClock()]
  const contacts = pinned.map((n) => ({
    agent_id: agentNumber(n).agentId,
    trust: 'trusted' as const,
    machines: [machineOf(n)],
    addresses: [],
  }))
  for (const n of pinned) node.known.add(machineOf(n))
  const book = new AddressBook({ contacts: () => contacts, seen: () => [] }, { bootstrap: [] })
  const reconnect = new Reconnect({
    node: node as never,
    book,
    peerClasses: fake({ learn: () => undefined }),
    clock,
    log: silentLogger,
    executor: fake({ onSnapshot: () => () => undefined }),
  })
  reconnect.start()
  t.after(() => reconnect.stop())
  const find = (n: number): void => node.find(machineOf(n), addressOf(n))
  return { node, clock, book, reconnect, find }
}

test('a contact is dialled at once despite many unlisted machines on the local network, and dials are limited', async (t) => {
  const { node, find } = setUp(t, [1])
  assert.deepEqual(node.dialled, [machineOf(1)])
  await node.failAll()
  for (const n of strangers(10, 100)) find(n)
  assert.equal(node.dials.length, MAX_UNLISTED_DIALS)
  find(1)
  assert.equal(node.dials.length, MAX_UNLISTED_DIALS + 1)
  assert.deepEqual([node.dials.at(-1)?.machineId, node.dials.at(-1)?.addresses], [machineOf(1), [addressOf(1)]])
})

test('wanted, known and unlisted machines share one limit of parallel dials, and unlisted ones come last', async (t) => {
  const wanted = strangers(1, MAX_BACKGROUND_DIALS - 2)
  const { node, find } = setUp(t, wanted)
  const listed = strangers(20, 4)
  for (const n of listed) node.known.add(machineOf(n))
  for (const n of [...strangers(30, 5), ...listed]) find(n)
  assert.equal(node.dials.length, MAX_BACKGROUND_DIALS)
  assert.deepEqual(
    node.dials.map((dial) => dial.machineId),
    [...wanted, 30, 31].map(machineOf),
  )
  await node.failAll()
  assert.deepEqual(
    node.dials.map((dial) => dial.machineId),
    [...listed, 32, 33].map(machineOf),
  )
})

test('a machine that is found repeatedly has one dial at a time', async (t) => {
  const { node, find } = setUp(t, [1])
  for (let i = 0; i < 5; i++) for (const n of [1, 2]) find(n)
  assert.deepEqual(
    node.dials.map((dial) => dial.machineId),
    [1, 2].map(machineOf),
  )
})

test('unlisted machines are dialled at a limited rate, which does not apply to known machines', async (t) => {
  const { node, clock, find } = setUp(t, [])
  const tryAll = async (numbers: readonly number[]): Promise<number> => {
    const before = node.dialled.length
    for (const n of numbers) find(n)
    while (node.dials.length > 0) await node.failAll()
    return node.dialled.length - before
  }
  assert.equal(await tryAll(strangers(1, FOUND_UNLISTED_PER_MINUTE + 10)), FOUND_UNLISTED_PER_MINUTE)
  assert.equal(await tryAll([100]), 0)
  node.known.add(machineOf(100))
  assert.equal(await tryAll([100]), 1)
  await clock.advance(60_000)
  assert.equal(await tryAll([101]), 1)
})

test('an unlisted machine is not dialled if it is connected, has no address, or all places are taken', async (t) => {
  const { node, find } = setUp(t, [])
  node.connect(machineOf(1))
  find(1)
  node.find(machineOf(2))
  node.strangers = MAX_UNLISTED_CONNECTIONS
  find(3)
  assert.deepEqual(node.dialled, [])
  node.strangers -= 1
  find(4)
  assert.deepEqual(node.dialled, [3, 4].map(machineOf))
})

test('a wanted machine found locally is dialled there at once, and its regular retries continue', async (t) => {
  const { node, clock, find } = setUp(t, [1])
  await node.failAll()
  find(1)
  assert.deepEqual(node.dials.at(-1)?.addresses, [addressOf(1)])
  await node.failAll()
  assert.deepEqual(node.dials, [])
  await clock.advance(2 * RECONNECT_MIN_MS)
  assert.equal(node.dials.length, 1)
})

test('unlisted machines do not evict the local addresses of a contact', async (t) => {
  const { node, book, find } = setUp(t, [1])
  find(1)
  for (const n of strangers(2, 200)) find(n)
  node.find(machineOf(1))
  assert.deepEqual(book.addressesOf(machineOf(1)), [addressOf(1)])
  assert.deepEqual(book.addressesOf(machineOf(2)), [])
})

test('a machine that ends new connections at once is dialled after growing pauses, and the reason is kept', async (t) => {
  const { node, clock, reconnect } = setUp(t, [1])
  for (let minute = 0; minute < 20; minute++) {
    await node.answerAll(clock.now())
    if (node.connectionsTo(machineOf(1)).length > 0) node.disconnect(machineOf(1), 'ended by the other machine: no room')
    await clock.advance(30_000)
  }
  const { connected, failures, last_error } = reconnect.status()[0]!
  assert.deepEqual([connected, last_error], [false, 'connected, and after 0 ms ended by the other machine: no room'])
  assert.ok(failures > 5, `${failures} failures`)
  assert.ok(node.dialled.length < 20, `${node.dialled.length} dials in ten minutes`)
})

test('a lost connection that had lasted is made again at once, and earlier failures do not count', async (t) => {
  const { node, clock, reconnect } = setUp(t, [1])
  for (let count = 0; count < 4; count++) {
    await node.failAll()
    await clock.advance(RECONNECT_MAX_MS)
  }
  assert.equal(reconnect.status()[0]?.failures, 4)
  await node.answerAll(clock.now())
  await clock.advance(SETTLED_CONNECTION_MS)
  assert.deepEqual(reconnect.status()[0], { machine_id: machineOf(1), connected: true, failures: 0, last_error: null })
  node.disconnect(machineOf(1), 'ended by the other machine')
  await clock.advance(RECONNECT_MIN_MS)
  assert.equal(node.dials.length, 1)
})

test('all absent machines get their turn, and so does a reachable one at the end of the list', async (t) => {
  const away = MAX_STANDING_CONNECTIONS - 1
  const { node, clock } = setUp(t, strangers(1, away + 1))
  const hour = 3_600_000
  for (let at = 0; at < hour && node.connectionsTo(machineOf(away + 1)).length === 0; at += DIAL_MS) {
    await clock.advance(DIAL_MS)
    if (node.dials.some(({ machineId }) => machineId === machineOf(away + 1))) node.connect(machineOf(away + 1), clock.now())
    await node.failAll()
  }
  assert.equal(node.connectionsTo(machineOf(away + 1)).length, 1)
  assert.equal(new Set(node.dialled).size, away + 1)
  const tries = new Map<string, number>()
  for (const machineId of node.dialled) tries.set(machineId, (tries.get(machineId) ?? 0) + 1)
  assert.ok(Math.max(...tries.values()) - Math.min(...tries.values()) <= 2)
})

test('a lost connection that was in use is made again for a limited time, and an unused one is not', async (t) => {
  const { node, clock } = setUp(t, [])
  for (const [n, unused] of [
    [1, false],
    [2, true],
  ] as const) {
    node.known.add(machineOf(n))
    node.connect(machineOf(n), clock.now(), { unused })
    node.disconnect(machineOf(n), 'lost')
  }
  await clock.advance(1_000)
  assert.deepEqual(node.dialled, [machineOf(1)])
  for (let waited = 0; waited < RECENT_MS; waited += 10_000) {
    await node.failAll()
    await clock.advance(10_000)
  }
  await node.failAll()
  await clock.advance(2 * UNUSED_SWEEP_MS)
  await node.failAll()
  const { length } = node.dialled
  await clock.advance(10 * RECONNECT_MAX_MS)
  assert.equal(node.dialled.length, length)
})

test('unused outbound connections to known machines are ended above the number of persistent ones', async (t) => {
  const { node, clock } = setUp(t, [1])
  const more = strangers(2, MAX_STANDING_CONNECTIONS)
  for (const n of [1, ...more]) {
    node.known.add(machineOf(n))
    node.connect(machineOf(n), clock.now(), { unused: true, inbound: n === 2 })
  }
  node.known.delete(machineOf(3))
  node.connect(machineOf(4), clock.now(), { unused: false })
  await clock.advance(UNUSED_SWEEP_MS)
  assert.deepEqual(
    node.aborted.toSorted(),
    more
      .filter((n) => n > 4)
      .map(machineOf)
      .toSorted(),
  )
  node.aborted.length = 0
  await clock.advance(UNUSED_SWEEP_MS)
  assert.deepEqual(node.aborted, [], 'as many as stand anyway are let be')
})

test('the number of unlisted machines that wait for a dial is limited', async (t) => {
  const { node, clock, find } = setUp(t, [])
  for (let minute = 0; minute < 6; minute++) {
    for (const n of strangers(1 + minute * FOUND_UNLISTED_PER_MINUTE, FOUND_UNLISTED_PER_MINUTE)) find(n)
    await clock.advance(60_000)
  }
  while (node.dials.length > 0) await node.failAll()
  assert.equal(node.dialled.length, MAX_FOUND_WAITING + MAX_UNLISTED_DIALS)
})
