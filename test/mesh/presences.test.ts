import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { pauseMs } from '../../src/mesh/beacon.ts'
import {
  MAX_HEARD_UNLISTED,
  Presences,
  PRESENCES_PER_SECOND,
  RELAYED_PRESENCES_PER_MINUTE,
  UNLISTED_PRESENCES_PER_MINUTE,
} from '../../src/mesh/presences.ts'
import { encodeCbor, type CborValue } from '../../src/protocol/wire/cbor.ts'
import { presence, type Presence } from '../../src/protocol/wire/card.ts'
import { PRESENCES_PER_MINUTE, MAX_CLOCK_SKEW_MS, MAX_PRESENCE_BYTES, MAX_PRESENCE_SECS } from '../../src/protocol/limits/wire.ts'
import { ManualClock } from '../support/manual-clock.ts'

const machineOf = (n: number): string => machineKeyOf(Buffer.alloc(32, `machine${n}`)).machineId
const AGENT = 'a1'.repeat(32)
const CONTACT = 'c3'.repeat(32)

const setUp = (known: string[] = []) => {
  const clock = new ManualClock()
  const presences = new Presences(
    { clock, isKnown: (machineId) => known.includes(machineId), isContact: (agentId) => agentId === CONTACT },
    { self: machineOf(0) },
  )
  const said = (wish: Partial<Presence> = {}): Uint8Array =>
    presence.encode({
      version: 1,
      agent_id: AGENT,
      card_issued_at_ms: 1,
      said_at_ms: clock.now(),
      holds_secs: 162,
      addresses: ['/ip4/192.0.2.7/tcp/5483'],
      ...wish,
    })
  let source = 0
  const receive = (data: Uint8Array, publisher = machineOf(1)) => presences.receive(data, publisher, `neighbour${source++}`)
  return { clock, presences, said, receive }
}

test('a presence counts once as a newcomer, is replaced only by a newer one, and expires after its time', async () => {
  const { clock, presences, said, receive } = setUp()
  const first = receive(said())
  assert.deepEqual([first.verdict, first.newcomer, first.heard?.agent_id], ['accept', true, AGENT])
  assert.match(first.heard!.addresses[0]!, /^\/ip4\/192\.0\.2\.7\/tcp\/5483\/p2p\/12D3/)
  assert.equal(receive(said()).verdict, 'ignore')
  assert.equal(receive(said({ said_at_ms: clock.now() - 1 })).verdict, 'ignore')
  const next = receive(said({ said_at_ms: clock.now() + 1 }))
  assert.deepEqual([next.verdict, next.newcomer], ['accept', false])
  await clock.advance(161_999)
  assert.equal(presences.list().length, 1)
  await clock.advance(1)
  assert.deepEqual([presences.list(), presences.of(machineOf(1))], [[], null])
})

test('a machine that has fallen silent does not count for the presence rate', async () => {
  const known = Array.from({ length: 300 }, (_, n) => machineOf(n + 1))
  const { clock, presences, said, receive } = setUp(known)
  for (const one of known) assert.equal(receive(said(), one).verdict, 'accept')
  assert.equal(presences.size, known.length)
  await clock.advance(162_000)
  assert.deepEqual([presences.size, pauseMs(presences.size)], [0, pauseMs(0)])
})

test('an invalid presence is held against its sender, and a difference of clocks or versions is not', () => {
  const { clock, said, receive } = setUp()
  for (const bad of [
    new Uint8Array(),
    new Uint8Array(MAX_PRESENCE_BYTES + 1),
    said({ addresses: ['/ip4/192.0.2.7/udp/1'] }),
    said({ addresses: [`/ip4/192.0.2.7/tcp/1/p2p/${'1'.repeat(52)}`] }),
    encodeCbor([1]),
    encodeCbor([0, AGENT]),
    encodeCbor({} as unknown as CborValue),
  ])
    assert.equal(receive(bad).verdict, 'reject')
  for (const holds_secs of [0, MAX_PRESENCE_SECS + 1]) assert.equal(receive(said({ holds_secs })).verdict, 'reject')
  assert.equal(receive(said(), machineOf(0)).verdict, 'ignore', 'our own')
  assert.equal(receive(said({ said_at_ms: clock.now() + MAX_CLOCK_SKEW_MS + 1 })).verdict, 'ignore')
  assert.equal(receive(said({ said_at_ms: clock.now() - MAX_CLOCK_SKEW_MS - 162_000 })).verdict, 'ignore')
  assert.equal(receive(encodeCbor([2, 'anything', 3])).verdict, 'ignore')
  assert.equal(receive(said({ said_at_ms: clock.now() + MAX_CLOCK_SKEW_MS })).verdict, 'accept')
})

test('a machine may send a limited number of presences, and outdated ones do not count', () => {
  const { clock, said, receive } = setUp([machineOf(1)])
  for (let i = 0; i < PRESENCES_PER_MINUTE; i++) {
    assert.equal(receive(said({ said_at_ms: clock.now() + i })).verdict, 'accept')
    assert.equal(receive(said({ said_at_ms: clock.now() })).verdict, 'ignore')
  }
  assert.equal(receive(said({ said_at_ms: clock.now() + PRESENCES_PER_MINUTE })).verdict, 'ignore')
})

