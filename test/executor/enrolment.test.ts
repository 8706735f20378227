import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdir, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { randomBytes, sha256 } from '../../src/identity/hash.ts'
import { decodeOperatorKey, OPERATOR_KEY_FILE } from '../../src/identity/operator-proof.ts'
import { verifyAgent } from '../../src/identity/signing.ts'
import { fromHex, toHex } from '../../src/protocol/ids.ts'
import { ENROL_GUESS_BURST } from '../../src/protocol/limits/enrolment.ts'
import {
  ENROL_GRANT_DOMAIN,
  type EnrolFrame,
  type EnrolRequest,
  enrolFrame,
  enrolGrant,
  enrolRequest,
} from '../../src/protocol/wire/enrolment.ts'
import { deriveEnrolSecret, enrolKeyId, enrolMac, isEnrolMac } from '../../src/trust/enrolment-token.ts'
import type { EnrolKeyAnswer, EnrolKeysAnswer } from '../../src/protocol/api/enrolment.ts'
import { ExecutorHost } from '../support/executor-host.ts'
import { type FakeLink, type FakeNetwork, newParty } from '../support/fake-network.ts'
import { wholeLines } from '../support/journal.ts'
import { ManualClock } from '../support/manual-clock.ts'

const operate = async <T>(
  host: ExecutorHost,
  network: FakeNetwork,
  operation: 'enrol_create' | 'enrol_list' | 'enrol_revoke',
  value: object,
): Promise<T> => {
  const body = Buffer.from(JSON.stringify(value))
  return (await network.client.operate(operation, body, await host.prove(operation, body))) as T
}

const WISH = { operator_name: 'ops', uses: 2, expires_in_ms: 3_600_000, names: 'web[1-9]', labels: { role: 'web' } }

/** Creates a key as `x0x enrol create` does, and returns its secret. */
const create = async (host: ExecutorHost, network: FakeNetwork, wish: object = {}): Promise<{ secret: Uint8Array; id: string }> => {
  const salt = randomBytes(32)
  const { key } = await operate<EnrolKeyAnswer>(host, network, 'enrol_create', { ...WISH, ...wish, salt: toHex(salt) })
  const operatorKey = decodeOperatorKey(await readFile(join(host.dir, OPERATOR_KEY_FILE), 'latin1'))!
  const secret = deriveEnrolSecret(operatorKey, salt)
  assert.equal(key.id, enrolKeyId(secret))
  return { secret, id: key.id }
}

const listed = async (host: ExecutorHost, network: FakeNetwork) =>
  (await operate<EnrolKeysAnswer>(host, network, 'enrol_list', {})).keys[0]!

interface Ask {
  readonly fields?: Partial<EnrolRequest>
  readonly nonce?: Uint8Array
}

const requestOf = (link: FakeLink, secret: Uint8Array, nonce: Uint8Array, fields: Partial<EnrolRequest> = {}): EnrolRequest => {
  const { agentId, machineId } = link.client.identity
  return {
    version: 1,
    request_id: randomUUID(),
    from_agent: link.peer.signer.agentId,
    from_machine: link.peer.machine.machineId,
    to_agent: agentId,
    to_machine: machineId,
    stream_nonce: nonce,
    key_id: fromHex(enrolKeyId(secret)),
    step: 'ask',
    attempt: new Uint8Array(16),
    name: 'box',
    name_required: false,
    addresses: [],
    ...fields,
  }
}

const frameOf = (request: EnrolRequest, secret: Uint8Array): Uint8Array => {
  const body = enrolRequest.encode(request)
  return enrolFrame.encode({ type: 'request', body, mac: enrolMac(secret, 'request', body) })
}

const send = async (link: FakeLink, nonce: Uint8Array, frame: Uint8Array): Promise<EnrolFrame> =>
  enrolFrame.decode((await link.client.enrolRequest({ link: link.number, stream_nonce: nonce, frame })).frame)

const ask = async (link: FakeLink, secret: Uint8Array, { fields, nonce }: Ask = {}): Promise<EnrolFrame> => {
  const stream = nonce ?? (await link.nonce())
  return send(link, stream, frameOf(requestOf(link, secret, stream, fields), secret))
}

const reasonOf = (frame: EnrolFrame): string => {
  assert.ok(frame.type === 'refused', frame.type)
  return frame.reason
}

