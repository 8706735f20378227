import assert from 'node:assert/strict'
import { duplexPair } from 'node:stream'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { toExecutor, toNetwork, type ToExecutor, type ToNetwork } from '../../src/executor-api/messages.ts'
import { encodeFrame, FrameDecoder } from '../../src/protocol/wire/framing.ts'
import { MAX_PORT_MESSAGE } from '../../src/protocol/limits/wire.ts'
import type { Message } from '../../src/protocol/wire/schema.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { FakeNetwork } from '../support/fake-network.ts'

const LIMIT = { timeout: 120_000 }

/**
 * Every field of every message to the network process, with the reason why it carries no secret. The test fails for a field that is not
 * listed, so that each new field needs its reason.
 */
const NUMBER = 'a number that one process gave and the other process repeats'
const PUBLIC = 'public: it is sent to every peer'
const PEERS = 'what a peer is sent, who asked for it and may have it'
const SHOWN = 'names, ids, addresses, counts and places: no content of the ACL, of the journal, of a file or of the environment'
const SETTING = 'a setting that the network process exists to carry out'
const TO_NETWORK: Record<ToNetwork['type'], Readonly<Record<string, string>>> = {
  welcome: { id: NUMBER, version: PUBLIC, agent_id: PUBLIC, machine_id: PUBLIC, agent_public_key: PUBLIC },
  link_opened: { id: NUMBER, handle: NUMBER, m1: PUBLIC },
  link_accepted: { id: NUMBER, handle: NUMBER, m2_core: PUBLIC, agent_signature: PUBLIC },
  link_ready: { id: NUMBER, link: NUMBER, agent_id: PUBLIC, decision: 'of five words', agent_signature: PUBLIC },
  nonces: { id: NUMBER, nonces: 'random, sent to the peer, and worth nothing without its signature' },
  signed: { id: NUMBER, body: 'what the network process asked to have signed, and the time', signature: PUBLIC },
  result: { id: NUMBER, json: SHOWN },
  failed: { id: NUMBER, code: 'of the table of errors', message: SHOWN, data: SHOWN },
  run_frame: { run: NUMBER, frame: PEERS },
  run_closed: { run: NUMBER },
  snapshot: { part: SHOWN, last: 'whether more follows' },
  link_decision: { link: NUMBER, decision: 'of five words' },
  link_revocations: { link: NUMBER, items: PUBLIC },
  settings: {
    id: NUMBER,
    display_name: PUBLIC,
    api_port: SETTING,
    listen: SETTING,
    announce: PUBLIC,
    bootstrap: SETTING,
    keep: 'agents that the snapshot names anyway: to whom a connection stands',
    relay: SETTING,
    relays: SETTING,
    dht: SETTING,
    mdns: SETTING,
    strangers: SETTING,
    log_level: SETTING,
    machine_seed: 'a secret: Noise proves the machine with it; it signs for no agent and decides nothing',
    api_token: 'a secret: the network process must know who may call its API; it changes nothing without an operator’s proof',
    metrics_token: 'a secret: the network process must know who may read its counters; it opens nothing else',
    otlp: SETTING,
  },
  stop: {},
  approval_ask: { ask: NUMBER, agent_id: 'whom to dial: an approver of a run that waits, and of no other' },
  approval_withdrawn: { ask: NUMBER },
  ping: {},
  run_stage: { request_id: 'of a run that the network process carries', stage: 'of thirteen words', at_us: NUMBER },
  caller_tokens: { api_token: 'a secret: as in settings', metrics_token: 'a secret: as in settings' },
  drain: { on: 'whether this daemon accepts new runs, which it tells everybody who asks for one' },
  enrol_ask: { ask: NUMBER, agent_id: 'whom to dial: the operator of a token', machine_id: PUBLIC, addresses: PUBLIC },
  enrol_frame: { id: NUMBER, frame: PEERS },
}

