import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { AppError, isAppError } from '../../src/base/errors.ts'
import { decodeCardLink, encodeCardLink, signCard, verifyCard } from '../../src/identity/card.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import {
  ANNOUNCE_DOMAIN,
  CARD_DOMAIN,
  CARD_LINK_PREFIX,
  cardBody,
  signedCard,
  type CardBody,
  type SignedCard,
} from '../../src/protocol/wire/card.ts'
import { MAX_CARD_ADDRESSES, MAX_CLOCK_SKEW_MS, MAX_NAME } from '../../src/protocol/limits/wire.ts'
import { agentNumber, machineNumber } from '../support/agents.ts'

const NOW = 1_800_000_000_000
const bob = agentNumber(2)
const machine = machineNumber(2)
const peerId = peerIdOf(machine.machineId)

const bodyOf = (changes: Partial<CardBody> = {}): CardBody => ({
  version: 1,
  agent_public_key: bob.publicKey,
  machine_id: machine.machineId,
  name: "Bob's köln-4",
  addresses: [`/ip4/10.0.0.1/tcp/5483/p2p/${peerId}`],
  issued_at_ms: NOW,
  expires_at_ms: NOW + 1000,
  ...changes,
})

/** Signs without the checks of signCard, as an attacker can do with his own key. */
const forced = async (changes: Partial<CardBody>): Promise<SignedCard> => {
  const body = cardBody.encode(bodyOf(changes))
  return { body, signature: await bob.sign(CARD_DOMAIN, body) }
}

const badCard = (reason: RegExp) => (error: unknown) => {
  assert.ok(error instanceof AppError)
  assert.equal(error.code, 'bad_card')
  assert.equal(error.data['next'], 'Try, on the other machine: x0x card')
  assert.match(error.message, reason)
  return true
}

test('a card survives the conversion to a link and back, and verifies', async () => {
  const link = encodeCardLink(await signCard(bob, bodyOf(), CARD_DOMAIN))
  assert.match(link, /^x0x:\/\/agent\/[A-Za-z0-9_-]+$/)
  assert.deepEqual(verifyCard(decodeCardLink(link), CARD_DOMAIN, NOW), {
    agentId: bob.agentId,
    machineId: machine.machineId,
    name: "Bob's köln-4",
    addresses: [`/ip4/10.0.0.1/tcp/5483/p2p/${peerId}`],
    issuedAt: NOW,
    expiresAt: NOW + 1000,
    publicKey: new Uint8Array(bob.publicKey),
  })
})

test('a card is valid from five minutes before its issue until the millisecond before it expires', async () => {
  const card = await signCard(bob, bodyOf(), CARD_DOMAIN)
  for (const now of [NOW - MAX_CLOCK_SKEW_MS, NOW + 999]) verifyCard(card, CARD_DOMAIN, now)
  assert.throws(() => verifyCard(card, CARD_DOMAIN, NOW + 1000), badCard(/expired at 2027-01-15T08:00:01.000Z/))
  assert.throws(() => verifyCard(card, CARD_DOMAIN, NOW - MAX_CLOCK_SKEW_MS - 1), badCard(/in the future/))
})

test('a card is not valid as an announcement, and an announcement is not valid as a card', async () => {
  const card = await signCard(bob, bodyOf(), CARD_DOMAIN)
  assert.throws(() => verifyCard(card, ANNOUNCE_DOMAIN, NOW), badCard(/signature/))
  const announcement = await signCard(bob, bodyOf(), ANNOUNCE_DOMAIN)
  verifyCard(announcement, ANNOUNCE_DOMAIN, NOW)
  assert.throws(() => verifyCard(announcement, CARD_DOMAIN, NOW), badCard(/signature/))
})

test('a card with the key of another agent is refused', async () => {
  const body = cardBody.encode(bodyOf({ agent_public_key: agentNumber(3).publicKey }))
  const card = { body, signature: await bob.sign(CARD_DOMAIN, body) }
  assert.throws(() => verifyCard(card, CARD_DOMAIN, NOW), badCard(/signature/))
})

