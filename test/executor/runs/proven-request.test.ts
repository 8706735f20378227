import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import { runRequest } from '../../../src/doors/rest/schemas.ts'
import { checkProvenRequest, REQUEST_KEYS, type ResolvableAgents, type RequestToSign } from '../../../src/executor/runs/operator-proofs.ts'
import { sha256 } from '../../../src/identity/hash.ts'
import { pieceHashes } from '../../../src/identity/piece-hashes.ts'
import { toHex } from '../../../src/protocol/ids.ts'
import type { Contact } from '../../../src/trust/contact.ts'

const BOB = 'b0b0b0'.padEnd(64, '1')
const BOBS_LIKE = 'b0b0b0'.padEnd(64, '2')
const OWN = 'c'.repeat(64)
const STRANGER = 'd'.repeat(64)
const ID = '01a1fafc-9b07-75d0-b2a2-40e3bc3046cc'

const contact = (name: string, agent_id: string): Contact => ({
  name,
  agent_id,
  trust: 'known',
  machines: [],
  addresses: [],
  formerly: [],
  labels: {},
  agent_public_key: null,
  card_issued_at_ms: null,
})
const known: ResolvableAgents = { own: OWN, contacts: [contact('bob', BOB), contact('like-bob', BOBS_LIKE)] }

const hello = Buffer.from('hello')
const stdin = { len: 5, pieces: [sha256(hello)] }
const proven = { agent_id: BOB, argv: ['cat', '-'], timeout_ms: 1_000, cwd: '/tmp', clamp: true, request_id: ID }
const toSign: RequestToSign = {
  request_id: ID,
  to_agent: BOB,
  argv: ['cat', '-'],
  stdin: null,
  timeout_ms: 1_000,
  cwd: '/tmp',
  clamp: true,
  detach: null,
  terminal: null,
}

const check = (object: unknown, request: RequestToSign = toSign): void =>
  checkProvenRequest(Buffer.from(typeof object === 'string' ? object : JSON.stringify(object)), request, known)
const refusedFor = (what: RegExp) => (error: unknown) => isAppError(error, 'operator_proof_required') && what.test(error.message)
const bad = (error: unknown): boolean => isAppError(error, 'bad_request')

test('the keys of a proven request are those of the API', () => {
  assert.deepEqual(REQUEST_KEYS.toSorted(), [...Object.keys(runRequest.shape), 'terminal'].toSorted())
})

test('a request that equals the proven one passes, and absent fields have the defaults of the API', () => {
  check(proven)
  check(JSON.stringify(proven, null, 2))
  const least = { ...toSign, timeout_ms: null, cwd: null, clamp: false }
  check({ agent_id: BOB, argv: ['cat', '-'] }, least)
  check({ agent_id: BOB, argv: ['cat', '-'] }, { ...least, request_id: '01a1fafc-9b07-75d0-b2a2-40e3bc3046cd' })
})

test('a request with a changed, added or missing field is refused', () => {
  const changes: [Partial<RequestToSign>, RegExp][] = [
    [{ to_agent: BOBS_LIKE }, /: agent differ/],
    [{ argv: ['cat'] }, /: argv differ/],
    [{ argv: ['cat', '-', ''] }, /: argv differ/],
    [{ argv: ['-', 'cat'] }, /: argv differ/],
    [{ argv: ['cat', '\u2212'] }, /: argv differ/],
    [{ argv: [] }, /: argv differ/],
    [{ timeout_ms: 1_001 }, /: timeout_ms differ/],
    [{ timeout_ms: null }, /: timeout_ms differ/],
    [{ cwd: '/' }, /: cwd differ/],
    [{ terminal: { columns: 80, rows: 24, term: 'xterm' } }, /: terminal differ/],
    [{ cwd: null }, /: cwd differ/],
    [{ clamp: false }, /: clamp differ/],
    [{ request_id: '01a1fafc-9b07-75d0-b2a2-40e3bc3046cd' }, /: request_id differ/],
    [{ stdin }, /without stdin/],
    [{ stdin: { len: 0, pieces: pieceHashes() } }, /without stdin/],
  ]
  for (const [change, what] of changes)
    assert.throws(() => check(proven, { ...toSign, ...change }), refusedFor(what), JSON.stringify(change))
  for (const key of ['timeout_ms', 'cwd', 'clamp'] as const) {
    const { [key]: _left, ...rest } = proven
    assert.throws(() => check(rest), refusedFor(new RegExp(`: ${key} differ`)), key)
  }
  assert.throws(() => check(proven, { ...toSign, argv: ['cat', '+'], cwd: null }), refusedFor(/: argv, cwd differ/))
})

test('a token that is not valid Unicode matches no token', () => {
  assert.throws(() => check('{"agent_id":"' + BOB + '","argv":["\\ud800"]}', { ...toSign, argv: ['\ufffd'] }), refusedFor(/argv/))
})

