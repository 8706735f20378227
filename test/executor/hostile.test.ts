import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { duplexPair, type Duplex } from 'node:stream'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { isVisible } from '../../src/base/visible-text.ts'
import { ExecutorChannel } from '../../src/executor-api/channel.ts'
import {
  OPERATIONS,
  PORT_VERSION,
  QUERIES,
  toExecutor,
  toNetwork,
  type ToExecutor,
  type ToNetwork,
} from '../../src/executor-api/messages.ts'
import { encodeCbor } from '../../src/protocol/wire/cbor.ts'
import { execFrame } from '../../src/protocol/wire/exec.ts'
import { encodeFrame } from '../../src/protocol/wire/framing.ts'
import { KEM_PUBLIC_KEY_BYTES, MAX_PORT_CALLS, MAX_PORT_MESSAGE } from '../../src/protocol/limits/wire.ts'
import { HTTP_REFUSALS } from '../../src/protocol/reasons.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { FakeLink, newParty } from '../support/fake-network.ts'
import { until } from '../support/processes.ts'
import { REFUSAL_LINES } from '../../src/journal/refusals.ts'

const HEX = '00'.repeat(32)
const ID = '01890a5d-ac96-774b-bcce-b302099a8057'

/** A network process that sends arbitrary messages. */
const rawNetworkProcess = (
  host: ExecutorHost,
): { duplex: Duplex; channel: ExecutorChannel<ToNetwork, ToExecutor>; heard: ToNetwork[]; closed: Promise<Error | null> } => {
  const [ours, duplex] = duplexPair()
  const session = host.executor.attach(ours)
  const heard: ToNetwork[] = []
  const channel = new ExecutorChannel(
    { duplex, incoming: toNetwork, outgoing: toExecutor },
    { onMessage: (message) => heard.push(message), onMalformed: () => assert.fail(), onClosed: () => undefined, holdWhenBehind: false },
  )
  return { duplex, channel, heard, closed: session.closed }
}

const greeted = async (t: TestContext): Promise<ReturnType<typeof rawNetworkProcess> & { host: ExecutorHost }> => {
  const host = await ExecutorHost.start(t)
  const raw = rawNetworkProcess(host)
  raw.channel.send({ type: 'hello', id: 1, version: PORT_VERSION })
  await heardOf(raw.heard, 2)
  return { ...raw, host }
}

const heardOf = async (heard: readonly ToNetwork[], count: number): Promise<void> => {
  while (heard.length < count) await new Promise(setImmediate)
}

test('a channel that does not begin with hello is closed', async (t) => {
  const host = await ExecutorHost.start(t)
  const raw = rawNetworkProcess(host)
  raw.channel.send({ type: 'query', id: 1, what: 'contacts' })
  assert.ok(isAppError(await raw.closed, 'malformed'))
  assert.deepEqual(raw.heard, [])
})

test('a hello with another protocol version is refused', async (t) => {
  const host = await ExecutorHost.start(t)
  const raw = rawNetworkProcess(host)
  raw.channel.send({ type: 'hello', id: 1, version: PORT_VERSION + 1 })
  await heardOf(raw.heard, 1)
  assert.equal(raw.heard[0]?.type === 'failed' && raw.heard[0].code, 'conflict')
  raw.channel.send({ type: 'query', id: 2, what: 'contacts' })
  assert.ok(isAppError(await raw.closed, 'malformed'))
})

test('invalid CBOR or a too large length closes only its own channel', async (t) => {
  const host = await ExecutorHost.start(t)
  const head = Buffer.alloc(4)
  head.writeUInt32BE(MAX_PORT_MESSAGE + 1)
  for (const bytes of [encodeFrame(Buffer.from([0xff])), encodeFrame(encodeCbor('text')), head]) {
    const raw = rawNetworkProcess(host)
    raw.duplex.write(bytes)
    assert.ok(isAppError(await raw.closed, 'malformed'))
  }
  await (await host.connect()).client.query('contacts')
})

test('a call that does not match its schema fails with its number, and the channel stays open', async (t) => {
  const { host, duplex, channel, heard } = await greeted(t)
  duplex.write(encodeFrame(encodeCbor([15, 77, 'everything'])))
  duplex.write(encodeFrame(encodeCbor([99, 78])))
  await heardOf(heard, 4)
  assert.deepEqual(
    heard.slice(2).map((message) => message.type === 'failed' && [message.id, message.code]),
    [
      [77, 'bad_request'],
      [78, 'bad_request'],
    ],
  )
  duplex.write(encodeFrame(encodeCbor([6, 'no link'])))
  assert.equal(host.totals().malformed_frames >= 2, true)
  channel.close()
})

