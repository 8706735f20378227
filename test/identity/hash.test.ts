import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

import { agentIdOf, statement, verifyAgent, verifyMachine } from '../../src/identity/signing.ts'
import { equalBytes, hkdf, hmac, randomBytes, sha256 } from '../../src/identity/hash.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { agentNumber } from '../support/agents.ts'

type Rows = Record<string, string | number>[]
const vectors = JSON.parse(readFileSync(new URL('../../proto/vectors/primitives.json', import.meta.url), 'utf8')) as Record<string, Rows>

const bytes = (hex: unknown): Uint8Array => Buffer.from(String(hex), 'hex')
const hex = (value: Uint8Array): string => Buffer.from(value).toString('hex')
const body = Buffer.from('body')

test('SHA-256, HMAC and HKDF match the published vectors', () => {
  for (const { data, hash } of vectors['sha256']!) assert.equal(hex(sha256(bytes(data))), hash)
  for (const { key, data, mac } of vectors['hmac_sha256']!) assert.equal(hex(hmac(bytes(key), bytes(data))), mac)
  for (const { secret, salt, info, length, output } of vectors['hkdf_sha256']!)
    assert.equal(hex(hkdf(bytes(secret), bytes(salt), bytes(info), Number(length))), output)
})

test('several parts give the same hash as their concatenation', () => {
  assert.equal(hex(sha256(bytes('61'), bytes(''), bytes('6263'))), hex(sha256(bytes('616263'))))
  assert.equal(hex(hmac(body, bytes('61'), bytes('6263'))), hex(hmac(body, bytes('616263'))))
})

test('byte arrays are equal only if all bytes are, and different lengths cause no exception', () => {
  assert.equal(equalBytes(bytes('0102'), bytes('0102')), true)
  assert.equal(equalBytes(bytes('0102'), bytes('0103')), false)
  assert.equal(equalBytes(bytes('0102'), bytes('01')), false)
  assert.equal(equalBytes(bytes(''), bytes('')), true)
})

test('random bytes have the requested length and differ', () => {
  assert.equal(randomBytes(32).length, 32)
  assert.notEqual(hex(randomBytes(32)), hex(randomBytes(32)))
})

test('an agent ID is the SHA-256 of its domain and the public key', () => {
  const { publicKey, agentId } = agentNumber(1)
  assert.equal(agentId, hex(sha256(Buffer.from('x0x-agent-id-v1'), publicKey)))
  assert.equal(agentIdOf(publicKey), agentId)
  assert.match(agentId, /^[0-9a-f]{64}$/)
})

test('a machine ID is the Ed25519 public key of the seed, as in RFC 8032', () => {
  for (const { seed, public_key } of vectors['ed25519']!) assert.equal(machineKeyOf(bytes(seed)).machineId, public_key)
})

test('a machine signature is valid for exactly one key, domain and body', () => {
  const machine = machineKeyOf(new Uint8Array(32).fill(1))
  const other = machineKeyOf(new Uint8Array(32).fill(2))
  const signature = machine.sign('domain', body)
  assert.equal(verifyMachine(machine.machineId, 'domain', body, signature), true)
  assert.equal(verifyMachine(other.machineId, 'domain', body, signature), false)
  assert.equal(verifyMachine(machine.machineId, 'domain2', body, signature), false)
  assert.equal(verifyMachine(machine.machineId, 'domain', Buffer.from('bode'), signature), false)
  assert.equal(verifyMachine(machine.machineId, 'domain', body, signature.subarray(1)), false)
  assert.equal(verifyMachine(machine.machineId.toUpperCase(), 'domain', body, signature), false)
  assert.equal(verifyMachine('00', 'domain', body, signature), false)
  assert.equal(verifyMachine('ff'.repeat(32), 'domain', body, signature), false)
})

test('an agent signature is valid for exactly one key, domain and body', async () => {
  const signature = await agentNumber(1).sign('domain', body)
  assert.equal(verifyAgent(agentNumber(1).publicKey, 'domain', body, signature), true)
  assert.equal(verifyAgent(agentNumber(2).publicKey, 'domain', body, signature), false)
  assert.equal(verifyAgent(agentNumber(1).publicKey, 'domai', Buffer.from('nbody'), signature), false)
  assert.equal(verifyAgent(agentNumber(1).publicKey, 'domain', Buffer.from('bode'), signature), false)
})

test('a domain cannot extend into the body', () => {
  assert.notEqual(hex(statement('a', Buffer.from('bc'))), hex(statement('ab', Buffer.from('c'))))
  assert.throws(() => statement('a\0b', body), TypeError)
  assert.throws(() => statement('', body), TypeError)
})
