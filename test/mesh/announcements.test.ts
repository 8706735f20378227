import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { signCard } from '../../src/identity/card.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/peer-id.ts'
import {
  Announcements,
  MAX_STRANGERS,
  RELAYED_ANNOUNCES_PER_MINUTE,
  STRANGER_ANNOUNCES_PER_MINUTE,
  MAX_ANNOUNCED_MACHINES,
} from '../../src/mesh/announcements.ts'
import { encodeCbor, type CborValue } from '../../src/protocol/cbor.ts'
import { ANNOUNCE_DOMAIN, cardBody, CARD_DOMAIN, signedCard } from '../../src/protocol/card.ts'
import {
  AGENT_SIGNATURE_BYTES,
  ANNOUNCE_TTL_MS,
  ANNOUNCES_PER_MINUTE,
  MAX_CARD_BYTES,
  MAX_CLOCK_SKEW_MS,
} from '../../src/protocol/limits.ts'
import { ManualClock } from '../support/manual-clock.ts'

const machineOf = (n: number): string => machineKeyOf(Buffer.alloc(32, `machine${n}`)).machineId
const signer = agentSignerOf(new Uint8Array(32).fill(1))
const SELF = { agentId: '00'.repeat(32), machineId: machineOf(0) }

interface Wish {
  readonly machine?: string
  readonly issued: number
  readonly expires?: number
  readonly domain?: string
  readonly name?: string
}

const announce = async ({
  machine = machineOf(1),
  issued,
  expires = issued + ANNOUNCE_TTL_MS,
  domain = ANNOUNCE_DOMAIN,
  name = 'one',
}: Wish) =>
  signedCard.encode(
    await signCard(
      signer,
      {
        version: 1,
        agent_public_key: signer.publicKey,
        machine_id: machine,
        name,
        addresses: [`/ip4/10.0.0.1/tcp/4001/p2p/${peerIdOf(machine)}`],
        issued_at_ms: issued,
        expires_at_ms: expires,
      },
      domain,
    ),
  )

const setUp = (contacts: string[] = [], machines: string[] = []) => {
  const clock = new ManualClock()
  const [isContact, isKnown] = [(agentId: string) => contacts.includes(agentId), (machineId: string) => machines.includes(machineId)]
  const announcements = new Announcements({ clock, isContact, isKnown }, { self: SELF })
  let source = 0
  const receive = (data: Uint8Array, publisher = machineOf(1)) => announcements.receive(data, publisher, `neighbour${source++}`)
  return { clock, announcements, receive }
}

test('a valid announcement is accepted once, told as a newcomer, and replaced only by a newer one', async () => {
  const { clock, announcements, receive } = setUp()
  const first = await announce({ issued: clock.now() })
  assert.deepEqual(receive(first), { verdict: 'accept', newcomer: true })
  assert.deepEqual(receive(first), { verdict: 'ignore', newcomer: false })
  assert.deepEqual(receive(await announce({ issued: clock.now() - 1, name: 'older' })), { verdict: 'ignore', newcomer: false })
  assert.deepEqual(receive(await announce({ issued: clock.now() + 1, name: 'newer' })), { verdict: 'accept', newcomer: false })
  assert.deepEqual(
    announcements.list().map(({ name, agent_id, machine_id }) => ({ name, agent_id, machine_id })),
    [{ name: 'newer', agent_id: signer.agentId, machine_id: machineOf(1) }],
  )
  assert.deepEqual(announcements.counts, { accepted: 2, ignored: 2, rejected: 0, rate_limited: 0 })
})

test('a daemon of before has us announce as it does where it is known or a neighbour, and no stranger beyond', async () => {
  const [known, stranger] = [machineOf(1), machineOf(2)]
  const hears = async (machine: string, neighbour: string, expires?: number): Promise<boolean> => {
    const { clock, announcements } = setUp([], [known])
    const wish = { issued: clock.now(), machine, ...(expires !== undefined && { expires: clock.now() + expires }) }
    assert.equal(announcements.receive(await announce(wish), machine, neighbour).verdict, 'accept')
    return announcements.hearsOld
  }
  const another = peerIdOf(machineOf(3))
  assert.deepEqual(
    [await hears(known, another), await hears(stranger, peerIdOf(stranger)), await hears(stranger, another)],
    [true, true, false],
  )
  assert.equal(await hears(known, another, ANNOUNCE_TTL_MS + 1), false, 'one of ours')
})

