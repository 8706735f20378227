import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

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
import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { checkOperatorProof } from '../../src/identity/check-operator-proof.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { statement, verifyMachine } from '../../src/identity/signing.ts'

const vectors = JSON.parse(readFileSync(new URL('../../proto/vectors/identity.json', import.meta.url), 'utf8')) as Record<
  'agent' | 'machine' | 'link' | 'operator_proof',
  Record<string, string>
> & { machine: { statement: Record<string, string> }; operator_proof: { now_ms: number } }

/** Converts `"32*01"` to 32 bytes of 01, for example. */
const repeated = (text: string | undefined): Uint8Array => {
  const [length, byte] = text!.split('*')
  return new Uint8Array(Number(length)).fill(Number.parseInt(byte!, 16))
}
const hex = (value: Uint8Array): string => Buffer.from(value).toString('hex')

test('IDs and statements match the published test vectors', () => {
  const { agent, machine } = vectors
  assert.equal(agentSignerOf(repeated(agent['seed'])).agentId, agent['agent_id'])
  const key = machineKeyOf(repeated(machine['seed']))
  assert.equal(key.machineId, machine['machine_id'])
  assert.equal(peerIdOf(key.machineId), machine['peer_id'])
  const { domain, body, signed_bytes, signature } = machine.statement as Record<'domain' | 'body' | 'signed_bytes' | 'signature', string>
  const bytes = Buffer.from(body, 'hex')
  assert.equal(hex(statement(domain, bytes)), signed_bytes)
  assert.equal(hex(key.sign(domain, bytes)), signature, 'Ed25519 is deterministic')
  assert.equal(verifyMachine(key.machineId, domain, bytes, Buffer.from(signature, 'hex')), true)
})

test('the secrets of a link match the published test vectors', () => {
  const { link } = vectors
  const machines = { machine_initiator: link['machine_initiator']!, machine_responder: link['machine_responder']! }
  const signatures = { agent_signature: repeated(link['agent_signature']), machine_signature: repeated(link['machine_signature']) }
  const [m1, core, m2] = [repeated(link['m1']), repeated(link['m2_core']), repeated(link['m2'])]
  const secret = linkSecret(repeated(link['kem_secret']), m1, core)
  const responder = responderTranscript(machines, m1, core)
  const final = finalTranscript(machines, m1, m2, signatures)
  const keys = streamKeys(secret, final, repeated(link['responder_nonce']), repeated(link['opener_nonce']))
  const derived = {
    link_secret: secret,
    responder_transcript: responder,
    initiator_transcript: initiatorTranscript(machines, m1, m2),
    final_transcript: final,
    responder_mac: responderMac(secret, responder, signatures),
    initiator_mac: initiatorMac(secret, final),
    link_id: linkIdOf(final),
    opener_key: keys.opener,
    responder_key: keys.responder,
  }
  for (const [name, value] of Object.entries(derived)) assert.equal(hex(value), link[name], name)
})

test('the operator proof of the published test vectors is valid', () => {
  const { key, operation, body, proof, now_ms } = vectors.operator_proof
  assert.notEqual(checkOperatorProof(repeated(key), operation!, Buffer.from(body!), proof!, now_ms), null)
})