test('a card with forbidden content is refused by the signer and by the reader', async () => {
  const cases: [Partial<CardBody>, RegExp][] = [
    [{ version: 2 as 1 }, /version: expected 1/],
    [{ name: 'bob\u001b[2J' }, /do not print/],
    [{ name: 'bob\n' }, /do not print/],
    [{ name: 'bo\u202eb' }, /do not print/],
    [{ name: 'b\u200bob' }, /do not print/],
    [{ expires_at_ms: NOW }, /before it was issued/],
    [{ expires_at_ms: NOW - 1 }, /before it was issued/],
    [{ addresses: [''] }, /an IP address or a DNS name/],
  ]
  for (const [changes, reason] of cases) {
    await assert.rejects(signCard(bob, bodyOf(changes), CARD_DOMAIN), badCard(reason))
    const card = await forced(changes)
    assert.throws(() => verifyCard(card, CARD_DOMAIN, NOW), badCard(reason))
  }
})

test('a card with a field that is too long, or too many addresses, is refused', async () => {
  const address = `/ip4/10.0.0.1/tcp/1/p2p/${peerId}`
  verifyCard(
    await signCard(bob, bodyOf({ name: 'n'.repeat(MAX_NAME), addresses: Array(MAX_CARD_ADDRESSES).fill(address) }), CARD_DOMAIN),
    CARD_DOMAIN,
    NOW,
  )
  for (const changes of [{ name: 'n'.repeat(MAX_NAME + 1) }, { addresses: Array(MAX_CARD_ADDRESSES + 1).fill(address) }]) {
    await assert.rejects(signCard(bob, bodyOf(changes), CARD_DOMAIN), badCard(/card-body/))
    const card = await forced(changes)
    assert.throws(() => verifyCard(card, CARD_DOMAIN, NOW), badCard(/card-body/))
  }
})

test('an address that does not lead to the machine of the card over TCP is refused', async () => {
  const p2p = `/p2p/${peerId}`
  const relay = peerIdOf(machineNumber(9).machineId)
  const good = [
    `/ip4/127.0.0.1/tcp/1${p2p}`,
    `/ip6/::1/tcp/65535${p2p}`,
    `/dns/box.example/tcp/5483${p2p}`,
    `/dns4/box/tcp/5483${p2p}`,
    `/dns6/a-b.c_d.example/tcp/5483${p2p}`,
    `/ip4/10.0.0.1/tcp/5483/p2p/${relay}/p2p-circuit${p2p}`,
  ]
  await signCard(bob, bodyOf({ addresses: good }), CARD_DOMAIN)
  const bad = [
    `ip4/10.0.0.1/tcp/5483${p2p}`,
    `/ip4/10.0.0.256/tcp/5483${p2p}`,
    `/ip4/10.0.0.1/tcp/0${p2p}`,
    `/ip4/10.0.0.1/tcp/65536${p2p}`,
    `/ip4/10.0.0.1/tcp/05483${p2p}`,
    `/ip4/10.0.0.1/tcp/5483`,
    `/ip4/10.0.0.1/tcp/5483/p2p/${relay}`,
    `/ip4/10.0.0.1/tcp/5483${p2p}/`,
    `/ip4/10.0.0.1/tcp/5483${p2p}${p2p}`,
    `/ip4/10.0.0.1/tcp/5483${p2p}/p2p-circuit/p2p/${relay}`,
    `/ip4/10.0.0.1/tcp/5483/p2p/x/p2p-circuit${p2p}`,
    `/ip4/10.0.0.1/udp/5483/quic-v1${p2p}`,
    `/ip4//tcp/5483${p2p}`,
    `//ip4/10.0.0.1/tcp/5483${p2p}`,
    `/ip6/fe80::1%eth0/tcp/5483${p2p}`,
    `/ip6/10.0.0.1/tcp/5483${p2p}`,
    `/dns/-box/tcp/5483${p2p}`,
    `/dns/box..example/tcp/5483${p2p}`,
    `/dns/b ox/tcp/5483${p2p}`,
    `/unix/tmp/tcp/5483${p2p}`,
    `/constructor/x/tcp/5483${p2p}`,
    ` /ip4/10.0.0.1/tcp/5483${p2p}`,
    `/ip4/10.0.0.1/tcp/5483${p2p}\n`,
  ]
  for (const address of bad) {
    await assert.rejects(signCard(bob, bodyOf({ addresses: [good[0]!, address] }), CARD_DOMAIN), badCard(/the address/), address)
  }
  const ofOneLink = `/ip6/fe80::1%eth0/tcp/5483${p2p}`
  await assert.rejects(signCard(bob, bodyOf({ addresses: [ofOneLink] }), CARD_DOMAIN), badCard(/is link-local/))
})

