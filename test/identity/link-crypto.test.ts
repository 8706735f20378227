import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import {
  finalTranscript,
  initiatorMac,
  initiatorTranscript,
  linkIdOf,
  linkSecret,
  responderMac,
  responderTranscript,
  streamKeys,
} from '../../src/identity/link-crypto.ts'
import { fromHex, toHex } from '../../src/protocol/ids.ts'
import { LINK_ID_BYTES } from '../../src/protocol/limits/wire.ts'

/** Every part of a handshake, as bytes. */
interface Parts {
  initiator: Uint8Array
  responder: Uint8Array
  m1: Uint8Array
  core: Uint8Array
  m2: Uint8Array
  agent: Uint8Array
  machine: Uint8Array
  kem: Uint8Array
  responderNonce: Uint8Array
  openerNonce: Uint8Array
}

const filled = (length: number, value: number): Uint8Array => new Uint8Array(length).fill(value)

const PARTS: Parts = {
  initiator: filled(32, 1),
  responder: filled(32, 2),
  m1: filled(100, 3),
  core: filled(120, 4),
  m2: filled(200, 5),
  agent: filled(3309, 6),
  machine: filled(64, 7),
  kem: filled(32, 8),
  responderNonce: filled(32, 9),
  openerNonce: filled(32, 10),
}

const derive = (parts: Parts) => {
  const machines = { machine_initiator: toHex(parts.initiator), machine_responder: toHex(parts.responder) }
  const signatures = { agent_signature: parts.agent, machine_signature: parts.machine }
  const secret = linkSecret(parts.kem, parts.m1, parts.core)
  const responder = responderTranscript(machines, parts.m1, parts.core)
  const final = finalTranscript(machines, parts.m1, parts.m2, signatures)
  const keys = streamKeys(secret, final, parts.responderNonce, parts.openerNonce)
  return {
    responder_transcript: toHex(responder),
    initiator_transcript: toHex(initiatorTranscript(machines, parts.m1, parts.m2)),
    final_transcript: toHex(final),
    secret: toHex(secret),
    responder_mac: toHex(responderMac(secret, responder, signatures)),
    initiator_mac: toHex(initiatorMac(secret, final)),
    link_id: toHex(linkIdOf(final)),
    opener_key: toHex(keys.opener),
    responder_key: toHex(keys.responder),
  }
}

type Derived = keyof ReturnType<typeof derive>

const ALL_BUT_SECRET: Derived[] = [
  'responder_transcript',
  'initiator_transcript',
  'final_transcript',
  'responder_mac',
  'initiator_mac',
  'link_id',
  'opener_key',
  'responder_key',
]

/** The values that depend on each part. All other values must not change. */
const REACHES: Record<keyof Parts, Derived[]> = {
  initiator: ALL_BUT_SECRET,
  responder: ALL_BUT_SECRET,
  m1: [...ALL_BUT_SECRET, 'secret'],
  core: ['responder_transcript', 'secret', 'responder_mac', 'initiator_mac', 'opener_key', 'responder_key'],
  m2: ['initiator_transcript', 'final_transcript', 'initiator_mac', 'link_id', 'opener_key', 'responder_key'],
  agent: ['final_transcript', 'responder_mac', 'initiator_mac', 'link_id', 'opener_key', 'responder_key'],
  machine: ['final_transcript', 'responder_mac', 'initiator_mac', 'link_id', 'opener_key', 'responder_key'],
  kem: ['secret', 'responder_mac', 'initiator_mac', 'opener_key', 'responder_key'],
  responderNonce: ['opener_key', 'responder_key'],
  openerNonce: ['opener_key', 'responder_key'],
}

test('a flipped bit in any part changes exactly the transcripts, MACs and keys that cover it', () => {
  const before = derive(PARTS)
  for (const part of Object.keys(REACHES) as (keyof Parts)[]) {
    fc.assert(
      fc.property(fc.nat(PARTS[part].length * 8 - 1), (bit) => {
        const altered = new Uint8Array(PARTS[part])
        altered[bit >> 3]! ^= 1 << (bit & 7)
        const after = derive({ ...PARTS, [part]: altered })
        const changed = (Object.keys(before) as Derived[]).filter((name) => before[name] !== after[name])
        assert.deepEqual(changed.toSorted(), REACHES[part].toSorted(), part)
      }),
      { seed: 3, numRuns: 20 },
    )
  }
})

test('equal inputs give equal values', () => {
  assert.deepEqual(derive(PARTS), derive(structuredClone(PARTS)))
})

test('swapped roles give other transcripts, MACs and keys, so that a message cannot be reflected', () => {
  const derived = derive(PARTS)
  const swapped = derive({ ...PARTS, initiator: PARTS.responder, responder: PARTS.initiator })
  assert.notEqual(derived.responder_transcript, swapped.responder_transcript)
  assert.notEqual(derived.final_transcript, swapped.final_transcript)
  assert.notEqual(derived.responder_mac, derived.initiator_mac)
  assert.notEqual(derived.opener_key, derived.responder_key)
  const nonces = derive({ ...PARTS, responderNonce: PARTS.openerNonce, openerNonce: PARTS.responderNonce })
  const keys = [derived.opener_key, derived.responder_key, nonces.opener_key, nonces.responder_key]
  assert.equal(new Set(keys).size, 4)
})

test('the MACs of both roles differ even for the same bytes', () => {
  const secret = filled(32, 1)
  const transcript = filled(32, 2)
  const none = { agent_signature: filled(0, 0), machine_signature: filled(0, 0) }
  assert.notEqual(toHex(responderMac(secret, transcript, none)), toHex(initiatorMac(secret, transcript)))
})

test('a key has 32 bytes, and a link ID is the first 8 bytes of the transcript', () => {
  const derived = derive(PARTS)
  assert.equal(fromHex(derived.opener_key).length, 32)
  assert.equal(derived.link_id, derived.final_transcript.slice(0, LINK_ID_BYTES * 2))
})
