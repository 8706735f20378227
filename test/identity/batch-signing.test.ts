import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

import fc from 'fast-check'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { batchLeaf, signBatch, verifyInBatch } from '../../src/identity/signing.ts'
import { statement, verifyAgent } from '../../src/identity/signing.ts'
import { AGENT_SIGNATURE_BYTES, MAX_BATCH, MAX_BATCH_SIGNATURE_BYTES } from '../../src/protocol/limits/wire.ts'

const DOMAIN = 'x0x-test-v1'
const signer = agentSignerOf(new Uint8Array(32).fill(1))
const bodiesOf = (count: number): Uint8Array[] => Array.from({ length: count }, (_, index) => Buffer.from(`body ${index}`))
const leavesOf = (bodies: readonly Uint8Array[]): Uint8Array[] => bodies.map((body) => batchLeaf(DOMAIN, body))

/** Shows what `signBatch` signs, instead of a signature. */
const shown = async (leaves: readonly Uint8Array[]): Promise<{ domain: string; body: Uint8Array; signatures: Uint8Array[] }> => {
  const asked: { domain: string; body: Uint8Array }[] = []
  const signatures = await signBatch(
    {
      sign: async (domain, body) => {
        asked.push({ domain, body })
        return new Uint8Array(AGENT_SIGNATURE_BYTES)
      },
    },
    leaves,
  )
  assert.equal(asked.length, 1)
  return { ...asked[0]!, signatures }
}

const hash = (...parts: readonly Uint8Array[]): Buffer => createHash('sha256').update(Buffer.concat(parts)).digest()

/** MTH of RFC 9162 §2.1.1, with statements as entries. */
const treeHash = (entries: readonly Uint8Array[]): Buffer => {
  if (entries.length === 1) return hash(Uint8Array.of(0), entries[0]!)
  const half = 2 ** Math.floor(Math.log2(entries.length - 1))
  return hash(Uint8Array.of(1), treeHash(entries.slice(0, half)), treeHash(entries.slice(half)))
}

/** PATH of RFC 9162 §2.1.3.1. */
const auditPath = (index: number, entries: readonly Uint8Array[]): Buffer[] => {
  if (entries.length === 1) return []
  const half = 2 ** Math.floor(Math.log2(entries.length - 1))
  const [left, right] = [entries.slice(0, half), entries.slice(half)]
  return index < half ? [...auditPath(index, left), treeHash(right)] : [...auditPath(index - half, right), treeHash(left)]
}

test('the tree of a batch and its paths follow RFC 9162', async () => {
  for (const size of [...Array.from({ length: 20 }, (_, more) => more + 2), 64, 65, MAX_BATCH]) {
    const bodies = bodiesOf(size)
    const entries = bodies.map((body) => statement(DOMAIN, body))
    const { domain, body, signatures } = await shown(leavesOf(bodies))
    assert.equal(domain, 'x0x-batch-v1')
    assert.deepEqual(Buffer.from(body), Buffer.concat([Uint8Array.of(size), treeHash(entries)]))
    const expected = entries.map((_, index) => Buffer.concat([Uint8Array.of(size, index), ...auditPath(index, entries)]))
    assert.deepEqual(
      signatures.map((one) => Buffer.from(one.subarray(AGENT_SIGNATURE_BYTES))),
      expected,
    )
    assert.ok(signatures.every(({ length }) => length > AGENT_SIGNATURE_BYTES && length <= MAX_BATCH_SIGNATURE_BYTES))
  }
})

test('the signed bytes of a batch match the published test vectors', async () => {
  const { batch } = JSON.parse(readFileSync(new URL('../../proto/vectors/identity.json', import.meta.url), 'utf8')) as {
    batch: { domain: string; bodies: string[]; signed_domain: string; signed_body: string; places: string[] }
  }
  const { domain, body, signatures } = await shown(batch.bodies.map((one) => batchLeaf(batch.domain, Buffer.from(one, 'hex'))))
  assert.deepEqual([domain, Buffer.from(body).toString('hex')], [batch.signed_domain, batch.signed_body])
  assert.deepEqual(
    signatures.map((one) => Buffer.from(one.subarray(AGENT_SIGNATURE_BYTES)).toString('hex')),
    batch.places,
  )
})

