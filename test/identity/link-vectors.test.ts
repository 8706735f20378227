import assert from 'node:assert/strict'
import { createHash, createHmac, hkdfSync } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'

import * as link from '../../src/identity/link-crypto.ts'
import { linkM2 } from '../../src/protocol/wire/link.ts'

const file = new URL('../../proto/vectors/link.json', import.meta.url)
const { given, then } = JSON.parse(await readFile(file, 'utf8')) as { given: Record<string, string>; then: Record<string, string> }
const bytes = (name: string): Buffer => Buffer.from(given[name]!, 'hex')
const hex = (value: ArrayBuffer | Uint8Array): string => Buffer.from(value as Uint8Array).toString('hex')

const machines = { machine_initiator: given['machine_initiator']!, machine_responder: given['machine_responder']! }
const signatures = (role: 'responder' | 'initiator'): link.LinkSignatures => ({
  agent_signature: bytes(`${role}_agent_signature`),
  machine_signature: bytes(`${role}_machine_signature`),
})

test('the key schedule of a link matches the published vectors', () => {
  const [m1, core] = [bytes('m1'), bytes('m2_core')]
  const secret = link.linkSecret(bytes('kem_shared_secret'), m1, core)
  const theirs = link.responderTranscript(machines, m1, core)
  const mac = link.responderMac(secret, theirs, signatures('responder'))
  const m2 = linkM2.encode({ core, ...signatures('responder'), mac })
  const transcript = link.finalTranscript(machines, m1, m2, signatures('initiator'))
  const keys = link.streamKeys(secret, transcript, bytes('responder_nonce'), bytes('opener_nonce'))
  const computed = {
    link_secret: hex(secret),
    responder_transcript: hex(theirs),
    responder_mac: hex(mac),
    initiator_transcript: hex(link.initiatorTranscript(machines, m1, m2)),
    final_transcript: hex(transcript),
    initiator_mac: hex(link.initiatorMac(secret, transcript)),
    link_id: hex(link.linkIdOf(transcript)),
    opener_stream_key: hex(keys.opener),
    responder_stream_key: hex(keys.responder),
  }
  assert.deepEqual(computed, then)
})

test('a separate implementation from docs/protocol.md computes the same values', () => {
  const [m1, core] = [bytes('m1'), bytes('m2_core')]
  const hkdf = (secret: Buffer, salt: Buffer, info: string | Buffer): Buffer => Buffer.from(hkdfSync('sha256', secret, salt, info, 32))
  const secret = hkdf(bytes('kem_shared_secret'), createHash('sha256').update(m1).update(core).digest(), 'x0x-link-secret-v1')
  assert.equal(hex(secret), then['link_secret'])
  const confirm = hkdf(secret, Buffer.alloc(0), 'x0x-link-confirm-responder-v1')
  const covered = [
    Buffer.from(then['responder_transcript']!, 'hex'),
    bytes('responder_agent_signature'),
    bytes('responder_machine_signature'),
  ]
  assert.equal(createHmac('sha256', confirm).update(Buffer.concat(covered)).digest('hex'), then['responder_mac'])
  const info = Buffer.concat([Buffer.from('x0x-stream-key-v1\0opener\0'), bytes('responder_nonce'), bytes('opener_nonce')])
  assert.equal(hex(hkdf(secret, Buffer.from(then['final_transcript']!, 'hex'), info)), then['opener_stream_key'])
})