test('a card link has exactly one valid spelling', async () => {
  const link = encodeCardLink(await signCard(bob, bodyOf(), CARD_DOMAIN))
  const text = link.slice(CARD_LINK_PREFIX.length)
  const cases: [string, RegExp][] = [
    ['', /does not begin with/],
    [text, /does not begin with/],
    [link.toUpperCase(), /does not begin with/],
    [CARD_LINK_PREFIX, /malformed|invalid/],
    [`${link}=`, /damaged or incomplete/],
    [`${link}\n`, /damaged or incomplete/],
    [`${link}!`, /damaged or incomplete/],
    [`${CARD_LINK_PREFIX} ${text}`, /damaged or incomplete/],
    [CARD_LINK_PREFIX + Buffer.from(text, 'base64url').toString('base64'), /damaged or incomplete/],
    [link.slice(0, -4), /damaged or incomplete/],
    [`${link}AAAA`, /damaged or incomplete/],
    [CARD_LINK_PREFIX + 'A'.repeat(20_000), /longer than/],
  ]
  for (const [altered, reason] of cases) assert.throws(() => decodeCardLink(altered), badCard(reason), altered.slice(0, 40))
})

test('property: a changed card never verifies and always fails with bad_card', async () => {
  const link = encodeCardLink(await signCard(bob, bodyOf(), CARD_DOMAIN))
  const original = Buffer.from(link.slice(CARD_LINK_PREFIX.length), 'base64url')
  const refused = (altered: string): boolean => {
    if (altered === link) return true
    try {
      verifyCard(decodeCardLink(altered), CARD_DOMAIN, NOW)
      return false
    } catch (error) {
      return isAppError(error, 'bad_card')
    }
  }
  const linkOf = (bytes: Uint8Array): string => CARD_LINK_PREFIX + Buffer.from(bytes).toString('base64url')
  // Short fields are at both ends of the body, around the long key, so the test prefers these places.
  const position = fc.oneof(fc.nat(20), fc.integer({ min: 1960, max: 2120 }), fc.nat(original.length - 1))
  fc.assert(
    fc.property(position, fc.nat(255), (at, value) => {
      const altered = new Uint8Array(original)
      altered[at] = value
      return refused(linkOf(altered))
    }),
    { seed: 5, numRuns: 600 },
  )
  fc.assert(
    fc.property(position, position, fc.uint8Array({ maxLength: 8 }), (from, to, inserted) =>
      refused(linkOf(Buffer.concat([original.subarray(0, from), inserted, original.subarray(to)]))),
    ),
    { seed: 6, numRuns: 300 },
  )
  fc.assert(
    fc.property(fc.nat(link.length - 1), fc.string({ minLength: 0, maxLength: 3, unit: 'binary' }), (at, inserted) =>
      refused(link.slice(0, at) + inserted + link.slice(at + 1)),
    ),
    { seed: 7, numRuns: 300 },
  )
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => refused(text) && refused(CARD_LINK_PREFIX + text)),
    { seed: 8, numRuns: 300 },
  )
})

test('property: every card that can be signed verifies with its content', async () => {
  await fc.assert(
    fc.asyncProperty(fc.string({ maxLength: 70, unit: 'grapheme' }), fc.nat(), fc.nat(), async (name, issued_at_ms, life) => {
      const body = bodyOf({ name, issued_at_ms, expires_at_ms: issued_at_ms + life })
      const card = await signCard(bob, body, CARD_DOMAIN).catch((error: unknown) => {
        assert.ok(isAppError(error, 'bad_card'))
        return null
      })
      if (card === null) return
      const again = signedCard.decode(signedCard.encode(card))
      assert.equal(verifyCard(again, CARD_DOMAIN, issued_at_ms).name, name)
    }),
    { seed: 9, numRuns: 60 },
  )
})

test('a peer ID matches the one that libp2p derives', () => {
  // The public key of the Ed25519 example in the libp2p specification of peer IDs.
  const machineId = '1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e'
  assert.equal(peerIdOf(machineId), '12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq')
  assert.throws(
    () => peerIdOf('zz'),
    (error) => isAppError(error, 'malformed'),
  )
})
