import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { systemClock } from '../../src/base/clock.ts'
import { isAppError } from '../../src/base/errors.ts'
import { DmChannel } from '../../src/links/channel.ts'
import { DmCounters } from '../../src/links/counters.ts'
import { FrameStream } from '../../src/links/frame-stream.ts'
import type { Link } from '../../src/links/link.ts'
import { newRequestId } from '../../src/identity/request-id.ts'
import { SealingKey } from '../../src/identity/link-crypto.ts'
import { randomBytes } from '../../src/identity/hash.ts'
import type { MeshStream } from '../../src/mesh/stream.ts'
import { envelope, MESSAGE_PREFIX } from '../../src/protocol/wire/dm.ts'
import { encodeFrame } from '../../src/protocol/wire/framing.ts'
import { MAX_FRAME_DATA, MAX_LINK_FRAME, MAX_SEALED_FRAME } from '../../src/protocol/limits/wire.ts'

/** One end of a stream in memory. The tests inject the data of the other end. */
class FakeStream {
  onData: (chunk: Uint8Array) => void = () => undefined
  onEnd: (error: Error | null) => void = () => undefined
  open = true
  readonly sent: Uint8Array[] = []

  send(bytes: Uint8Array): boolean {
    this.sent.push(bytes)
    return true
  }

  hold(): void {}
  resume(): void {}
  async drained(): Promise<void> {}

  async close(): Promise<void> {
    this.open = false
  }

  abort(reason: Error): void {
    if (!this.open) return
    this.open = false
    this.onEnd(reason)
  }
}

const ALICE = 'a1'.repeat(32)
const BOB = 'b0'.repeat(32)
const body = Buffer.concat([MESSAGE_PREFIX, Buffer.from('hello')])