test('a host with the secret becomes a trusted, pinned and labelled contact, and gets a signed answer', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const { secret, id } = await create(host, network, { acl: '# entries' })
  const link = await network.link(newParty())
  assert.equal(link.decision, 'unknown')
  const nonce = await link.nonce()
  const request = requestOf(link, secret, nonce, { addresses: ['/ip4/192.0.2.9/tcp/1/p2p/12D3KooW', 'nonsense'] })
  const granted = await send(link, nonce, frameOf(request, secret))
  assert.ok(granted.type === 'granted')
  assert.ok(isEnrolMac(secret, 'grant', granted.body, granted.mac))
  assert.ok(verifyAgent(network.client.identity.agentPublicKey, ENROL_GRANT_DOMAIN, granted.body, granted.signature))
  const grant = enrolGrant.decode(granted.body)
  assert.deepEqual([grant.name, grant.operator_name, grant.acl], ['web1', 'ops', '# entries'])
  assert.deepEqual([grant.to_agent, grant.to_machine, grant.request_id], [request.from_agent, request.from_machine, request.request_id])
  assert.ok(Buffer.from(grant.request_sha256).equals(sha256(enrolRequest.encode(request))))
  const { agentId } = link.peer.signer
  const contact = host.contacts.byAgent(agentId)!
  assert.deepEqual([contact.name, contact.trust, contact.machines], ['web1', 'trusted', [link.peer.machine.machineId]])
  assert.deepEqual([contact.labels, contact.addresses], [{ role: 'web' }, []])
  const confirmed = await ask(link, secret, { fields: { step: 'done' } })
  assert.ok(confirmed.type === 'confirmed' && isEnrolMac(secret, 'confirmed', confirmed.request_sha256, confirmed.mac))
  const key = await listed(host, network)
  assert.deepEqual([key.uses_left, key.hosts.map(({ name, confirmed: is }) => [name, is])], [1, [['web1', true]]])
  const lines = wholeLines(await readFile(host.journalPath, 'utf8'))
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter(({ event }) => event === 'authority')
  assert.deepEqual(
    lines.map(({ operation, agent, level, code }) => [operation, agent, level, code]),
    [
      ['enrol_create', null, 'trusted', null],
      ['enrol', agentId, 'trusted', null],
    ],
  )
  assert.match(String(lines[1]!['detail']), new RegExp(`^key ${id}, use 1 of 2: web1, role=web$`))
})

test('an enrolment request is refused on another stream or link, for other parties and when repeated', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const { secret } = await create(host, network)
  const [link, other] = [await network.link(newParty()), await network.link(newParty())]
  const refuses = async (work: Promise<unknown>): Promise<void> =>
    assert.rejects(work, (error) => isAppError(error, 'malformed'), 'it was answered')
  const nonce = await link.nonce()
  const frame = frameOf(requestOf(link, secret, nonce), secret)
  await refuses(send(other, await other.nonce(), frame))
  await refuses(send(other, nonce, frame))
  await refuses(send(link, await link.nonce(), frame))
  await refuses(send(link, new Uint8Array(32), frameOf(requestOf(link, secret, new Uint8Array(32)), secret)))
  for (const fields of [
    { from_agent: other.peer.signer.agentId },
    { from_machine: other.peer.machine.machineId },
    { to_agent: 'e'.repeat(64) },
    { to_machine: 'e'.repeat(64) },
  ])
    await refuses(ask(link, secret, { fields }))
  assert.equal((await send(link, nonce, frame)).type, 'granted')
  await refuses(send(link, nonce, frame))
  // The restarted executor process has issued none of these nonces.
  await host.stop()
  await host.boot()
  const again = await (await host.connect()).link(link.peer)
  await refuses(send(again, nonce, frame))
  assert.equal(host.contacts.list().length, 1)
})

test('a request with a changed byte enrols no host and uses no key', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const { secret } = await create(host, network)
  let answered = 0
  for (let at = 0; at < 600; at += 7) {
    // Uses a new link each time, because each link has a limit.
    const link = await network.link(newParty())
    const nonce = await link.nonce()
    const frame = Buffer.from(frameOf(requestOf(link, secret, nonce), secret))
    if (at >= frame.length) break
    frame[at] = frame[at]! ^ 0x01
    const answer = await send(link, nonce, frame).catch((error: unknown) => error)
    if (isAppError(answer)) assert.ok(['malformed', 'rate_limited'].includes(answer.code), answer.message)
    else assert.match(reasonOf(answer as EnrolFrame), /^(unknown_key|wrong_proof)$/)
    answered += 1
    network.client.linkClosed(link.number)
  }
  assert.ok(answered > 30)
  assert.equal(host.contacts.list().length, 0)
  assert.equal((await listed(host, network)).hosts.length, 0)
})