test('a run that is opened with invalid data is closed', async (t) => {
  const { host, duplex, channel, heard } = await greeted(t)
  duplex.write(encodeFrame(encodeCbor([11, 5])))
  channel.send({ type: 'run_open', run: 6, link: 4711, stream_nonce: new Uint8Array(32), frame: Buffer.from('x') })
  channel.send({ type: 'run_open', run: 7, link: 0, stream_nonce: new Uint8Array(32), frame: Buffer.from('x') })
  await heardOf(heard, 5)
  assert.deepEqual(
    heard.slice(2),
    [5, 6, 7].map((run) => ({ type: 'run_closed', run })),
  )
  assert.equal(host.totals().malformed_frames, 3)
  channel.send({ type: 'run_frame', run: 7, frame: Buffer.from('late') })
  channel.send({ type: 'run_lost', run: 4711 })
  channel.send({ type: 'query', id: 9, what: 'contacts' })
  await heardOf(heard, 6)
  assert.equal(host.totals().malformed_frames, 3)
})

test('a run number in use cannot be opened again', async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t, { scripts: { waits: 'echo ready; exec sleep 60' } })
  const run = await link.ask([host.program('waits')])
  await run.frame('stdout')
  network.duplex.write(
    encodeFrame(
      toExecutor.encode({ type: 'run_open', run: 1, link: link.number, stream_nonce: await link.nonce(), frame: Buffer.from('x') }),
    ),
  )
  await network.client.query('contacts')
  assert.equal(host.totals().malformed_frames, 1)
  run.cancel()
  await run.exit()
})

test('calls on unknown or closed links fail', async (t) => {
  const { network, link } = await ExecutorHost.linked(t)
  const missing = (error: unknown): boolean => isAppError(error, 'not_found')
  await assert.rejects(network.client.mintNonces(99, 1), missing)
  network.client.linkClosed(link.number)
  network.client.linkClosed(0)
  network.client.dropNonces(99, [])
  await assert.rejects(network.client.mintNonces(link.number, 1), missing)
  await assert.rejects(network.client.revocations(link.number, []), missing)
  // The link of the daemon to itself cannot be closed.
  assert.equal((await network.client.mintNonces(0, 1)).length, 1)
})

test('calls above the limit are refused instead of queued', async (t) => {
  const { network } = await ExecutorHost.linked(t)
  const peer_machine = newParty().machine.machineId
  const calls = Array.from({ length: MAX_PORT_CALLS + 50 }, () => network.client.query('acl_status'))
  const outcomes = await Promise.allSettled(calls)
  const refused = outcomes.filter((one) => one.status === 'rejected')
  assert.ok(refused.length > 0)
  assert.ok(refused.every((one) => one.status === 'rejected' && isAppError(one.reason, 'rate_limited')))
  await network.client.linkOpen({ peer_machine, kem_public_key: new Uint8Array(KEM_PUBLIC_KEY_BYTES) })
})

test('a network process can run commands that the ACL grants its own daemon, unless operator proof is required', async (t) => {
  for (const requireOperatorProof of [false, true]) {
    const { host, network } = await ExecutorHost.linked(t, { listOwn: true, requireOperatorProof })
    const [stream_nonce] = await network.client.mintNonces(0, 1)
    assert.ok(stream_nonce)
    const call = {
      link: 0,
      request_id: ID,
      stream_nonce,
      argv: [host.program('hello')],
      stdin: null,
      timeout_ms: null,
      cwd: null,
      clamp: false,
    }
    const signed = await network.client.signRequest(call).catch((error: unknown) => {
      assert.ok(isAppError(error, 'operator_proof_required'))
      return null
    })
    assert.equal(signed === null, requireOperatorProof)
    if (signed === null) continue
    const run = network.client.openRun(0, stream_nonce, execFrame.encode({ type: 'request', ...signed }))
    await new Promise<void>((resolve) => (run.onClosed = resolve))
    assert.equal(host.totals().sessions_started, 1)
  }
})

test('an argv that is too long for a Request is not signed', async (t) => {
  const { network } = await ExecutorHost.linked(t)
  const argv = Array.from({ length: 3 }, () => 'x'.repeat(16_000))
  const call = { link: 0, request_id: ID, stream_nonce: new Uint8Array(32), argv, stdin: null, timeout_ms: null, cwd: null, clamp: false }
  await assert.rejects(network.client.signRequest(call), (error) => isAppError(error, 'malformed'))
})

test('log lines of refused HTTP calls are limited and contain no control characters', async (t) => {
  const { channel, host } = await greeted(t)
  const worst = '\u0007"\u202e\n'.repeat(42)
  const refusal = {
    type: 'http_refused',
    code: 'unauthorized',
    method: worst,
    path: worst,
    host: worst,
    origin: worst,
    remote: worst,
  } as const
  for (let count = 0; count < 20 * REFUSAL_LINES.burst; count++) channel.send(refusal)
  channel.send({ type: 'query', id: 9, what: 'contacts' })
  await until(async () => (await host.lines()).length >= REFUSAL_LINES.burst)
  const lines = (await readFile(host.journalPath, 'utf8')).split('\n').filter((line) => line.includes('"http_refused"'))
  assert.ok(lines.length < REFUSAL_LINES.burst + 100, `${lines.length} lines`)
  for (const line of lines) assert.ok(line.length < 4_096 && isVisible(line) && !line.includes('\\u'))
})