const setUp = () => {
  const stream = new FakeStream()
  const frames = new FrameStream({ stream: stream as unknown as MeshStream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
  const counters = new DmCounters()
  const facts = { agentId: ALICE, machineId: 'cc'.repeat(32), agentPublicKey: new Uint8Array(1952), number: 1, heard: 0 }
  const link: Link = { ...facts, path: { address: '', inbound: false, relay: null }, decision: 'accept' }
  const keys = { opener: randomBytes(32), responder: randomBytes(32) }
  const channel = new DmChannel(
    { frames, link, counters, clock: systemClock },
    { self: BOB, opener: false, keys, streamNonce: randomBytes(32) },
  )
  const bodies: Uint8Array[] = []
  const ends: (Error | null)[] = []
  channel.onBody = (_id, received) => bodies.push(received)
  channel.onClosed = (error) => ends.push(error)
  channel.listen()
  const seal = new SealingKey(keys.opener)
  const sealed = (over: Partial<Parameters<typeof envelope.encode>[0]> = {}): Uint8Array =>
    Buffer.concat(
      seal.seal(
        envelope.encode({ version: 1, from_agent: ALICE, to_agent: BOB, request_id: newRequestId(), created_at_ms: 1, body, ...over }),
      ),
    )
  return { stream, channel, counters, bodies, ends, sealed, keys }
}

const assertAborted = ({ stream, counters, ends, bodies }: ReturnType<typeof setUp>, received = 0): void => {
  assert.equal(stream.open, false)
  assert.equal(ends.length, 1)
  assert.ok(isAppError(ends[0], 'malformed'), String(ends[0]))
  assert.equal(counters.get('malformed_frames'), 1)
  assert.equal(bodies.length, received)
}

test('sealed envelopes from the peer are opened in order', () => {
  const parts = setUp()
  for (let i = 0; i < 3; i++) parts.stream.onData(encodeFrame(parts.sealed()))
  assert.deepEqual(
    parts.bodies.map((one) => Buffer.from(one)),
    [body, body, body],
  )
  assert.equal(parts.counters.get('sealed_frames_received'), 3)
})

test('an envelope between other agents ends the stream', () => {
  for (const over of [{ from_agent: BOB }, { to_agent: ALICE }, { from_agent: 'dd'.repeat(32) }]) {
    const parts = setUp()
    parts.stream.onData(encodeFrame(parts.sealed(over)))
    assertAborted(parts)
  }
})

test('a repeated, missing, altered or reflected frame ends the stream', () => {
  const repeated = setUp()
  const once = encodeFrame(repeated.sealed())
  repeated.stream.onData(once)
  repeated.stream.onData(once)
  assertAborted(repeated, 1)
  const skipped = setUp()
  skipped.sealed()
  skipped.stream.onData(encodeFrame(skipped.sealed()))
  assertAborted(skipped)
  const altered = setUp()
  const bytes = altered.sealed()
  bytes[0]! ^= 1
  altered.stream.onData(encodeFrame(bytes))
  assertAborted(altered)
  const reflected = setUp()
  reflected.channel.send(newRequestId(), body)
  reflected.stream.onData(reflected.stream.sent[0]!)
  assertAborted(reflected)
})

test('a frame longer than the limit, and a stream that ends inside a frame, are malformed', () => {
  const long = setUp()
  const head = Buffer.alloc(4)
  head.writeUInt32BE(MAX_SEALED_FRAME + 1)
  long.stream.onData(head)
  assertAborted(long)
  const cut = setUp()
  cut.stream.onData(encodeFrame(cut.sealed()).subarray(0, 20))
  cut.stream.onEnd(null)
  assert.ok(isAppError(cut.ends[0], 'malformed'))
})

test('a stream that ends between frames ends once and without an error, even for a late listener', async () => {
  const { stream, channel, ends, sealed } = setUp()
  stream.onData(encodeFrame(sealed()))
  stream.onEnd(null)
  stream.onEnd(new Error('again'))
  assert.deepEqual(ends, [null])
  const late = await new Promise((resolve) => (channel.onClosed = resolve))
  assert.equal(late, null)
  assert.equal(channel.send(newRequestId(), body), true)
  assert.equal(stream.sent.length, 0)
})

test('a body that does not fit into a frame is refused before it is sent', () => {
  const { channel, stream } = setUp()
  assert.throws(
    () => channel.send(newRequestId(), new Uint8Array(MAX_SEALED_FRAME - 100)),
    (error) => isAppError(error, 'too_large'),
  )
  assert.equal(stream.sent.length, 0)
})

test('any bytes sealed with the right key are either a body or end the stream as malformed', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), fc.array(fc.nat(500), { maxLength: 4 }), fc.boolean(), (noise, cuts, mutate) => {
      const parts = setUp()
      const plain = envelope.encode({ version: 1, from_agent: ALICE, to_agent: BOB, request_id: newRequestId(), created_at_ms: 7, body })
      if (mutate) for (const cut of cuts) plain[cut % plain.length]! ^= 1 + (cut % 255)
      const frame = encodeFrame(...new SealingKey(parts.keys.opener).seal(mutate ? plain : noise))
      for (let at = 0; at < frame.length; at += 37) parts.stream.onData(frame.subarray(at, at + 37))
      assert.equal(parts.bodies.length + parts.counters.get('malformed_frames'), 1)
    }),
    { seed: 20260101, numRuns: 500 },
  )
})

test('unsealed bytes deliver no body and end the stream at most once', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 8 }), (chunks) => {
      const parts = setUp()
      for (const chunk of chunks) parts.stream.onData(chunk)
      assert.equal(parts.bodies.length, 0)
      assert.ok(parts.ends.length <= 1)
    }),
    { seed: 20260102, numRuns: 500 },
  )
})

test('the bytes of a large body are copied only once before they are sealed', (t) => {
  const { channel, stream } = setUp()
  const large = randomBytes(MAX_FRAME_DATA)
  const [concat, alloc] = [t.mock.method(Buffer, 'concat').mock, t.mock.method(Buffer, 'allocUnsafe').mock]
  channel.send(newRequestId(), MESSAGE_PREFIX, large)
  assert.equal(concat.callCount(), 0)
  assert.deepEqual(
    alloc.calls.map(({ arguments: [size] }) => size).filter((size) => size >= large.length),
    [stream.sent[0]!.length],
  )
})