test('an announcement that another machine publishes, a card, and altered bytes are held against the sender', async () => {
  const { clock, announcements, receive } = setUp()
  const valid = await announce({ issued: clock.now() })
  assert.equal(receive(valid, machineOf(2)).verdict, 'reject')
  assert.equal(receive(await announce({ issued: clock.now(), domain: CARD_DOMAIN })).verdict, 'reject')
  assert.equal(receive(new Uint8Array(MAX_CARD_BYTES + 1)).verdict, 'reject')
  assert.equal(receive(new Uint8Array()).verdict, 'reject')
  const altered = signedCard.decode(valid)
  const signature = Uint8Array.from(altered.signature)
  signature[9]! ^= 1
  assert.equal(receive(signedCard.encode({ body: altered.body, signature })).verdict, 'reject')
  assert.deepEqual(announcements.list(), [])
})

test('our own announcements are not passed on, and no neighbour is blamed where a clock may be wrong', async () => {
  const { clock, receive } = setUp()
  assert.equal(receive(await announce({ issued: clock.now(), machine: machineOf(0) }), machineOf(0)).verdict, 'ignore')
  const edge = MAX_CLOCK_SKEW_MS + ANNOUNCE_TTL_MS
  assert.equal(receive(await announce({ issued: clock.now() - edge - 1, expires: clock.now() + 1 })).verdict, 'ignore')
  assert.equal(receive(await announce({ issued: clock.now() + edge + 1 })).verdict, 'ignore')
  assert.equal(receive(await announce({ issued: clock.now() + MAX_CLOCK_SKEW_MS + 1 })).verdict, 'ignore')
  assert.equal(receive(await announce({ issued: clock.now() - 2, expires: clock.now() })).verdict, 'ignore')
  assert.equal(receive(await announce({ issued: clock.now() + MAX_CLOCK_SKEW_MS })).verdict, 'accept')
})

test('an announcement that expires while it is judged is nobody’s fault', async () => {
  const clock = new ManualClock()
  // An hour passes with each look, more than any announcement lasts.
  let looks = 0
  const passing = { ...clock, monotonic: () => clock.monotonic(), now: () => clock.now() + 3_600_000 * looks++ }
  const announcements = new Announcements(
    { clock: passing as unknown as ManualClock, isContact: () => false, isKnown: () => false },
    { self: SELF },
  )
  assert.notEqual(announcements.receive(await announce({ issued: clock.now() }), machineOf(1), 'n').verdict, 'reject')
  assert.ok(looks > 0)
})

test('a card of a later version is ignored, whatever else it holds, and no neighbour is blamed for it', () => {
  const { announcements, receive } = setUp()
  const card = (body: CborValue): Uint8Array =>
    signedCard.encode({ body: encodeCbor(body), signature: new Uint8Array(AGENT_SIGNATURE_BYTES) })
  assert.equal(receive(card([2])).verdict, 'ignore')
  assert.equal(receive(card([2, new Uint8Array(4), 'more', ['than', 1]])).verdict, 'ignore')
  for (const body of [[1], [0], [-2], ['2'], [], 2, [[2]]] as CborValue[]) {
    assert.equal(receive(card(body)).verdict, 'reject', JSON.stringify(body))
  }
  assert.deepEqual([announcements.counts.ignored, announcements.list()], [2, []])
})

test('an announcement is believed for a limited time, whatever it claims', async () => {
  const { clock, announcements, receive } = setUp()
  receive(await announce({ issued: clock.now(), expires: clock.now() + 100 * ANNOUNCE_TTL_MS }))
  await clock.advance(ANNOUNCE_TTL_MS - 1)
  assert.equal(announcements.list().length, 1)
  await clock.advance(1)
  assert.equal(announcements.list().length, 0)
})