const nonce = fc.uint8Array({ minLength: 32, maxLength: 32 })
const small = fc.nat({ max: 3 })
const someFrame = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 60 }),
  fc.constantFrom(
    execFrame.encode({ type: 'cancel', request_id: ID }),
    execFrame.encode({ type: 'resume', request_id: ID, stdout: 0, stderr: 0, request_nonce: new Uint8Array(32) }),
    execFrame.encode({ type: 'ack', request_id: ID, stdin: 1, stdout: 1, stderr: 1 }),
    execFrame.encode({ type: 'request', body: Buffer.from('x'), signature: new Uint8Array(3309) }),
    execFrame.encode({ type: 'rules_request', body: Buffer.from('x'), signature: new Uint8Array(3309) }),
    execFrame.encode({ type: 'rules', body: Buffer.from('x'), signature: new Uint8Array(3309) }),
  ),
)
const anyMessage: fc.Arbitrary<ToExecutor> = fc.oneof(
  fc.record({ type: fc.constant('hello' as const), id: small, version: small }),
  fc.record({ type: fc.constant('settings' as const), id: small }),
  fc.record({ type: fc.constant('network_ready' as const), api_port: fc.nat(65_535) }),
  fc.record({ type: fc.constant('network_failed' as const), code: fc.string({ maxLength: 16 }), message: fc.string({ maxLength: 64 }) }),
  fc.record({
    type: fc.constant('http_refused' as const),
    code: fc.constantFrom(...HTTP_REFUSALS),
    method: fc.string({ maxLength: 8 }),
    path: fc.string({ maxLength: 20, unit: 'binary' }),
    host: fc.constant(null),
    origin: fc.option(fc.string({ maxLength: 8 })),
    remote: fc.constant('127.0.0.1'),
  }),
  fc.record({ type: fc.constant('link_confirm' as const), id: small, handle: small, m2: fc.uint8Array({ minLength: 1, maxLength: 40 }) }),
  fc.record({ type: fc.constant('link_dropped' as const), handle: small }),
  fc.record({ type: fc.constant('link_closed' as const), link: small }),
  fc.record({ type: fc.constant('mint_nonces' as const), id: small, link: small, count: fc.nat({ max: 128 }) }),
  fc.record({ type: fc.constant('drop_nonces' as const), link: small, nonces: fc.array(nonce, { maxLength: 3 }) }),
  fc.record({ type: fc.constant('sign_rules_request' as const), id: small, link: small, request_id: fc.constant(ID), stream_nonce: nonce }),
  fc.record({ type: fc.constant('run_open' as const), run: small, link: small, stream_nonce: nonce, frame: someFrame }),
  fc.record({ type: fc.constant('run_frame' as const), run: small, frame: someFrame }),
  fc.record({ type: fc.constantFrom('run_lost' as const, 'run_over' as const), run: small }),
  fc.record({ type: fc.constant('run_resume' as const), run: small, link: small, stream_nonce: nonce, frame: someFrame }),
  fc.record({
    type: fc.constant('operate' as const),
    id: small,
    operation: fc.constantFrom(...OPERATIONS),
    body: fc.uint8Array({ maxLength: 20 }),
    proof: fc.string({ maxLength: 20 }),
  }),
  fc.record({ type: fc.constant('query' as const), id: small, what: fc.constantFrom(...QUERIES) }),
  fc.record({
    type: fc.constant('revocations' as const),
    id: small,
    link: small,
    items: fc.array(fc.uint8Array({ minLength: 1, maxLength: 30 }), { maxLength: 3 }),
  }),
  fc.record({
    type: fc.constant('link_open' as const),
    id: small,
    peer_machine: fc.constant(HEX),
    kem_public_key: fc.constant(new Uint8Array(KEM_PUBLIC_KEY_BYTES)),
  }),
)

/** A message that is unchanged, cut, lengthened or has one changed byte. */
const damaged = fc
  .tuple(anyMessage, fc.constantFrom('whole', 'flip', 'cut', 'more'), fc.nat(), fc.integer({ min: 1, max: 255 }))
  .map(([message, how, at, by]) => {
    const bytes = Buffer.from(toExecutor.encode(message))
    const place = at % bytes.length
    if (how === 'flip') bytes[place]! ^= by
    if (how === 'cut') return bytes.subarray(0, place)
    return how === 'more' ? Buffer.concat([bytes, Buffer.of(by)]) : bytes
  })

test('arbitrary messages of a network process leave the executor process able to serve the next one', async (t) => {
  const host = await ExecutorHost.start(t)
  await host.befriend(host.peer)
  await fc.assert(
    fc.asyncProperty(fc.array(damaged, { maxLength: 30 }), async (messages) => {
      const raw = rawNetworkProcess(host)
      raw.channel.send({ type: 'hello', id: 0, version: PORT_VERSION })
      for (const bytes of messages) raw.duplex.write(encodeFrame(bytes))
      raw.duplex.end()
      await raw.closed
    }),
    { seed: 20260101, numRuns: 300 },
  )
  const network = await host.connect()
  const link = await network.link(host.peer)
  assert.ok(link instanceof FakeLink)
  assert.equal((await (await link.ask([host.program('hello')])).exit()).code, 0)
  assert.equal(host.counters.activeSessions, 0)
  assert.equal(host.totals().sessions_started, 1)
})
