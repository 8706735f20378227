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

/** Batches whose signatures are made one by one, when the test lets them. */
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
  /** Signature number so and so is under way. */
  const begun = async (number: number): Promise<PromiseWithResolvers<void>> => {
    while (gates[number] === undefined) await nextTurn()
    return gates[number]
  }
  /** … and is made, or fails. */
  const make = async (number: number, failure?: Error): Promise<void> => {
    const gate = await begun(number)
    if (failure === undefined) gate.resolve()
    else gate.reject(failure)
  }
  return { gates, sign, begun, make }
}

const isGood = (number: number, signature: Uint8Array): boolean => verifyInBatch(signer.publicKey, DOMAIN, bodyOf(number), signature)

test('one by itself is signed at once and alone, as a peer of any release reads it', async () => {
  const { sign, make } = batching()
  for (const number of [0, 1]) {
    const signed = sign(number)
    await make(number)
    assert.equal(verifyAgent(signer.publicKey, DOMAIN, bodyOf(number), await signed), true)
  }
})

test('those that come while one is signed have one signature together, at most so many of them', async () => {
  const { gates, sign, make } = batching()
  const all = Array.from({ length: 1 + MAX_BATCH + 3 }, async (_, number) => sign(number))
  for (const number of [0, 1, 2]) await make(number)
  const signatures = await Promise.all(all)
  assert.equal(gates.length, 3)
  assert.ok(signatures.every((signature, number) => isGood(number, signature)))
  // And afterwards one by itself is again alone.
  const last = sign(999)
  await make(3)
  assert.equal(verifyAgent(signer.publicKey, DOMAIN, bodyOf(999), await last), true)
})

test('nobody is given the signature of a batch before all of it is recorded, and the next batch waits for none of that', async () => {
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

test('what cannot be recorded is not signed, and the others of its batch are signed without it, once they are recorded', async () => {
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

test('of a batch of which one alone is recorded that one is signed alone, and of one without any nothing more', async () => {
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

test('where what is signed anew fails, those that wait for it are told', async () => {
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

test('a signature that cannot be made is an error for its batch, and the next one is made', async () => {
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