test('stdin is pinned as a whole or by length and hash, and cannot be removed, replaced or cut', () => {
  const whole = { ...proven, stdin_b64: 'aGVsbG8=' }
  const pinned = { ...proven, stdin_len: 5, stdin_sha256: stdin.pieces.map(toHex) }
  for (const object of [whole, pinned]) {
    check(object, { ...toSign, stdin })
    for (const other of [null, { ...stdin, len: 4 }, { len: 5, pieces: pieceHashes(Buffer.from('HELLO')) }])
      assert.throws(() => check(object, { ...toSign, stdin: other }), refusedFor(/: stdin differ/))
  }
  const empty = { len: 0, pieces: pieceHashes() }
  check({ ...proven, stdin_b64: '' }, { ...toSign, stdin: empty })
  check({ ...proven, stdin_len: 0, stdin_sha256: empty.pieces.map(toHex) }, { ...toSign, stdin: empty })
  for (const object of [
    { ...pinned, stdin_b64: 'aGVsbG8=' },
    { ...proven, stdin_len: 5 },
    { ...proven, stdin_sha256: pinned.stdin_sha256 },
    { ...pinned, stdin_sha256: pinned.stdin_sha256[0] },
    { ...pinned, stdin_sha256: [] },
    { ...pinned, stdin_sha256: [...pinned.stdin_sha256, ...pinned.stdin_sha256] },
    { ...pinned, stdin_sha256: pinned.stdin_sha256.map((hash) => hash.toUpperCase()) },
    { ...pinned, stdin_len: -1 },
    { ...pinned, stdin_len: 5.5 },
    { ...proven, stdin_b64: 'aGVsbG8' },
    { ...proven, stdin_b64: 'aGVs bG8=' },
  ])
    assert.throws(() => check(object, { ...toSign, stdin }), bad, JSON.stringify(object))
})

test('a contact may be named by name or ID prefix, but an unlisted agent only by full ID', () => {
  const { agent_id: _id, ...rest } = proven
  const named = (agent: string, to_agent: string): void => check({ ...rest, agent }, { ...toSign, to_agent })
  named('bob', BOB)
  named(BOB, BOB)
  named(BOB.slice(0, 7), BOB)
  named(STRANGER, STRANGER)
  named(OWN.slice(0, 6), OWN)
  assert.throws(() => named('bob', STRANGER), refusedFor(/: agent differ/))
  assert.throws(() => named('b0b0b0', BOB), refusedFor(/more than one contact: give the whole id/))
  assert.throws(
    () => named(STRANGER.slice(0, 20), STRANGER),
    refusedFor(/neither a contact nor the beginning of the id of one: give the whole id/),
  )
  assert.throws(() => named(BOB.slice(0, 5), BOB), refusedFor(/give the whole id/))
  assert.throws(() => named('nobody', BOB), refusedFor(/give the whole id/))
  assert.throws(() => check(rest), bad)
  assert.throws(() => check({ ...proven, agent: 'bob' }), bad)
  assert.throws(() => check({ ...proven, agent_id: 'bob' }), bad)
})

test('null equals an absent field, and does not match a given value', () => {
  const { agent_id, argv } = proven
  const bare = {
    agent_id,
    agent: null,
    argv,
    stdin_b64: null,
    stdin_len: null,
    stdin_sha256: null,
    timeout_ms: null,
    cwd: null,
    clamp: null,
    request_id: null,
  }
  checkProvenRequest(Buffer.from(JSON.stringify(bare)), { ...toSign, stdin: null, timeout_ms: null, cwd: null, clamp: false }, known)
  for (const key of ['timeout_ms', 'cwd', 'clamp'] as const)
    assert.throws(() => check({ ...proven, [key]: null }), refusedFor(new RegExp(key)))
})

test('an object that is not a run request of the API is refused', () => {
  for (const object of [
    '',
    'nothing',
    'null',
    '[]',
    '\ufeff' + JSON.stringify(proven),
    { ...proven, env: {} },
    '{"__proto__":{"argv":[]},"agent_id":"' + BOB + '"}',
    { ...proven, argv: 'cat -' },
    { ...proven, argv: ['cat', 1] },
    { agent_id: BOB },
    { ...proven, timeout_ms: '1000' },
    { ...proven, argv: null },
    { ...proven, clamp: 1 },
    { ...proven, request_id: 7 },
  ])
    assert.throws(() => check(object), bad, JSON.stringify(object))
  assert.throws(() => checkProvenRequest(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), toSign, known), bad)
})

test('a proof also covers whether a run is detached, its lifetime and its kept bytes', () => {
  const detached = { ...toSign, timeout_ms: null, detach: { lifetime_ms: 60_000, keep_bytes: null } }
  const object = { ...proven, timeout_ms: null }
  check({ ...object, detach: { lifetime_ms: 60_000 } }, detached)
  check({ ...object, detach: null }, { ...toSign, timeout_ms: null })
  const other = refusedFor(/: detach differ/)
  assert.throws(() => check(object, detached), other)
  assert.throws(() => check({ ...proven, detach: {} }), other)
  assert.throws(() => check({ ...object, detach: { lifetime_ms: 60_001 } }, detached), other)
  assert.throws(() => check({ ...object, detach: { lifetime_ms: 60_000, keep_bytes: 1 } }, detached), other)
  assert.throws(() => check({ ...object, detach: { lifetime_ms: '60' } }, detached), bad)
  assert.throws(() => check({ ...object, detach: { for_ever: true } }, detached), bad)
  assert.throws(() => check({ ...object, detach: [] }, detached), bad)
})