/** Field names of each variant, read from its CDDL description. */
const fieldsOf = (message: Message<unknown>): string[][] =>
  [...message.cddl.matchAll(/\[(\d+)(?:, ((?:[^[\]]|\[(?:[^[\]]|\[[^[\]]*\])*\])*))?\]/g)].map(([, , fields = '']) =>
    [...fields.matchAll(/(?:^|, )([a-z][a-z0-9_]*):/g)].map(([, name]) => name!),
  )

test('no message to the network process can carry a file, an executor key or ACL contents', () => {
  assert.deepEqual(
    fieldsOf(toNetwork as Message<unknown>),
    Object.values(TO_NETWORK).map((fields) => Object.keys(fields)),
  )
  const secrets = Object.entries(TO_NETWORK).flatMap(([type, fields]) =>
    Object.entries(fields).flatMap(([name, why]) => (why.startsWith('a secret') ? [`${type}.${name}`] : [])),
  )
  assert.deepEqual(secrets, [
    'settings.machine_seed',
    'settings.api_token',
    'settings.metrics_token',
    'caller_tokens.api_token',
    'caller_tokens.metrics_token',
  ])
})

test('no message to the executor process names a file, an environment, a program or bytes to sign unchanged', () => {
  const fields = new Set(fieldsOf(toExecutor as Message<unknown>).flat())
  // `argv` and `cwd` belong to a Request for another host. `body` is the call that an operator proof covers. `path` is from a URL; like all
  // fields of `refused`, it is text for the journal. `agent` and `machine` are IDs to look up. `fanout` and `after` are IDs, and `from` is
  // an offset in an output. The fields of `detached` are IDs, numbers, hashes and enumerated words, and `session` is a run label.
  const known =
    'id version peer_machine kem_public_key handle m2 m1 kem_ciphertext m3 link count nonces request_id stream_nonce argv stdin pieces'
  const others =
    'timeout_ms cwd clamp proven proof kind name addresses ttl_ms run frame operation body what items api_port code message ask agent machine fanout after from'
  const detached = 'agent_id machine_id lifetime_ms keep_bytes session digest request state signal denial_reason'
  const refused = 'method path host origin remote'
  // The size and type of a terminal, and its input. The input is signed for a request that is in the request log.
  const terminal = 'columns rows term request_sha256 seq data size'
  // The signed Exit of a target that drains, and a list of work for the operator.
  const drain = 'signature json'
  assert.deepEqual([...fields].toSorted(), `${known} ${others} ${detached} ${refused} ${terminal} ${drain}`.split(' ').toSorted())
})

interface Recording {
  readonly toExecutor: Uint8Array[]
  readonly toNetwork: Uint8Array[]
}

/**
 * Records all messages of both processes while links are made in both directions, programs run, a run resumes, and an operator makes a
 * change.
 */
