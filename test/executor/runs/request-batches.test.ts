import assert from 'node:assert/strict'
import { test } from 'node:test'

import { RequestBatches } from '../../../src/executor/runs/requests.ts'
import { agentSignerOf } from '../../../src/identity/agent-key.ts'
import { verifyInBatch } from '../../../src/identity/signing.ts'
import { verifyAgent } from '../../../src/identity/signing.ts'
import { AGENT_SIGNATURE_BYTES, MAX_BATCH } from '../../../src/protocol/limits/wire.ts'
import { setImmediate as nextTurn } from 'node:timers/promises'

const DOMAIN = 'x0x-test-v1'
const signer = agentSignerOf(new Uint8Array(32).fill(1))
const bodyOf = (number: number): Uint8Array => Buffer.from(`request ${number}`)
const RECORDED = Promise.resolve()

/** Batches whose signatures complete one by one, when the test allows it. */
const batching = () => {
  const gates: PromiseWithResolvers<void>[] = []
  const batches = new RequestBatches({
    signatures: {
      sign: async (domain, body) => {
        const gate = Promise.withResolvers<void>()
        gates.push(gate)
        await gate.promise
        return signer.sign(domain, body)
      },
    },
  })
  const sign = async (number: number, recorded = RECORDED) => batches.sign(DOMAIN, bodyOf(number), recorded)
  /** Resolves when the signature with this number has begun. */
  const begun = async (number: number): Promise<PromiseWithResolvers<void>> => {
    while (gates[number] === undefined) await nextTurn()
    return gates[number]
  }
  /** Completes the signature with this number, or lets it fail. */
  const make = async (number: number, failure?: Error): Promise<void> => {
    const gate = await begun(number)
    if (failure === undefined) gate.resolve()
    else gate.reject(failure)
  }
  return { gates, sign, begun, make }
}

const isGood = (number: number, signature: Uint8Array): boolean => verifyInBatch(signer.publicKey, DOMAIN, bodyOf(number), signature)

test('a single request is signed at once and alone, so that peers of any release can verify it', async () => {
  const { sign, make } = batching()
  for (const number of [0, 1]) {
    const signed = sign(number)
    await make(number)
    assert.equal(verifyAgent(signer.publicKey, DOMAIN, bodyOf(number), await signed), true)
  }
})

test('requests that arrive during a signature share the next one, up to a maximum', async () => {
  const { gates, sign, make } = batching()
  const all = Array.from({ length: 1 + MAX_BATCH + 3 }, async (_, number) => sign(number))
  for (const number of [0, 1, 2]) await make(number)
  const signatures = await Promise.all(all)
  assert.equal(gates.length, 3)
  assert.ok(signatures.every((signature, number) => isGood(number, signature)))
  // A later single request is signed alone again.
  const last = sign(999)
  await make(3)
  assert.equal(verifyAgent(signer.publicKey, DOMAIN, bodyOf(999), await last), true)
})

test('the signatures of a batch wait until all its lines are written, without delay for the next batch', async () => {
  const { sign, begun, make } = batching()
  const line = Promise.withResolvers<void>()
  const first = sign(0)
  const together = [sign(1), sign(2, line.promise)]
  const told: number[] = []
  together.forEach((one, index) => void one.then(() => told.push(index)))
  await make(0)
  assert.equal(isGood(0, await first), true)
  await begun(1)
  const later = sign(3)
  await make(1)
  await make(2)
  assert.equal(isGood(3, await later), true)
  assert.deepEqual(told, [])
  line.resolve()
  assert.deepEqual([isGood(1, await together[0]!), isGood(2, await together[1]!)], [true, true])
})

test('a request that cannot be logged is not signed, and the rest of its batch is signed again', async () => {
  const { gates, sign, begun, make } = batching()
  const failure = new Error('too much at once')
  const line = Promise.withResolvers<void>()
  const first = sign(0)
  const refused = assert.rejects(sign(2, Promise.reject(failure)), failure)
  const others = [sign(1), sign(3, line.promise)]
  await make(0)
  assert.equal(isGood(0, await first), true)
  await make(1)
  const later = sign(4)
  await make(2)
  assert.equal(isGood(4, await later), true)
  assert.equal(gates.length, 3, 'nothing is signed anew before all lines are on the disk or cannot be')
  line.resolve()
  await refused
  await begun(3)
  await make(3)
  const [one, other] = await Promise.all(others)
  assert.deepEqual([isGood(1, one!), isGood(3, other!)], [true, true])
  assert.equal(
    one![AGENT_SIGNATURE_BYTES],
    2,
    'a tree of the two alone: from one of three the signature of what is not recorded could be told',
  )
})

test('a batch with one logged request is signed again alone, and one with none is not signed again', async () => {
  const { gates, sign, make } = batching()
  const failure = new Error('the disk is full')
  const first = sign(0)
  const together = Promise.allSettled([sign(1, Promise.reject(failure)), sign(2)])
  await make(0)
  await first
  await make(1)
  await make(2)
  const [refused, alone] = await together
  assert.equal(refused.status === 'rejected' && refused.reason, failure)
  assert.ok(alone.status === 'fulfilled' && verifyAgent(signer.publicKey, DOMAIN, bodyOf(2), alone.value))
  const ends = Promise.allSettled([sign(3), sign(4, Promise.reject(failure)), sign(5, Promise.reject(failure))])
  await make(3)
  await make(4)
  assert.deepEqual(
    (await ends).map(({ status }) => status),
    ['fulfilled', 'rejected', 'rejected'],
  )
  assert.equal(gates.length, 5)
})

test('an error of the second signature of a batch reaches each of its requests', async () => {
  const { sign, make } = batching()
  const [full, noKey] = [new Error('the disk is full'), new Error('no such key')]
  const first = sign(0)
  const ends = Promise.allSettled([sign(1), sign(2, Promise.reject(full))])
  await make(0)
  await first
  await make(1)
  await make(2, noKey)
  assert.deepEqual(
    (await ends).map((end) => end.status === 'rejected' && end.reason),
    [noKey, full],
  )
})

test('a failed signature is an error for its batch, and the next batch is signed', async () => {
  const { sign, begun, make } = batching()
  const failure = new Error('no such key')
  const first = sign(0)
  const together = Promise.allSettled([sign(1), sign(2)])
  await make(0)
  assert.equal(isGood(0, await first), true)
  await begun(1)
  const later = sign(3)
  await make(1, failure)
  assert.deepEqual(
    (await together).map((end) => end.status === 'rejected' && end.reason),
    [failure, failure],
  )
  await make(2)
  assert.equal(isGood(3, await later), true)
})
