import assert from 'node:assert/strict'
import { test } from 'node:test'

import { batchLeaf, signBatch, verifyInBatch } from '../../src/identity/signing.ts'
import { EXEC_REQUEST_DOMAIN, execFrame, execRequest, type ExecRequest } from '../../src/protocol/wire/exec.ts'
import { AGENT_SIGNATURE_BYTES } from '../../src/protocol/limits/wire.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { newParty, uptimeCall, type FakeLink } from '../support/fake-network.ts'
import { linesOf } from '../support/journal.ts'

const callOn = (link: FakeLink, number: number) =>
  uptimeCall(link.number, `01a1fafc-9b07-75d0-b2a2-${number.toString(16).padStart(12, '0')}`)

test('Requests made at the same time share signatures, and each is in the request log', async (t) => {
  const host = await ExecutorHost.start(t, {})
  const network = await host.connect()
  const link = await network.linkOut(host.peer)
  const issued = host.totals().signatures_issued
  const signed = await Promise.all(Array.from({ length: 40 }, async (_, number) => network.client.signRequest(callOn(link, number))))
  assert.ok(signed.every(({ body, signature }) => verifyInBatch(host.own.signer.publicKey, EXEC_REQUEST_DOMAIN, body, signature)))
  const made = host.totals().signatures_issued - issued
  assert.ok(made < 20, `${made} signatures for 40 Requests`)
  assert.ok(signed.some(({ signature }) => signature.length > AGENT_SIGNATURE_BYTES))
  assert.equal((await linesOf(host.outgoingPath)).length, 40)
})

const REQUESTS = 5

const leafOf = (request: ExecRequest): Uint8Array => batchLeaf(EXEC_REQUEST_DOMAIN, execRequest.encode(request))

/** Requests of the peer of a link, each with its own nonce, under one batch signature. */
const batchOn = async (link: FakeLink, argv: readonly string[]) => {
  const requests = await Promise.all(Array.from({ length: REQUESTS }, async () => link.request(await link.nonce(), argv)))
  return { requests, signatures: await signBatch(link.peer.signer, requests.map(leafOf)) }
}

const send = (link: FakeLink, request: ExecRequest, signature: Uint8Array, nonce = request.stream_nonce) =>
  link.open(nonce, execFrame.encode({ type: 'request', body: execRequest.encode(request), signature }), request)

test('a batch signature covers only the Requests that the agent signed', async (t) => {
  const { host, link } = await ExecutorHost.linked(t, { scripts: { hello: 'echo hi' } })
  const argv = [host.program('hello')]
  const mallory = newParty()
  const proper = (signature: Uint8Array): Uint8Array => signature.subarray(0, AGENT_SIGNATURE_BYTES)
  const placed = (signature: Uint8Array, size: number, index: number): Uint8Array =>
    Buffer.concat([proper(signature), Uint8Array.of(size, index), signature.subarray(AGENT_SIGNATURE_BYTES + 2)])
  const forgeries: ((own: Uint8Array, others: Uint8Array, request: ExecRequest) => Uint8Array | Promise<Uint8Array>)[] = [
    (_, others) => others,
    (own) => proper(own),
    (own, others) => Buffer.concat([proper(own), others.subarray(AGENT_SIGNATURE_BYTES)]),
    (own) => placed(own, REQUESTS, 2),
    (own) => placed(own, 6, 1),
    (own) => placed(own, 0, 0),
    (own) => placed(own, 1, 0),
    (own) => placed(own, 255, 254),
    (own) => Buffer.concat([own, new Uint8Array(32)]),
    (own) => own.subarray(0, -32),
    // A signature tree of an unlisted peer over the Request of its victim.
    async (_, __, request) => (await signBatch(mallory.signer, [leafOf(request), leafOf(request)]))[0]!,
  ]
  for (const forge of forgeries) {
    const { requests, signatures } = await batchOn(link, argv)
    const signature = await forge(signatures[1]!, signatures[2]!, requests[1]!)
    assert.equal(await send(link, requests[1]!, signature).denial(), 'unverified_sender', forge.toString())
    // A genuine signature of the agent for a Request that it never made.
    const unsaid = { ...requests[0]!, created_at_ms: 0 }
    assert.equal(await send(link, unsaid, signatures[0]!).denial(), 'unverified_sender')
  }
  assert.equal(host.totals().sessions_started, 0)
})
