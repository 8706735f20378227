import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError, isAppError } from '../../src/base/errors.ts'
import { CLAIMS_MS, LinkDialler } from '../../src/links/link-dialler.ts'
import { FanoutLimits, withSlot } from '../../src/exec/client.ts'
import type { DialCandidate } from '../../src/mesh/address-book.ts'
import type { MeshConnection } from '../../src/mesh/connection.ts'
import { MAX_FANOUT_DIALS } from '../../src/protocol/limits/fleet.ts'

const AGENT = 'aa'.repeat(32)
const machine = (number: number): string => number.toString(16).padStart(64, '0')

const aborted = async (signal: AbortSignal): Promise<never> =>
  new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(new AppError('timeout', 'nothing came')))
  })

/** A link dialler whose proven machine refuses. Its claimed machines accept connections and never answer. */
const setUp = (claims: number, { acceptsLate = false } = {}) => {
  const order: string[] = []
  const candidates: DialCandidate[] = [
    { machineId: machine(0), addresses: ['proven'] },
    ...Array.from({ length: claims }, (_, i): DialCandidate => ({ machineId: machine(i + 1), addresses: ['silent'], isClaim: true })),
  ]
  const dial = async (machineId: string, addresses: readonly string[], signal: AbortSignal): Promise<MeshConnection> => {
    order.push(addresses[0]!)
    if (addresses[0] === 'silent' && !acceptsLate) await aborted(signal).catch(() => undefined)
    if (addresses[0] === 'silent' && acceptsLate) {
      // The dial succeeds, but so late that the time limit of the handshake would end after that of all claims.
      await new Promise((resolve) => setTimeout(resolve, CLAIMS_MS / 2))
      return { open: false, openStream: async (_protocol: string, limit: AbortSignal) => aborted(limit) } as unknown as MeshConnection
    }
    throw new AppError('peer_unreachable', 'nothing came', { data: { addresses: [{ address: machineId, error: 'nothing came' }] } })
  }
  const components = {
    node: { connectionsTo: () => [], dial },
    book: { addressesOf: () => [], candidates: () => candidates, leavesRoomFor: () => true },
    records: { find: async () => Promise.resolve((order.push('table'), null)) },
    executor: { identity: { agentId: 'bb'.repeat(32) } },
    table: { to: () => undefined },
    counters: {},
  } as unknown as ConstructorParameters<typeof LinkDialler>[0]
  return { order, dialler: new LinkDialler(components, { stopping: new AbortController().signal }) }
}

test('a link is tried with proven machines, then through the DHT, then with all claims at once', { timeout: 30_000 }, async () => {
  const { order, dialler } = setUp(4)
  const began = performance.now()
  await assert.rejects(dialler.link(AGENT, AbortSignal.timeout(20_000)), (error) => {
    assert.ok(isAppError(error, 'peer_unreachable'))
    // The error reports each attempt.
    assert.equal((error.data['addresses'] as unknown[]).length, 5)
    return true
  })
  assert.deepEqual(order, ['proven', 'table', 'silent', 'silent', 'silent', 'silent'])
  assert.ok(performance.now() - began < CLAIMS_MS + 1_000)
})

test('claimed machines that accept late and never answer take no additional time', { timeout: 30_000 }, async () => {
  const { dialler } = setUp(2, { acceptsLate: true })
  const began = performance.now()
  await assert.rejects(dialler.link(AGENT, AbortSignal.timeout(20_000)), (error) => isAppError(error, 'peer_unreachable'))
  assert.ok(performance.now() - began < CLAIMS_MS + 500)
})

test('without claims, the dialler tries the proven machine and the DHT and then fails', async () => {
  const { order, dialler } = setUp(0)
  await assert.rejects(dialler.link(AGENT, AbortSignal.timeout(20_000)), (error) => isAppError(error, 'peer_unreachable'))
  assert.deepEqual(order, ['proven', 'table'])
})

test('false claims for all dial slots of a fan-out occupy them no longer than a single one', { timeout: 30_000 }, async () => {
  const { dialler } = setUp(4)
  const lanes = new FanoutLimits()
  const signal = AbortSignal.timeout(20_000)
  const began = performance.now()
  const claimed = Array.from({ length: MAX_FANOUT_DIALS }, (_, n) => (n + 16).toString(16).repeat(32))
  // A fan-out, a ping, a doctor and `acl mine` all open a channel.
  const dials = claimed.map(async (agentId) => withSlot(lanes.dials, signal, async () => dialler.openChannel(agentId, signal)))
  const failed = Promise.all(dials.map(async (dial) => assert.rejects(dial, (error) => isAppError(error, 'peer_unreachable'))))
  await withSlot(lanes.dials, signal, async () => undefined)
  assert.ok(performance.now() - began < CLAIMS_MS + 1_500)
  await failed
  assert.ok(performance.now() - began < CLAIMS_MS + 3_000)
})
