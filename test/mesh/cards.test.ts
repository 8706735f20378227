import { patient } from '../support/wait-limits.ts'
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { signCard, verifyCard } from '../../src/identity/card.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { KnownAgents } from '../../src/mesh/known-agents.ts'
import { AppError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import { ALL_CLAIMS_DIALLED_PER_MINUTE, CARD_ANSWERS_PER_MINUTE, Cards, CLAIMS_DIALLED_PER_MINUTE } from '../../src/mesh/cards.ts'
import type { PresenceRecord } from '../../src/mesh/presences.ts'
import { ANNOUNCE_DOMAIN, cardAsk, CARD_DOMAIN, CARD_PROTOCOL, presence, signedCard } from '../../src/protocol/wire/card.ts'
import { encodeFrame } from '../../src/protocol/wire/framing.ts'
import { MAX_CARD_BYTES, MAX_CLOCK_SKEW_MS, RECORD_TTL_MS } from '../../src/protocol/limits/wire.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { signalOf } from '../support/hostile-link.ts'
import { introduce, startPeer, type Peer } from '../support/peer.ts'
import { until } from '../support/processes.ts'
import { openGossip, rightlySigned, UnlistedPeer } from '../support/unlisted-peer.ts'
import { fake } from '../support/fake.ts'
import type { AddressBook } from '../../src/mesh/address-book.ts'
import type { MeshNode } from '../../src/mesh/node.ts'
import type { Presences } from '../../src/mesh/presences.ts'

const LIMIT = { timeout: 60_000 }
const signer = agentSignerOf(new Uint8Array(32).fill(1))
const other = agentSignerOf(new Uint8Array(32).fill(2))
const machine = machineKeyOf(Buffer.alloc(32, 'machine1')).machineId

interface Wish {
  readonly by?: typeof signer
  readonly machineId?: string
  readonly issued: number
  readonly expires?: number
  readonly domain?: string
}

const cardOf = async ({ by = signer, machineId = machine, issued, expires = issued + RECORD_TTL_MS, domain = ANNOUNCE_DOMAIN }: Wish) => {
  const address = `/ip4/10.0.0.1/tcp/4001/p2p/${peerIdOf(machineId)}`
  const body = { version: 1 as const, agent_public_key: by.publicKey, machine_id: machineId, name: 'one', addresses: [address] }
  return signedCard.encode(await signCard(by, { ...body, issued_at_ms: issued, expires_at_ms: expires }, domain))
}

const heardAt = (now: number, card_issued_at_ms: number): PresenceRecord => ({
  agent_id: signer.agentId,
  machine_id: machine,
  card_issued_at_ms,
  said_at_ms: now,
  claimed_at_ms: now,
  expires_at_ms: now + 162_000,
  addresses: [],
  neighbour: 'n',
})

const setUp = () => {
  const clock = new ManualClock()
  const knownAgents = new KnownAgents({ clock, isContact: () => false, isKnown: () => false })
  return { clock, knownAgents }
}

test('a card is learnt from the machine that announces it, and presences of that machine keep it valid', async () => {
  const { clock, knownAgents } = setUp()
  const issued = clock.now()
  const heard = heardAt(clock.now(), issued)
  assert.equal(knownAgents.renew(heard), false)
  assert.equal(knownAgents.learn(await cardOf({ issued }), heard), 'newcomer')
  assert.equal(knownAgents.learn(await cardOf({ issued }), heard), 'known')
  await clock.advance(161_000)
  assert.equal(knownAgents.renew(heardAt(clock.now(), issued)), true)
  assert.equal(knownAgents.renew(heardAt(clock.now(), issued + 1)), false, 'there is a newer card')
  await clock.advance(161_999)
  assert.equal(knownAgents.list().length, 1)
  await clock.advance(1)
  assert.deepEqual(knownAgents.list(), [])
})

test('a card expires at its own time, even if its machine keeps announcing it', async () => {
  const { clock, knownAgents } = setUp()
  const issued = clock.now()
  assert.equal(knownAgents.learn(await cardOf({ issued, expires: issued + 200_000 }), heardAt(issued, issued)), 'newcomer')
  await clock.advance(150_000)
  assert.equal(knownAgents.renew(heardAt(clock.now(), issued)), true)
  await clock.advance(49_999)
  assert.equal(knownAgents.list().length, 1)
  await clock.advance(1)
  assert.equal(knownAgents.renew(heardAt(clock.now(), issued)), false, 'another is asked for')
  assert.deepEqual(knownAgents.list(), [])
})

test('a card is refused if it is of another agent, machine or use, outdated, expired or altered', async () => {
  const { clock, knownAgents } = setUp()
  const now = clock.now()
  const heard = heardAt(now, now)
  const bad: Wish[] = [
    { issued: now, by: other },
    { issued: now, machineId: machineKeyOf(Buffer.alloc(32, 'machine2')).machineId },
    { issued: now - 1 },
    { issued: now, domain: CARD_DOMAIN },
    { issued: now + MAX_CLOCK_SKEW_MS + 1 },
  ]
  for (const wish of bad) assert.equal(knownAgents.learn(await cardOf(wish), heard), 'refused', JSON.stringify(Object.keys(wish)))
  const old = heardAt(now, 0)
  assert.equal(knownAgents.learn(await cardOf({ issued: now - RECORD_TTL_MS }), old), 'refused', 'expired')
  const valid = await cardOf({ issued: now })
  fc.assert(
    fc.property(fc.nat(valid.length - 1), fc.integer({ min: 1, max: 255 }), (at, change) => {
      const bytes = Uint8Array.from(valid)
      bytes[at]! ^= change
      assert.equal(knownAgents.learn(bytes, heard), 'refused')
    }),
    { seed: 20261126, numRuns: 300 },
  )
  assert.deepEqual(knownAgents.list(), [])
  assert.equal(knownAgents.learn(valid, heard), 'newcomer')
})

/** Returns the machines that a daemon dials to check claims, if each dial fails. */
const dialled = (claims: readonly { readonly machine: number; readonly neighbour: string }[]) => {
  const { clock, knownAgents } = setUp()
  const machines: string[] = []
  const node = fake<MeshNode>({
    machineId: 'ff'.repeat(32),
    connectionsTo: () => [],
    handle: () => undefined,
    isKnown: () => false,
    dial: async (machineId: string) => {
      machines.push(machineId)
      throw new AppError('peer_unreachable')
    },
  })
  const [presences, book] = [fake<Presences>({ of: () => null }), fake<AddressBook>({ mayBe: () => true })]
  const selfCard = { current: async () => assert.fail('nobody asks') }
  const cards = new Cards({ node, presences, book, knownAgents, selfCard, onNewcomer: () => undefined, clock, log: silentLogger })
  for (const { machine: number, neighbour } of claims)
    cards.heard({ ...heardAt(clock.now(), 0), machine_id: number.toString(16).padStart(64, '0'), neighbour })
  return async (): Promise<string[]> => {
    for (let turns = 0; turns < claims.length; turns++) await new Promise((resolve) => setImmediate(resolve))
    cards.stop()
    return machines
  }
}

test('a peer that invents machines of a contact uses up no dial for a claim from another peer', async () => {
  const madeUp = Array.from({ length: 2 * CLAIMS_DIALLED_PER_MINUTE }, (_, machine) => ({ machine, neighbour: 'mallory' }))
  const machines = await dialled([...madeUp, { machine: 255, neighbour: 'honest' }])()
  assert.equal(machines.length, CLAIMS_DIALLED_PER_MINUTE + 1)
  assert.ok(machines.some((one) => one.endsWith('ff')))
})

test('dials for claims are limited for all peers together', async () => {
  const claims = Array.from({ length: 200 }, (_, machine) => ({ machine, neighbour: `neighbour${machine}` }))
  const machines = await dialled(claims)()
  assert.ok(
    machines.length <= ALL_CLAIMS_DIALLED_PER_MINUTE && machines.length >= ALL_CLAIMS_DIALLED_PER_MINUTE / 2,
    String(machines.length),
  )
})

test('peers ask each other for their cards once, and learn cards of others through a third peer', LIMIT, async (t) => {
  const hub = await startPeer(t, { name: 'hub' })
  const alice = await startPeer(t, { name: 'alice', bootstrap: hub.node.addresses() })
  const bob = await startPeer(t, { name: 'bob', bootstrap: hub.node.addresses() })
  const knows = (who: Peer, whom: Peer): boolean => who.knownAgents.list().some(({ agent_id }) => agent_id === whom.agentId)
  await until(() => [hub, alice, bob].every((who) => [hub, alice, bob].every((whom) => who === whom || knows(who, whom))))
  assert.deepEqual(
    [hub, alice, bob].map(({ cards }) => cards.counts.learnt),
    [2, 2, 2],
  )
  assert.deepEqual(alice.node.connectionsTo(bob.machineId), [])
})

/** A machine that claims to be one of alice, is connected to bob, and answers card requests with `answer`. */
const claimant = async (t: TestContext, bob: Peer, alice: Peer, answer: () => Promise<Uint8Array>) => {
  const seed = randomBytes(32)
  const mallory = await UnlistedPeer.start(t, seed)
  let asked = 0
  await mallory.node.handle(CARD_PROTOCOL, (stream) => {
    asked += 1
    stream.addEventListener('message', () => void answer().then((bytes) => stream.send(bytes)))
  })
  const gossip = await openGossip(await mallory.connect(bob.node.addresses()[0]!))
  const say = async (number: number): Promise<void> => {
    const said = {
      version: 1 as const,
      agent_id: alice.agentId,
      card_issued_at_ms: 0,
      said_at_ms: Date.now(),
      holds_secs: 600,
      addresses: [],
    }
    gossip.send(await rightlySigned(seed, number, presence.encode(said)))
  }
  return { machineId: machineKeyOf(seed).machineId, say, asked: () => asked }
}

test('a machine that claims to be a contact but cannot show its card is never accepted', LIMIT, async (t) => {
  const [bob, alice] = [await startPeer(t, { name: 'bob' }), await startPeer(t, { name: 'alice' })]
  await introduce(bob, alice, 'trusted')
  await until(() => bob.knownAgents.list().some(({ agent_id }) => agent_id === alice.agentId))
  const { address } = { address: alice.node.addresses() }
  const alicesCard = async (): Promise<Uint8Array> => {
    const now = Date.now()
    const body = {
      version: 1 as const,
      agent_public_key: alice.signer.publicKey,
      machine_id: alice.machineId,
      name: 'alice',
      addresses: address,
    }
    return signedCard.encode(await signCard(alice.signer, { ...body, issued_at_ms: now, expires_at_ms: now + 60_000 }, ANNOUNCE_DOMAIN))
  }
  const answers: (() => Promise<Uint8Array>)[] = [
    async () => encodeFrame(await alicesCard()),
    async () => encodeFrame(randomBytes(4_000)),
    async () => encodeFrame(new Uint8Array()),
    async () => encodeFrame(randomBytes(MAX_CARD_BYTES + 1)),
    async () => randomBytes(3),
  ]
  for (const answer of answers) {
    const mallory = await claimant(t, bob, alice, answer)
    await mallory.say(1)
    await until(() => mallory.asked() === 1 && bob.presences.of(mallory.machineId) !== null)
    assert.ok(bob.knownAgents.list().every(({ machine_id }) => machine_id !== mallory.machineId))
    // The claim ranks after the proven machine.
    assert.equal(bob.book.candidates(alice.agentId)[0]?.machineId, alice.machineId)
  }
  assert.equal((await bob.links.link(alice.agentId, signalOf())).machineId, alice.machineId)
})

/** A presence message signed by this machine, which any peer can deliver. */
const saidBy = async (seed: Uint8Array, agentId: string, addresses: string[] = []): Promise<Buffer> => {
  const said = { version: 1 as const, agent_id: agentId, card_issued_at_ms: 0, said_at_ms: Date.now(), holds_secs: 600, addresses }
  return rightlySigned(seed, 1, presence.encode(said))
}

test('if the peer that brought the presence of a contact gives no card, the machine itself is asked', LIMIT, async (t) => {
  const [bob, alice] = [await startPeer(t, { name: 'bob' }), await startPeer(t, { name: 'alice' })]
  await bob.contacts.importCard(
    verifyCard(
      await signCard(
        alice.signer,
        {
          version: 1,
          agent_public_key: alice.signer.publicKey,
          machine_id: machine,
          name: 'alice',
          addresses: [],
          issued_at_ms: Date.now(),
          expires_at_ms: Date.now() + 60_000,
        },
        CARD_DOMAIN,
      ),
      CARD_DOMAIN,
      Date.now(),
    ),
    { trust: 'trusted' },
  )
  await until(() => bob.book.isContact(alice.agentId))
  const mallory = await UnlistedPeer.start(t)
  await mallory.node.handle(CARD_PROTOCOL, (stream) => stream.abort(new Error('nothing')))
  const gossip = await openGossip(await mallory.connect(bob.node.addresses()[0]!))
  const addresses = alice.node.addresses().map((address) => address.replace(/\/p2p\/.*/, ''))
  gossip.send(await saidBy(alice.machineKey.seed, alice.agentId, addresses))
  await until(() => bob.knownAgents.list().some(({ machine_id }) => machine_id === alice.machineId))
})

test('a peer that asks for too many cards is refused, without unhandled rejections', LIMIT, async (t) => {
  const bob = await startPeer(t, { name: 'bob' })
  const mallory = await UnlistedPeer.start(t)
  const { connection } = await mallory.connect(bob.node.addresses()[0]!)
  const floating: unknown[] = []
  const note = (reason: unknown): void => void floating.push(reason)
  process.on('unhandledRejection', note)
  t.after(() => process.off('unhandledRejection', note))
  const ask = async (): Promise<void> => {
    const stream = await connection.newStream(CARD_PROTOCOL).catch(() => null)
    if (stream === null) return
    const ended = new Promise<void>((resolve) => stream.addEventListener('close', () => resolve()))
    if (stream.status === 'open') stream.send(encodeFrame(cardAsk.encode({ version: 1, machine_id: machine })))
    if (stream.status === 'open') await stream.close().catch(() => undefined)
    if (stream.status === 'open') await ended
  }
  for (let i = 0; i < CARD_ANSWERS_PER_MINUTE + 64; i += 64) await Promise.all(Array.from({ length: 64 }, ask))
  await new Promise((resolve) => setImmediate(resolve))
  assert.deepEqual(floating, [])
  assert.ok(bob.cards.counts.answered < CARD_ANSWERS_PER_MINUTE + 64)
})

test('a peer that announces many unlisted machines and answers no card request does not delay a contact', LIMIT, async (t) => {
  const [bob, alice] = [await startPeer(t, { name: 'bob' }), await startPeer(t, { name: 'alice' })]
  const mallory = await UnlistedPeer.start(t)
  await mallory.node.handle(CARD_PROTOCOL, () => undefined)
  const gossip = await openGossip(await mallory.connect(bob.node.addresses()[0]!))
  for (let i = 0; i < 100; i++) gossip.send(await saidBy(randomBytes(32), other.agentId))
  await until(() => bob.presences.size >= 100)
  await introduce(bob, alice, 'trusted')
  const began = performance.now()
  await until(() => bob.knownAgents.list().some(({ agent_id }) => agent_id === alice.agentId))
  // A hundred unanswered requests would take a minute.
  assert.ok(performance.now() - began < patient(15_000))
})