test('a flooding peer leaves room for other peers, and all unlisted machines leave room for known ones', () => {
  const { presences, said } = setUp([machineOf(1)])
  let n = 100
  const flood = (neighbour: string, count: number): number => {
    let accepted = 0
    for (let i = 0; i < count; i++) if (presences.receive(said(), machineOf(n++), neighbour).verdict === 'accept') accepted += 1
    return accepted
  }
  assert.equal(flood('mallory', 2 * RELAYED_PRESENCES_PER_MINUTE), RELAYED_PRESENCES_PER_MINUTE)
  assert.equal(flood('honest', 10), 10)
  assert.equal(flood('other', UNLISTED_PRESENCES_PER_MINUTE), UNLISTED_PRESENCES_PER_MINUTE - RELAYED_PRESENCES_PER_MINUTE - 10)
  assert.equal(presences.receive(said(), machineOf(1), 'mallory').verdict, 'accept')
})

test('machines that claim to be a contact evict no known machine and use only the share of their peer', async () => {
  const known = machineOf(1)
  const { clock, presences, said } = setUp([known])
  assert.equal(presences.receive(said({ agent_id: CONTACT, holds_secs: 1_800 }), known, 'honest').verdict, 'accept')
  for (let i = 0; i < MAX_HEARD_UNLISTED + 50; i++) {
    presences.receive(said({ agent_id: CONTACT, holds_secs: 1_800 }), machineOf(100 + i), `m${i % 100}`)
    await clock.advance(200)
  }
  assert.ok(presences.size <= MAX_HEARD_UNLISTED + 1, String(presences.size))
  assert.notEqual(presences.of(known), null)
  assert.equal(presences.claimsOf(CONTACT)[0], known)
})

test('machines that claim one agent are ordered by the age of their claim', async () => {
  const { clock, presences, said, receive } = setUp()
  receive(said({ agent_id: CONTACT }), machineOf(1))
  await clock.advance(1_000)
  for (const n of [2, 3]) receive(said({ agent_id: CONTACT }), machineOf(n))
  await clock.advance(1_000)
  for (const n of [1, 3]) receive(said({ agent_id: CONTACT }), machineOf(n))
  assert.deepEqual(presences.claimsOf(CONTACT), [machineOf(1), machineOf(2), machineOf(3)])
  // A machine that claimed another agent in between starts again.
  receive(said({ said_at_ms: clock.now() + 1 }), machineOf(1))
  await clock.advance(1_000)
  receive(said({ agent_id: CONTACT }), machineOf(1))
  assert.deepEqual(presences.claimsOf(CONTACT), [machineOf(2), machineOf(3), machineOf(1)])
})

test('a peer that announces many machines evicts only machines that it announced itself', async () => {
  const { clock, presences, said } = setUp([machineOf(2)])
  const bring = (neighbour: string, machine: number): void => {
    assert.equal(presences.receive(said({ holds_secs: 1_800 }), machineOf(machine), neighbour).verdict, 'accept')
  }
  bring('honest', 1)
  bring('mallory', 2)
  for (let i = 0; i < MAX_HEARD_UNLISTED + 5; i++) {
    bring('mallory', 100 + i)
    await clock.advance(60_000 / RELAYED_PRESENCES_PER_MINUTE)
  }
  const [honest, known, oldest] = [1, 2, 100].map((machine) => presences.of(machineOf(machine)) !== null)
  assert.deepEqual([presences.size, honest, known, oldest], [MAX_HEARD_UNLISTED + 1, true, true, false])
})

test('all presences of a mesh together stay below the rate limit for any size that can be counted', () => {
  for (const others of [0, 9, 99, 500, MAX_HEARD_UNLISTED - 1])
    assert.ok((others + 1) / (pauseMs(others) / 1000) <= PRESENCES_PER_SECOND + 0.01, String(others))
  assert.equal(pauseMs(MAX_HEARD_UNLISTED), (MAX_PRESENCE_SECS * 1000) / 3)
  assert.equal(pauseMs(9), 45_000)
})

test('arbitrary bytes are judged without exceptions', () => {
  const { said } = setUp()
  const valid = said()
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: MAX_PRESENCE_BYTES + 10 }), (bytes) => {
      assert.notEqual(setUp().receive(bytes).verdict, 'accept')
    }),
    { seed: 20261126, numRuns: 300 },
  )
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(valid.length - 1), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 4 }),
      fc.nat(valid.length),
      (changes, cut) => {
        const bytes = Uint8Array.from(valid)
        for (const [at, change] of changes) bytes[at]! ^= change
        for (const one of [bytes, bytes.subarray(0, cut)]) {
          const { verdict, heard } = setUp().receive(one)
          if (verdict !== 'accept') continue
          // An accepted message is a presence of the machine that signed it.
          assert.equal(heard!.machine_id, machineOf(1))
          assert.ok(heard!.addresses.every((address) => address.includes('/p2p/12D3')))
        }
      },
    ),
    { seed: 20261126, numRuns: 500 },
  )
})

test('a peer that brings many claims to be a contact leaves room for the claims of another peer', () => {
  const { presences, said } = setUp()
  let n = 100
  const claim = (neighbour: string, agent_id = CONTACT): boolean =>
    presences.receive(said({ agent_id }), machineOf(n++), neighbour).verdict === 'accept'
  for (const neighbour of ['one', 'two']) while (claim(neighbour, AGENT));
  assert.equal(Array.from({ length: 20 }, () => claim('mallory')).filter(Boolean).length, PRESENCES_PER_MINUTE)
  assert.equal(claim('honest'), true)
})