test('each signature of a batch is verified by itself, and so is a single signature', async () => {
  for (const size of [2, 3, 64, 65, MAX_BATCH]) {
    const bodies = bodiesOf(size)
    const signatures = await signBatch(signer, leavesOf(bodies))
    for (const index of [0, 1, size >> 1, size - 2, size - 1]) {
      assert.equal(verifyInBatch(signer.publicKey, DOMAIN, bodies[index]!, signatures[index]!), true, `${index} of ${size}`)
      assert.equal(verifyAgent(signer.publicKey, DOMAIN, bodies[index]!, signatures[index]!), false, 'only who reads batches takes it')
    }
  }
  const alone = await signer.sign(DOMAIN, Buffer.from('alone'))
  assert.equal(verifyInBatch(signer.publicKey, DOMAIN, Buffer.from('alone'), alone), true)
})

test('a batch signature is invalid with another body, domain, agent, place, size, path or length', async () => {
  const bodies = bodiesOf(5)
  const signatures = await signBatch(signer, leavesOf(bodies))
  const good = signatures[2]!
  const [signature, size, index, path] = [good.subarray(0, -2 - 3 * 32), 5, 2, good.subarray(-3 * 32)]
  const made = (changed: { size?: number; index?: number; path?: Uint8Array; more?: Uint8Array }): Uint8Array =>
    Buffer.concat([
      signature,
      Uint8Array.of(changed.size ?? size, changed.index ?? index),
      changed.path ?? path,
      changed.more ?? new Uint8Array(0),
    ])
  const isGood = (one: Uint8Array, body = bodies[2]!, domain = DOMAIN): boolean => verifyInBatch(signer.publicKey, domain, body, one)
  assert.equal(isGood(made({})), true)
  const forged = {
    'another body of the batch': isGood(good, bodies[3]),
    'a body that is not of it': isGood(good, Buffer.from('body 9')),
    'another domain': isGood(good, bodies[2], 'x0x-other-v1'),
    'another agent': verifyInBatch(agentSignerOf(new Uint8Array(32).fill(2)).publicKey, DOMAIN, bodies[2]!, good),
    'another place': isGood(made({ index: 3 })),
    'a place behind the last': isGood(made({ index: 5 })),
    'another size of the same depth': isGood(made({ size: 6 })),
    'a smaller size': isGood(made({ size: 4, path: path.subarray(0, 64) })),
    'no size': isGood(made({ size: 0, index: 0, path: new Uint8Array(0) })),
    'a batch of one': isGood(made({ size: 1, index: 0, path: new Uint8Array(0) })),
    'a size beyond the limit': isGood(made({ size: MAX_BATCH + 1 })),
    'a path that is too short': isGood(made({ path: path.subarray(32) })),
    'a path that is too long': isGood(made({ more: new Uint8Array(32) })),
    'half a hash more': isGood(made({ more: new Uint8Array(16) })),
    'no path': isGood(made({ path: new Uint8Array(0) })),
    'no place': isGood(signature),
    'half a place': isGood(Buffer.concat([signature, Uint8Array.of(5)])),
    nothing: isGood(new Uint8Array(0)),
    // A node of the tree is not a statement, so that the signed root is not a leaf.
    'the root as a body': isGood(signature, Buffer.concat([Uint8Array.of(5), treeHash(bodies.map((body) => statement(DOMAIN, body)))])),
  }
  assert.deepEqual(
    Object.entries(forged).filter(([, isTaken]) => isTaken),
    [],
  )
})

test('property: a signature with any changed byte is invalid', async () => {
  const bodies = bodiesOf(11)
  const signatures = await signBatch(signer, leavesOf(bodies))
  fc.assert(
    fc.property(fc.nat(10), fc.nat(), fc.integer({ min: 1, max: 255 }), (index, place, change) => {
      const forged = Buffer.from(signatures[index]!)
      // Every second change is after the agent signature itself.
      const at = place % 2 === 0 ? place % forged.length : AGENT_SIGNATURE_BYTES + (place % (forged.length - AGENT_SIGNATURE_BYTES))
      forged[at]! ^= change
      assert.equal(verifyInBatch(signer.publicKey, DOMAIN, bodies[index]!, forged), false)
    }),
    { numRuns: 200 },
  )
})

test('property: bytes of any length are refused without an exception', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.boolean(), (bytes, isLong) => {
      const signature = isLong ? Buffer.concat([new Uint8Array(AGENT_SIGNATURE_BYTES), bytes]) : bytes
      assert.equal(verifyInBatch(signer.publicKey, DOMAIN, bytes, signature), false)
    }),
  )
})