test('of ten hosts at once, exactly eight use up a key of eight, also after a restart', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const { secret } = await create(host, network, { uses: 8 })
  const links = await Promise.all(Array.from({ length: 10 }, async () => network.link(newParty())))
  const first = await Promise.all(links.map(async (link) => ask(link, secret)))
  assert.equal(first.filter(({ type }) => type === 'granted').length, 8)
  assert.deepEqual(first.filter(({ type }) => type === 'refused').map(reasonOf), ['used_up', 'used_up'])
  await host.stop()
  await host.boot()
  const restarted = await host.connect()
  const again = await Promise.all(links.map(async ({ peer }) => ask(await restarted.link(peer), secret)))
  assert.deepEqual(
    again.map(({ type }) => type),
    first.map(({ type }) => type),
  )
  const names = host.contacts.list().map(({ name }) => name)
  assert.deepEqual([names.length, new Set(names).size], [8, 8])
})

test('after a host confirmed, the same keys in another process are refused as a copy', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const { secret } = await create(host, network)
  const link = await network.link(newParty())
  const attempt = (digit: number): Partial<EnrolRequest> => ({ attempt: new Uint8Array(16).fill(digit) })
  assert.equal((await ask(link, secret, { fields: attempt(1) })).type, 'granted')
  assert.equal((await ask(link, secret, { fields: attempt(2) })).type, 'granted')
  assert.equal(reasonOf(await ask(link, secret, { fields: { ...attempt(1), step: 'done' } })), 'already_enrolled')
  assert.equal((await ask(link, secret, { fields: { ...attempt(2), step: 'done' } })).type, 'confirmed')
  const copied = await ask(link, secret, { fields: attempt(3) })
  assert.ok(copied.type === 'refused')
  assert.equal(
    copied.message,
    'these machine keys were already enrolled as web1; a cloned image must be initialised again (delete the data directory)',
  )
  // The machine key with another agent key, and the agent key with another machine key.
  const [agent, machine] = [newParty(), newParty()]
  const mixed = [
    { signer: agent.signer, machine: link.peer.machine },
    { signer: link.peer.signer, machine: machine.machine },
  ]
  for (const party of mixed) {
    const other = await network.link(party)
    assert.equal(reasonOf(await ask(other, secret, { fields: attempt(4) })), 'already_enrolled')
  }
  assert.equal((await listed(host, network)).uses_left, 1)
})

test('a repeated enrolment request does not undo a change that the operator made to the contact', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const { secret } = await create(host, network)
  const link = await network.link(newParty())
  assert.equal((await ask(link, secret)).type, 'granted')
  const body = Buffer.from(JSON.stringify({ contact: link.peer.signer.agentId, level: 'unknown' }))
  await network.client.operate('contact_trust', body, await host.prove('contact_trust', body))
  const decided = network.decisions.length
  assert.equal((await ask(link, secret)).type, 'granted')
  assert.ok(decided > 0)
  assert.deepEqual(network.decisions.slice(decided), [], 'no decision about the link has changed')
  const enrolled = wholeLines(await readFile(host.journalPath, 'utf8')).filter((line) => line.includes('"operation":"enrol"'))
  assert.equal(enrolled.length, 1)
})

test('an expired or revoked key enrols no host, by the clock of the operator', async (t) => {
  const clock = new ManualClock()
  const host = await ExecutorHost.start(t, { clock })
  const network = await host.connect()
  const prove = async (operation: 'enrol_create' | 'enrol_revoke', value: object) => {
    const body = Buffer.from(JSON.stringify(value))
    return network.client.operate(operation, body, await host.prove(operation, body, clock.now()))
  }
  const salt = randomBytes(32)
  await prove('enrol_create', { ...WISH, expires_in_ms: 60_000, salt: toHex(salt) })
  const secret = deriveEnrolSecret(decodeOperatorKey(await readFile(join(host.dir, OPERATOR_KEY_FILE), 'latin1'))!, salt)
  const [early, late] = [await network.link(newParty()), await network.link(newParty())]
  assert.equal((await ask(early, secret)).type, 'granted')
  await clock.advance(60_000)
  assert.equal(reasonOf(await ask(late, secret)), 'expired')
  assert.equal((await ask(early, secret)).type, 'granted', 'it was counted in time, and lost the answer')
  await prove('enrol_revoke', { id: enrolKeyId(secret).slice(0, 6) })
  for (const link of [early, late]) assert.equal(reasonOf(await ask(link, secret)), 'revoked')
})

