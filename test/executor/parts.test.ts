import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { Lease } from '../../src/executor/lease.ts'
import { Nonces } from '../../src/executor/nonces.ts'
import { OperatorGate } from '../../src/executor/operator-gate.ts'
import { StdinFeed } from '../../src/executor/stdin-feed.ts'
import { TokenBucket } from '../../src/base/token-bucket.ts'
import { randomBytes, sha256 } from '../../src/identity/hash.ts'
import { proveOperation } from '../../src/identity/operator-proof.ts'
import type { StdinSink } from '../../src/process/stdin.ts'
import { ACK_EVERY_MS, LEASE_EXPIRES_MS, MAX_FRAME_DATA, MAX_NONCES_PER_PEER, MAX_STDIN_UNACKED } from '../../src/protocol/limits.ts'
import { MAX_USED_PROOFS, OPERATOR_PROOF_MS } from '../../src/protocol/local-limits.ts'
import { ManualClock } from '../support/manual-clock.ts'

const malformed = (error: unknown): boolean => isAppError(error, 'malformed')
const unproven = (error: unknown): boolean => isAppError(error, 'operator_proof_required')

test('a nonce is good once, for the pair it was given to', () => {
  const nonces = new Nonces()
  const [nonce] = nonces.mint('a', 1)
  assert.equal(nonces.consume('b', nonce!), false)
  assert.equal(nonces.consume('a', nonce!), true)
  assert.equal(nonces.consume('a', nonce!), false)
  assert.equal(nonces.consume('a', randomBytes(32)), false)
})

test('a pair holds no more nonces than the limit: its oldest become void, and nobody else is touched', () => {
  const nonces = new Nonces()
  const [other] = nonces.mint('b', 1)
  const first = nonces.mint('a', MAX_NONCES_PER_PEER)
  const [last] = nonces.mint('a', 1)
  assert.equal(nonces.consume('a', first[0]!), false)
  assert.equal(nonces.consume('a', first[1]!), true)
  assert.equal(nonces.consume('a', last!), true)
  assert.equal(nonces.consume('b', other!), true)
  nonces.forget('a', true)
  assert.equal(nonces.consume('a', first[2]!), false)
})

test('a lease expires after silence, and only then', async () => {
  const clock = new ManualClock()
  let expired = 0
  const lease = new Lease({ clock }, { onExpired: () => expired++ })
  await clock.advance(LEASE_EXPIRES_MS - 1)
  lease.renew()
  await clock.advance(LEASE_EXPIRES_MS - 1)
  assert.equal(expired, 0)
  await clock.advance(1)
  assert.equal(expired, 1)
  assert.equal(clock.pending, 0)
})

test('a stopped lease leaves no timer behind', () => {
  const clock = new ManualClock()
  new Lease({ clock }, { onExpired: () => assert.fail('expired') }).stop()
  assert.equal(clock.pending, 0)
})

test('a token bucket gives its burst, then its rate, and never more than the burst', async () => {
  const clock = new ManualClock()
  const bucket = new TokenBucket({ clock }, { burst: 3, perSecond: 10 })
  assert.deepEqual(
    [1, 2, 3, 4].map(() => bucket.take()),
    [true, true, true, false],
  )
  await clock.advance(100)
  assert.deepEqual(
    [1, 2].map(() => bucket.take()),
    [true, false],
  )
  await clock.advance(60_000)
  assert.deepEqual(
    [1, 2, 3, 4].map(() => bucket.take()),
    [true, true, true, false],
  )
  await clock.advance(200)
  assert.deepEqual(
    [3, 2, 1].map((count) => bucket.take(count)),
    [false, true, false],
  )
})

/** A pipe that takes a chunk when it is told to. */
const slowSink = () => {
  const taken: Uint8Array[] = []
  const writes: (() => void)[] = []
  const state = { ended: false }
  const sink = {
    write: (data: Uint8Array) => {
      taken.push(Buffer.from(data))
      return new Promise<void>((resolve) => writes.push(resolve))
    },
    end: () => (state.ended = true),
    destroy: () => undefined,
  }
  return { sink: sink as unknown as StdinSink, taken, state, next: () => writes.shift()?.() }
}

const feedOf = (data: Uint8Array, clock = new ManualClock()) => {
  const acks: number[] = []
  let mismatches = 0
  const feed = new StdinFeed(
    { clock },
    { announced: { len: data.length, sha256: sha256(data) }, onAck: (next) => acks.push(next), onMismatch: () => mismatches++ },
  )
  return { feed, acks, clock, mismatches: () => mismatches }
}

test('stdin is acknowledged when the child has taken it, not when it arrives', async () => {
  const { feed, acks, clock } = feedOf(Buffer.from('abcd'))
  const { sink, taken, state, next } = slowSink()
  feed.accept({ seq: 0, data: Buffer.from('ab'), eof: false })
  feed.attach(sink)
  await clock.advance(ACK_EVERY_MS * 2)
  assert.deepEqual(acks, [])
  next()
  await new Promise(setImmediate)
  assert.deepEqual(acks, [])
  await clock.advance(ACK_EVERY_MS)
  assert.deepEqual(acks, [1])
  feed.accept({ seq: 1, data: Buffer.from('cd'), eof: true })
  next()
  await new Promise(setImmediate)
  assert.deepEqual(acks, [1, 2])
  assert.equal(state.ended, true)
  assert.equal(Buffer.concat(taken).toString(), 'abcd')
  assert.equal(clock.pending, 0)
})