test('a machine and a neighbour may announce so much a minute', async () => {
  const { clock, announcements, receive } = setUp()
  for (let i = 0; i < ANNOUNCES_PER_MINUTE; i++) assert.equal(receive(await announce({ issued: clock.now() + i })).verdict, 'accept')
  assert.equal(receive(await announce({ issued: clock.now() + ANNOUNCES_PER_MINUTE })).verdict, 'ignore')
  const noise = new Uint8Array([1])
  for (let i = 1; i <= RELAYED_ANNOUNCES_PER_MINUTE; i++) announcements.receive(noise, `m${i}`, 'relay')
  assert.equal(announcements.receive(noise, 'fresh', 'relay').verdict, 'ignore')
  assert.equal(announcements.counts.rate_limited, 2)
  await clock.advance(60_000)
  assert.equal(announcements.receive(noise, 'm', 'relay').verdict, 'reject')
  assert.equal(receive(await announce({ issued: clock.now() })).verdict, 'accept')
})

test('what a machine said before, said again by whomever and however often, uses up nothing of what it may say', async () => {
  const { clock, announcements } = setUp([], [machineOf(1)])
  const said: Uint8Array[] = []
  for (let i = 0; i < ANNOUNCES_PER_MINUTE; i++) said.push(await announce({ issued: clock.now() + i }))
  await clock.advance(ANNOUNCE_TTL_MS / 2)
  assert.equal(announcements.receive(await announce({ issued: clock.now() }), machineOf(1), 'honest').verdict, 'accept')
  // Some of it still holds, and then none of it any more.
  for (let half = 0; half < 2; half++) {
    for (let i = 0; i < 100; i++) {
      assert.equal(announcements.receive(said[i % said.length]!, machineOf(1), 'mallory').verdict, 'ignore')
    }
    const news = await announce({ issued: clock.now() + 1 })
    assert.equal(announcements.receive(news, machineOf(1), 'honest').verdict, 'accept')
    await clock.advance(ANNOUNCE_TTL_MS)
  }
})

test('a contact is remembered on so many machines that it announces, and those that we know stay', async () => {
  const known = machineOf(1)
  const { clock, announcements, receive } = setUp([signer.agentId], [known])
  assert.equal(receive(await announce({ issued: clock.now() }), known).verdict, 'accept')
  for (let i = 0; i < 3 * MAX_ANNOUNCED_MACHINES; i++) {
    const machine = machineOf(100 + i)
    assert.equal(receive(await announce({ issued: clock.now(), machine }), machine).verdict, 'accept')
  }
  const machines = announcements.list().map(({ machine_id }) => machine_id)
  assert.deepEqual(
    [machines.length, machines.includes(known), machines.at(-1)],
    [MAX_ANNOUNCED_MACHINES, true, machineOf(100 + 3 * MAX_ANNOUNCED_MACHINES - 1)],
  )
})

/** Decodes, and is checked at the price of any other; its signature is not one. */
const forged = (agentKey: Uint8Array, machine: string, issued: number): Uint8Array =>
  signedCard.encode({
    body: cardBody.encode({
      version: 1,
      agent_public_key: agentKey,
      machine_id: machine,
      name: 'forged',
      addresses: [],
      issued_at_ms: issued,
      expires_at_ms: issued + ANNOUNCE_TTL_MS,
    }),
    signature: new Uint8Array(AGENT_SIGNATURE_BYTES),
  })

test('strangers together may announce so much a minute, and use up nothing of those we know', async () => {
  const [named, moved] = [machineOf(1), machineOf(2)]
  const { clock, announcements, receive } = setUp([signer.agentId], [named])
  const stranger = agentSignerOf(new Uint8Array(32).fill(2))
  const fromStranger = (i: number) => receive(forged(stranger.publicKey, machineOf(100 + i), clock.now()), machineOf(100 + i)).verdict
  for (let i = 0; i < STRANGER_ANNOUNCES_PER_MINUTE; i++) assert.equal(fromStranger(i), 'reject')
  assert.equal(fromStranger(STRANGER_ANNOUNCES_PER_MINUTE), 'ignore')
  assert.equal(announcements.counts.rate_limited, 1)
  const fromNamed = await announce({ issued: clock.now(), machine: named })
  assert.equal(receive(fromNamed, named).verdict, 'accept')
  const fromMoved = await announce({ issued: clock.now(), machine: moved })
  assert.equal(receive(fromMoved, moved).verdict, 'accept')
  await clock.advance(60_000)
  assert.equal(fromStranger(0), 'reject')
})

