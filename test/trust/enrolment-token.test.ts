import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { randomBytes, sha256 } from '../../src/identity/hash.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { ENROL_SECRET_BYTES, MAX_ENROL_TOKEN } from '../../src/protocol/limits/enrolment.ts'
import { ENROL_TOKEN_PREFIX, enrolFrame, enrolGrant, enrolRequest } from '../../src/protocol/wire/enrolment.ts'
import {
  type EnrolToken,
  decodeEnrolToken,
  deriveEnrolSecret,
  encodeEnrolToken,
  enrolKeyId,
  enrolMac,
  isEnrolMac,
} from '../../src/trust/enrolment-token.ts'

const machineId = 'b'.repeat(64)
const token: EnrolToken = {
  agentId: 'a'.repeat(64),
  machineId,
  secret: new Uint8Array(randomBytes(ENROL_SECRET_BYTES)),
  expiresAtMs: 1_800_000_000_000,
  hasAcl: true,
  addresses: [`/ip4/192.0.2.7/tcp/5483/p2p/${peerIdOf(machineId)}`, `/ip4/198.51.100.9/tcp/5483/p2p/${peerIdOf(machineId)}`],
}

const isBadEnrolment = (error: unknown): boolean => isAppError(error, 'bad_enrolment')

test('a token is one short line and is read as written, even after an email program wrapped it', () => {
  const text = encodeEnrolToken(token)
  assert.ok(text.length < 300, `${text.length} characters`)
  assert.match(text, /^x0xe1\.[A-Za-z0-9_-]+$/)
  assert.deepEqual(decodeEnrolToken(text), token)
  assert.deepEqual(decodeEnrolToken(`> ${text.slice(0, 70)}=\r\n> ${text.slice(70)}\n`), token)
})

test('property: a token keeps every address, time and flag', () => {
  const word = fc.stringMatching(/^[a-z]([a-z0-9-]{0,20}[a-z0-9])?$/)
  const hex = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('hex'))
  const secret = fc.uint8Array({ minLength: ENROL_SECRET_BYTES, maxLength: ENROL_SECRET_BYTES }).map((bytes) => new Uint8Array(bytes))
  const port = fc.integer({ min: 1, max: 65_535 })
  const places = fc.array(fc.tuple(word, port), { minLength: 1, maxLength: 4 })
  const time = fc.nat({ max: Number.MAX_SAFE_INTEGER })
  fc.assert(
    fc.property(hex, hex, secret, time, fc.boolean(), places, (agent, machine, bytes, expiresAtMs, hasAcl, hosts) => {
      const addresses = hosts.map(([name, at]) => `/dns4/${name}/tcp/${at}/p2p/${peerIdOf(machine)}`)
      const one: EnrolToken = { agentId: agent, machineId: machine, secret: bytes, expiresAtMs, hasAcl, addresses }
      assert.deepEqual(decodeEnrolToken(encodeEnrolToken(one)), one)
    }),
  )
})

test('a token that is cut at any place is refused as damaged', () => {
  const text = encodeEnrolToken(token)
  for (let length = 0; length < text.length; length++)
    assert.throws(() => decodeEnrolToken(text.slice(0, length)), isBadEnrolment, `${length}`)
  assert.throws(() => decodeEnrolToken(text.slice(0, -1)), /the enrolment token is damaged or incomplete: copy the whole token/)
})

test('a token with one changed character is refused', () => {
  const text = encodeEnrolToken(token)
  for (let at = 0; at < text.length; at++)
    for (const other of ['A', 'B', '_', '!']) {
      if (text[at] === other) continue
      assert.throws(() => decodeEnrolToken(text.slice(0, at) + other + text.slice(at + 1)), isBadEnrolment, `${at} ${other}`)
    }
})

test('property: any other text or bytes are refused with a readable error', () => {
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => assert.throws(() => decodeEnrolToken(text), isBadEnrolment)))
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      const summed = Buffer.concat([bytes, sha256(bytes).subarray(0, 4)]).toString('base64url')
      assert.throws(() => decodeEnrolToken(ENROL_TOKEN_PREFIX + summed), isBadEnrolment)
    }),
  )
  assert.throws(() => decodeEnrolToken('x0xe2.AAAA'), /is from another version of x0x/)
  assert.throws(() => decodeEnrolToken('x0x://invite/AAAA'), /does not begin with x0xe1\./)
  assert.throws(() => decodeEnrolToken('A'.repeat(MAX_ENROL_TOKEN + 1)), isBadEnrolment)
})

test('a token with an address of another machine, or an unspecified one, is refused', () => {
  const other = `/ip4/192.0.2.7/tcp/5483/p2p/${peerIdOf('c'.repeat(64))}`
  assert.throws(() => decodeEnrolToken(encodeEnrolToken({ ...token, addresses: [other] })), /has no address of the operator/)
  const nowhere = `/ip4/0.0.0.0/tcp/5483/p2p/${peerIdOf(machineId)}`
  assert.throws(() => decodeEnrolToken(encodeEnrolToken({ ...token, addresses: [nowhere] })), /is the unspecified address/)
})

test('property: random bytes as enrolment frames are refused as malformed', () => {
  for (const message of [enrolFrame, enrolRequest, enrolGrant])
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
        assert.throws(
          () => message.decode(bytes),
          (error) => isAppError(error, 'malformed'),
        )
      }),
    )
})

test('a secret depends on key and salt, and a MAC is valid for one purpose', () => {
  const [key, salt, body] = [randomBytes(32), randomBytes(32), randomBytes(100)]
  const secret = deriveEnrolSecret(key, salt)
  assert.equal(secret.length, ENROL_SECRET_BYTES)
  assert.deepEqual(deriveEnrolSecret(key, salt), secret)
  assert.notDeepEqual(deriveEnrolSecret(key, randomBytes(32)), secret)
  assert.notDeepEqual(deriveEnrolSecret(randomBytes(32), salt), secret)
  assert.match(enrolKeyId(secret), /^[0-9a-f]{16}$/)
  const mac = enrolMac(secret, 'request', body)
  assert.ok(isEnrolMac(secret, 'request', body, mac))
  assert.ok(!isEnrolMac(secret, 'grant', body, mac))
  assert.ok(!isEnrolMac(randomBytes(ENROL_SECRET_BYTES), 'request', body, mac))
  assert.ok(!isEnrolMac(secret, 'request', body, mac.subarray(1)))
})