const record = async (t: Parameters<typeof ExecutorHost.start>[0]): Promise<Recording> => {
  const host = await ExecutorHost.start(t, { scripts: { hello: 'echo hi', reads: 'cat; echo err >&2' } })
  await host.befriend(host.peer)
  const recording: Recording = { toExecutor: [], toNetwork: [] }
  const [[executor, ours], [theirs, network]] = [duplexPair(), duplexPair()]
  for (const [from, to, kept] of [
    [ours, theirs, recording.toNetwork],
    [theirs, ours, recording.toExecutor],
  ] as const) {
    const decoder = new FrameDecoder(MAX_PORT_MESSAGE)
    from.on('data', (chunk: Buffer) => {
      for (const payload of decoder.push(chunk)) {
        kept.push(Buffer.from(payload))
        to.write(encodeFrame(payload))
      }
    })
  }
  host.executor.attach(executor)
  const fakeNetwork = new FakeNetwork(network)
  await fakeNetwork.client.start()
  const link = await fakeNetwork.link(host.peer)
  await fakeNetwork.linkOut(host.peer)
  await (await link.ask([host.program('hello')])).exit()
  await (await link.ask(['no'])).exit()
  const stdin = Buffer.from('some words')
  const run = await link.ask([host.program('reads')], { stdin, over: false })
  await run.frame('started')
  run.lost()
  const resumed = await link.resume(run)
  resumed.send({ type: 'stdin', request_id: run.id, seq: 0, data: stdin, eof: true })
  await resumed.exit()
  const body = Buffer.from(JSON.stringify({ contact: `peer-${host.peer.signer.agentId.slice(0, 8)}`, level: 'known' }))
  await fakeNetwork.client.operate('contact_trust', body, await host.prove('contact_trust', body))
  for (const what of ['exec_diagnostics', 'contacts', 'acl_status'] as const) await fakeNetwork.client.query(what)
  await fakeNetwork.client.signCard({ kind: 'card', name: 'me', addresses: [], ttl_ms: 1_000 })
  fakeNetwork.client.httpRefused({ code: 'unauthorized', method: 'GET', path: '/agent', host: 'h', origin: null, remote: null })
  fakeNetwork.client.stop()
  return recording
}

/** Changes bytes, cuts the end, inserts bytes, or joins parts of two messages. */
const mutation = fc.record({
  which: fc.nat(),
  other: fc.nat(),
  how: fc.constantFrom('flip' as const, 'flips' as const, 'cut' as const, 'insert' as const, 'cross' as const),
  at: fc.nat(),
  byte: fc.integer({ min: 1, max: 255 }),
})

const mutated = (messages: readonly Uint8Array[], { which, other, how, at, byte }: ReturnType<typeof one>): Uint8Array => {
  const bytes = Buffer.from(messages[which % messages.length]!)
  // Message heads matter most, so every second change is in the first bytes.
  const place = at % (at % 2 === 0 ? Math.min(16, bytes.length) : bytes.length)
  switch (how) {
    case 'flip':
      bytes[place]! ^= byte
      return bytes
    case 'flips':
      for (let next = place; next < bytes.length; next += 1 + byte) bytes[next]! ^= byte
      return bytes
    case 'cut':
      return bytes.subarray(0, place)
    case 'insert':
      return Buffer.concat([bytes.subarray(0, place), Buffer.alloc(1 + (byte % 9), byte), bytes.subarray(place)])
    case 'cross':
      return Buffer.concat([bytes.subarray(0, place), messages[other % messages.length]!.subarray(place)])
  }
}
const one = () => ({ which: 0, other: 0, how: 'flip' as 'flip' | 'flips' | 'cut' | 'insert' | 'cross', at: 0, byte: 1 })

test('40,000 mutations of messages between the processes either decode as schema messages or fail as malformed', LIMIT, async (t) => {
  const recording = await record(t)
  const seen = new Set(recording.toExecutor.map((bytes) => toExecutor.decode(bytes).type))
  assert.ok(seen.size >= 14, [...seen].join())
  const sides: [readonly Uint8Array[], Message<ToExecutor | ToNetwork>][] = [
    [recording.toExecutor, toExecutor],
    [recording.toNetwork, toNetwork],
  ]
  for (const [messages, schema] of sides) {
    const counts = { decoded: 0, malformed: 0 }
    fc.assert(
      fc.property(mutation, (change) => {
        const bytes = mutated(messages, change)
        try {
          const message = schema.decode(bytes)
          // A decoded message encodes and decodes to the same value.
          assert.deepEqual(schema.decode(schema.encode(message)), message)
          counts.decoded += 1
        } catch (error) {
          assert.ok(isAppError(error, 'malformed'), String(error))
          counts.malformed += 1
        }
      }),
      { seed: 20_261_121, numRuns: 20_000 },
    )
    assert.ok(counts.decoded > 100 && counts.malformed > 1_000, JSON.stringify(counts))
  }
})