test('a neighbour that relays too much still brings what machines we know publish', async () => {
  const named = machineOf(1)
  const { clock, announcements } = setUp([], [named])
  for (let i = 0; i <= RELAYED_ANNOUNCES_PER_MINUTE; i++) announcements.receive(new Uint8Array([1]), machineOf(100 + i), 'relay')
  const valid = await announce({ issued: clock.now() })
  assert.equal(announcements.receive(valid, machineOf(99), 'relay').verdict, 'ignore')
  assert.equal(announcements.receive(valid, named, 'relay').verdict, 'accept')
  const newer = async (i: number) => announcements.receive(await announce({ issued: clock.now() + i }), named, 'relay').verdict
  for (let i = 1; i < ANNOUNCES_PER_MINUTE; i++) assert.equal(await newer(i), 'accept')
  assert.equal(await newer(ANNOUNCES_PER_MINUTE), 'ignore')
})

test('what is made up in the name of a contact uses up the share of who brings it, and not what that contact may say', async () => {
  const { clock, announcements } = setUp([signer.agentId])
  const bring = (data: Uint8Array, machine: string, neighbour: string): string => announcements.receive(data, machine, neighbour).verdict
  for (let i = 0; i < ANNOUNCES_PER_MINUTE; i++)
    assert.equal(bring(forged(signer.publicKey, machineOf(100 + i), clock.now()), machineOf(100 + i), 'mallory'), 'reject')
  assert.equal(bring(forged(signer.publicKey, machineOf(99), clock.now()), machineOf(99), 'mallory'), 'ignore')
  assert.equal(bring(await announce({ issued: clock.now(), machine: machineOf(2) }), machineOf(2), 'honest'), 'accept')
})

test('strangers push out strangers, never a contact', async () => {
  const contact = signer.agentId
  const { clock, announcements, receive } = setUp([contact])
  receive(await announce({ issued: clock.now() }))
  const { agentSignerOf: other } = await import('../../src/identity/agent-key.ts')
  const stranger = other(new Uint8Array(32).fill(2))
  for (let i = 0; i < MAX_STRANGERS + 5; i++) {
    const machine = machineOf(100 + i)
    const card = await signCard(
      stranger,
      {
        version: 1,
        agent_public_key: stranger.publicKey,
        machine_id: machine,
        name: `s${i}`,
        addresses: [],
        issued_at_ms: clock.now() + i,
        expires_at_ms: clock.now() + ANNOUNCE_TTL_MS,
      },
      ANNOUNCE_DOMAIN,
    )
    assert.equal(receive(signedCard.encode(card), machine).verdict, 'accept')
  }
  const list = announcements.list()
  assert.equal(list.length, MAX_STRANGERS + 1)
  assert.ok(list.some((one) => one.agent_id === contact))
  assert.ok(!list.some((one) => one.name === 's0') && list.some((one) => one.name === 's5'))
})

test('bytes of any kind are judged and never throw', async () => {
  const { clock, receive } = setUp()
  const valid = await announce({ issued: clock.now() })
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(valid.length - 1), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 5 }),
      (changes) => {
        const bytes = Uint8Array.from(valid)
        for (const [at, change] of changes) bytes[at]! ^= change
        const same = Buffer.from(bytes).equals(valid)
        const fresh = setUp()
        assert.equal(fresh.receive(bytes).verdict === 'accept', same)
      },
    ),
    { seed: 20260103, numRuns: 300 },
  )
  assert.equal(receive(valid).verdict, 'accept')
})
