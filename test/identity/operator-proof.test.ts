import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { test } from 'node:test'

import fc from 'fast-check'

import { checkOperatorProof } from '../../src/identity/check-operator-proof.ts'
import { decodeOperatorKey, proveOperation } from '../../src/identity/operator-proof.ts'
import { OPERATOR_PROOF_MS } from '../../src/protocol/limits/daemon.ts'

const key = new Uint8Array(32).fill(1)
const body = Buffer.from('{"contact":"bob"}')
const NOW = 1_800_000_000_000

test('an operator proof is valid only for its key, operation and exact body', () => {
  const proof = proveOperation(key, 'contact_pin', body, NOW)
  const [, , nonce] = proof.split('.')
  assert.deepEqual(checkOperatorProof(key, 'contact_pin', body, proof, NOW), { nonce, fresh_until_ms: NOW + OPERATOR_PROOF_MS })
  assert.equal(checkOperatorProof(key, 'contact_unpin', body, proof, NOW), null)
  assert.equal(checkOperatorProof(key, 'contact_pin', Buffer.from('{"contact": "bob"}'), proof, NOW), null)
  assert.equal(checkOperatorProof(new Uint8Array(32), 'contact_pin', body, proof, NOW), null)
})

test('the MAC of an operator proof is the documented one', () => {
  const [version, time, nonce, mac] = proveOperation(key, 'contact_pin', body, NOW).split('.')
  assert.equal(version, 'v1')
  assert.equal(time, String(NOW))
  assert.equal(Buffer.from(nonce!, 'base64url').length, 16)
  const text = `x0x-operator-v1\ncontact_pin\n${time}\n${nonce}\n${body.toString()}`
  assert.equal(mac, createHmac('sha256', key).update(text).digest('hex'))
})

test('an operator proof is valid for one minute before and after its time, to the millisecond', () => {
  const proof = proveOperation(key, 'contact_pin', body, NOW)
  for (const late of [OPERATOR_PROOF_MS, -OPERATOR_PROOF_MS]) assert.ok(checkOperatorProof(key, 'contact_pin', body, proof, NOW + late))
  for (const late of [OPERATOR_PROOF_MS + 1, -OPERATOR_PROOF_MS - 1])
    assert.equal(checkOperatorProof(key, 'contact_pin', body, proof, NOW + late), null)
})

test('each operator proof has a new nonce', () => {
  const nonces = Array.from({ length: 100 }, () => proveOperation(key, 'contact_pin', body, NOW).split('.')[2])
  assert.equal(new Set(nonces).size, 100)
})

test('property: a proof with a changed, added or missing character is refused without an exception', () => {
  const proof = proveOperation(key, 'contact_pin', body, NOW)
  const check = (text: string): unknown => checkOperatorProof(key, 'contact_pin', body, text, NOW)
  fc.assert(
    fc.property(fc.nat(proof.length - 1), fc.string({ minLength: 1, maxLength: 1, unit: 'binary' }), (at, character) => {
      const altered = [
        proof.slice(0, at) + character + proof.slice(at + 1),
        proof.slice(0, at) + character + proof.slice(at),
        proof.slice(0, at) + proof.slice(at + 1),
      ]
      for (const text of altered) assert.equal(check(text) !== null, text === proof)
    }),
    { seed: 4, numRuns: 500 },
  )
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => check(text) === null),
    { seed: 4 },
  )
  for (const text of ['', `${proof}\n`, ` ${proof}`, proof.toUpperCase(), proof.replace('v1', 'v2')]) assert.equal(check(text), null)
})

test('an operator key is 64 hex digits and a line feed', () => {
  const digits = 'ab'.repeat(32)
  assert.deepEqual(Buffer.from(decodeOperatorKey(`${digits}\n`)!).toString('hex'), digits)
  for (const text of ['', digits, `${digits}\n\n`, `${digits.toUpperCase()}\n`, `${digits.slice(2)}\n`, `${digits}0\n`]) {
    assert.equal(decodeOperatorKey(text), null)
  }
})