test('stdin out of order, after its end, empty, or beyond the window is malformed', () => {
  const big = new Uint8Array(MAX_STDIN_UNACKED + 3 * MAX_FRAME_DATA)
  const frame = { seq: 0, data: big.subarray(0, 2), eof: false }
  assert.throws(() => feedOf(big).feed.accept({ ...frame, seq: 1 }), malformed)
  assert.throws(() => feedOf(big).feed.accept({ ...frame, data: new Uint8Array(0) }), malformed)
  const { feed } = feedOf(big.subarray(0, 2))
  feed.accept({ ...frame, eof: true })
  assert.throws(() => feed.accept({ ...frame, seq: 1 }), malformed)
  const full = feedOf(big).feed
  let seq = 0
  for (let at = 0; at + MAX_FRAME_DATA <= MAX_STDIN_UNACKED + MAX_FRAME_DATA; at += MAX_FRAME_DATA)
    full.accept({ seq: seq++, data: big.subarray(0, MAX_FRAME_DATA), eof: false })
  assert.throws(() => full.accept({ seq, data: big.subarray(0, MAX_FRAME_DATA), eof: false }), malformed)
})

test('a flood of one-byte frames is joined and arrives in order', async () => {
  const data = Buffer.from(Array.from({ length: 20_000 }, (_, i) => i & 0xff))
  const { feed, acks } = feedOf(data)
  const { sink, taken, next } = slowSink()
  feed.attach(sink)
  data.forEach((_, seq) => feed.accept({ seq, data: data.subarray(seq, seq + 1), eof: seq === data.length - 1 }))
  while (Buffer.concat(taken).length < data.length || acks.length === 0) {
    next()
    await new Promise(setImmediate)
  }
  assert.ok(taken.length < 20)
  assert.deepEqual(Buffer.concat(taken), data)
  assert.deepEqual(acks, [20_000])
})

test('a mismatch is told once, and what follows is ignored', () => {
  const { feed, mismatches } = feedOf(Buffer.from('abcd'))
  feed.accept({ seq: 0, data: Buffer.from('abcde'), eof: false })
  feed.accept({ seq: 7, data: Buffer.from('x'), eof: true })
  assert.equal(mismatches(), 1)
})

test("an operator's proof is good once, for its operation and body, for a minute", async () => {
  const clock = new ManualClock()
  const key = randomBytes(32)
  const gate = new OperatorGate({ clock }, { key })
  const body = Buffer.from('{}')
  const proof = proveOperation(key, 'contact_trust', body, clock.now())
  assert.throws(() => gate.check('contact_trust', body, ''), unproven)
  assert.throws(() => gate.check('contact_trust', body, 'v1.nonsense'), unproven)
  assert.throws(() => gate.check('contact_pin', body, proof), unproven)
  assert.throws(() => gate.check('contact_trust', Buffer.from('{ }'), proof), unproven)
  assert.throws(() => gate.check('contact_trust', body, proveOperation(randomBytes(32), 'contact_trust', body, clock.now())), unproven)
  gate.check('contact_trust', body, proof)
  assert.throws(() => gate.check('contact_trust', body, proof), /used before/)
  const old = proveOperation(key, 'contact_trust', body, clock.now())
  await clock.advance(OPERATOR_PROOF_MS)
  gate.check('contact_trust', body, old)
  const older = proveOperation(key, 'contact_trust', body, clock.now())
  await clock.advance(OPERATOR_PROOF_MS + 1)
  assert.throws(() => gate.check('contact_trust', body, older), unproven)
  assert.throws(() => gate.check('contact_trust', body, old), unproven)
})

test('a proof from before the start of the gate is refused: the gate before may have let it through', async () => {
  const clock = new ManualClock()
  const key = randomBytes(32)
  const body = Buffer.from('{}')
  const before = proveOperation(key, 'contact_trust', body, clock.now())
  await clock.advance(1)
  const gate = new OperatorGate({ clock }, { key })
  assert.throws(() => gate.check('contact_trust', body, before), /before this daemon was started/)
  gate.check('contact_trust', body, proveOperation(key, 'contact_trust', body, clock.now()))
})

test('a proof dated ahead is remembered for as long as it is fresh', async () => {
  const clock = new ManualClock()
  const key = randomBytes(32)
  const gate = new OperatorGate({ clock }, { key })
  const body = Buffer.from('{}')
  const ahead = proveOperation(key, 'contact_trust', body, clock.now() + OPERATOR_PROOF_MS)
  gate.check('contact_trust', body, ahead)
  await clock.advance(2 * OPERATOR_PROOF_MS)
  assert.throws(() => gate.check('contact_trust', body, ahead), /used before/)
  await clock.advance(1)
  assert.throws(() => gate.check('contact_trust', body, ahead), /older than a minute/)
})

test('so many proofs are remembered and no more, and what is forgotten makes room', async () => {
  const clock = new ManualClock()
  const key = randomBytes(32)
  const gate = new OperatorGate({ clock }, { key })
  const body = Buffer.from('{}')
  const use = (): void => gate.check('exec_run', body, proveOperation(key, 'exec_run', body, clock.now()))
  use()
  await clock.advance(1)
  for (let used = 1; used < MAX_USED_PROOFS; used += 1) use()
  assert.throws(use, (error) => isAppError(error, 'rate_limited'))
  await clock.advance(2 * OPERATOR_PROOF_MS)
  use()
  assert.throws(use, (error) => isAppError(error, 'rate_limited'))
  await clock.advance(1)
  use()
})