test('guesses have one limit for all peers and do not block the holder of the secret', async (t) => {
  const host = await ExecutorHost.start(t, { clock: new ManualClock(Date.now()) })
  const network = await host.connect()
  const { secret, id } = await create(host, network)
  let [told, untold] = [0, 0]
  for (let guess = 0; guess < 2 * ENROL_GUESS_BURST; guess++) {
    const link = await network.link(newParty())
    // Every second guess uses the right key ID, which is not secret.
    const fields = guess % 2 === 0 ? {} : { key_id: fromHex(id) }
    const answer = await ask(link, randomBytes(20), { fields }).catch((error: unknown) => error)
    if (isAppError(answer, 'rate_limited')) untold += 1
    else told += Number(reasonOf(answer as EnrolFrame) === (guess % 2 === 0 ? 'unknown_key' : 'wrong_proof'))
    network.client.linkClosed(link.number)
  }
  assert.deepEqual([told, untold], [ENROL_GUESS_BURST, ENROL_GUESS_BURST])
  assert.equal((await ask(await network.link(newParty()), secret)).type, 'granted')
})

test('one link gets a limited number of answers', async (t) => {
  const host = await ExecutorHost.start(t, { clock: new ManualClock(Date.now()) })
  const network = await host.connect()
  const { secret } = await create(host, network)
  const link = await network.link(newParty())
  let answers = 0
  for (let i = 0; i < 100; i++)
    answers += Number(
      await ask(link, secret).then(
        () => true,
        (error: unknown) => !isAppError(error, 'rate_limited'),
      ),
    )
  assert.ok(answers <= 32, `${answers}`)
})

test('a use that cannot be written is not granted', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const { secret } = await create(host, network)
  const file = join(host.dir, 'enrol-keys.json')
  await rename(file, `${file}.away`)
  await mkdir(join(file, 'in-the-way'), { recursive: true })
  const link = await network.link(newParty())
  assert.equal(reasonOf(await ask(link, secret)), 'failed')
  assert.equal(host.contacts.list().length, 0)
  await rm(file, { recursive: true })
  await rename(`${file}.away`, file)
  assert.equal((await ask(link, secret)).type, 'granted')
})

test('an enrolment that cannot be logged adds no contact, and its retry uses the key only once', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const { secret } = await create(host, network)
  await rename(join(host.dir, 'log'), join(host.dir, 'log.away'))
  const link = await network.link(newParty())
  assert.equal(reasonOf(await ask(link, secret)), 'failed')
  assert.equal(host.contacts.list().length, 0)
  await rename(join(host.dir, 'log.away'), join(host.dir, 'log'))
  assert.equal((await ask(link, secret)).type, 'granted')
  assert.equal((await listed(host, network)).uses_left, 1)
})

test('only the operator can create, list and revoke keys, and the secret is not shown', async (t) => {
  const host = await ExecutorHost.start(t)
  const network = await host.connect()
  const body = Buffer.from(JSON.stringify({ ...WISH, salt: 'a'.repeat(64) }))
  for (const operation of ['enrol_create', 'enrol_list', 'enrol_revoke'] as const)
    await assert.rejects(network.client.operate(operation, body, ''), (error) => isAppError(error, 'operator_proof_required'))
  const { secret } = await create(host, network)
  const answer = JSON.stringify(await operate(host, network, 'enrol_list', {}))
  assert.ok(!answer.includes(toHex(secret)))
  const wrong = [
    { uses: 1_001 },
    { uses: 10 },
    { expires_in_ms: 1 },
    { names: 'web[2-1]' },
    { names: '-x' },
    { labels: { 'a b': 'c' } },
    { salt: 'ab' },
    { acl: 'x'.repeat(17_000) },
    { more: 1 },
  ]
  for (const wish of wrong)
    await assert.rejects(
      operate(host, network, 'enrol_create', { ...WISH, salt: 'a'.repeat(64), ...wish }),
      (error) => isAppError(error, 'bad_request'),
      JSON.stringify(wish),
    )
  await assert.rejects(operate(host, network, 'enrol_revoke', { id: 'ffff' }), (error) => isAppError(error, 'not_found'))
})
