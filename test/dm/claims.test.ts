import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError, isAppError } from '../../src/base/errors.ts'
import { CLAIMS_MS, LinkDialler, type LinkDiallerComponents } from '../../src/dm/link-dialler.ts'
import type { Candidate } from '../../src/mesh/address-book.ts'

const AGENT = 'aa'.repeat(32)
const machine = (number: number): string => number.toString(16).padStart(64, '0')

/** A dialler whose proven machine refuses, and whose claims accept connections and say nothing. */
const setUp = (claims: number) => {
  const order: string[] = []
  const candidates: Candidate[] = [
    { machineId: machine(0), addresses: ['proven'] },
    ...Array.from({ length: claims }, (_, i): Candidate => ({ machineId: machine(i + 1), addresses: ['silent'], isClaim: true })),
  ]
  const dial = async (machineId: string, addresses: readonly string[], signal: AbortSignal): Promise<never> => {
    order.push(addresses[0]!)
    if (addresses[0] === 'silent')
      await new Promise((resolve) => {
        signal.addEventListener('abort', resolve)
      })
    throw new AppError('peer_unreachable', 'nothing came', { data: { addresses: [{ address: machineId, error: 'nothing came' }] } })
  }
  const components = {
    node: { connectionsTo: () => [], dial },
    book: { addressesOf: () => [], candidates: () => candidates, leavesRoomFor: () => true },
    records: { find: async () => Promise.resolve((order.push('table'), null)) },
    port: { identity: { agentId: 'bb'.repeat(32) } },
    table: { to: () => undefined },
    counters: {},
  } as unknown as LinkDiallerComponents
  return { order, dialler: new LinkDialler(components, { stopping: new AbortController().signal }) }
}

test('proven machines come first, then the DHT, then all claims at once and within their time', { timeout: 30_000 }, async () => {
  const { order, dialler } = setUp(4)
  const began = performance.now()
  await assert.rejects(dialler.link(AGENT, AbortSignal.timeout(20_000)), (error) => {
    assert.ok(isAppError(error, 'peer_unreachable'))
    // What was tried is told of each.
    assert.equal((error.data['addresses'] as unknown[]).length, 5)
    return true
  })
  assert.deepEqual(order, ['proven', 'table', 'silent', 'silent', 'silent', 'silent'])
  assert.ok(performance.now() - began < CLAIMS_MS + 1_000)
})

test('without claims nothing waits, and the error is that of the machine', async () => {
  const { order, dialler } = setUp(0)
  await assert.rejects(dialler.link(AGENT, AbortSignal.timeout(20_000)), (error) => isAppError(error, 'peer_unreachable'))
  assert.deepEqual(order, ['proven', 'table'])
})
