import assert from 'node:assert/strict'
import { test } from 'node:test'

import { multiaddr } from '@multiformats/multiaddr'
import fc from 'fast-check'

import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { machineIdOfText, peerIdOf } from '../../src/identity/machine-key.ts'
import { AddressBook, type BookContact, MAX_MDNS_PEERS } from '../../src/mesh/address-book.ts'
import { isPublicText } from '../../src/identity/address.ts'
import { announceable, hostOf, hostOfText, parseAddress } from '../../src/mesh/addresses.ts'
import type { SeenAgent } from '../../src/mesh/known-agents.ts'
import type { PresenceRecord } from '../../src/mesh/presences.ts'
import { MAX_ADDRESS_TEXT, MAX_DIAL_ADDRESSES } from '../../src/protocol/limits/wire.ts'

const machineOf = (n: number): string => machineKeyOf(new Uint8Array(32).fill(n)).machineId
const at = (machine: string, host = '10.0.0.1', port = 4001): string => `/ip4/${host}/tcp/${port}/p2p/${peerIdOf(machine)}`
const [M1, M2, M3] = [machineOf(1), machineOf(2), machineOf(3)]
const ALICE = 'a1'.repeat(32)

test('a peer ID and a machine ID convert into each other without a lookup', () => {
  assert.equal(machineIdOfText(peerIdOf(M1)), M1)
  assert.equal(machineIdOfText('not a peer'), null)
  // Machines of x0x have no RSA or secp256k1 keys.
  assert.equal(machineIdOfText('QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N'), null)
})

test('an address needs a host, a TCP port and a machine to be dialled', () => {
  for (const text of [at(M1), `/dns4/example.org/tcp/1/p2p/${peerIdOf(M1)}`, `/ip6/::1/tcp/65535/p2p/${peerIdOf(M1)}`]) {
    assert.deepEqual(parseAddress(text), { text, machineId: M1, relay: null })
  }
  const relayed = `${at(M2)}/p2p-circuit/p2p/${peerIdOf(M1)}`
  assert.deepEqual(parseAddress(relayed), { text: relayed, machineId: M1, relay: M2 })
  const peer = `/p2p/${peerIdOf(M1)}`
  for (const text of [
    '',
    peer,
    `/ip4/10.0.0.1/udp/1${peer}`,
    `/ip4/10.0.0.1/tcp/0${peer}`,
    `/ip4/10.0.0.1/tcp/1`,
    `/ip4/10.0.0.1/tcp/1/ws${peer}`,
    `/ip4/10.0.0.1/tcp/1${peer}/p2p-circuit${peer}`,
    `/ip4/10.0.0.1/tcp/1/p2p-circuit${peer}`,
    `/p2p/${peerIdOf(M2)}/p2p-circuit${peer}`,
    `${relayed}/p2p-circuit${peer}`,
    `/unix/tmp/x${peer}`,
    `/dns4/${'a'.repeat(MAX_ADDRESS_TEXT)}/tcp/1${peer}`,
  ]) {
    assert.equal(parseAddress(text), null, text)
  }
})

test('rate limits count an IPv6 host by its /64', () => {
  const host = (ip6: string): string => hostOf(multiaddr(`/ip6/${ip6}/tcp/1`))
  assert.equal(host('2001:db8:1:2::1'), host('2001:db8:1:2:ffff:ffff:ffff:ffff'))
  assert.notEqual(host('2001:db8:1:2::1'), host('2001:db8:1:3::1'))
  assert.equal(hostOf(multiaddr('/ip4/10.0.0.1/tcp/9')), '10.0.0.1')
  const relayed = `${at(M2)}/p2p-circuit/p2p/${peerIdOf(M1)}`
  assert.equal(hostOf(multiaddr(relayed)), `relay ${M2}`)
  assert.equal(hostOfText(relayed), null)
})

test('a host counts the same in any notation, and a DNS name is not counted as a host', () => {
  const short = (groups: readonly number[]): string =>
    new URL(`http://[${groups.map((group) => group.toString(16)).join(':')}]`).hostname.slice(1, -1)
  const long = (groups: readonly number[]): string => groups.map((group) => group.toString(16).padStart(4, '0').toUpperCase()).join(':')
  const group = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff }))
  fc.assert(
    fc.property(fc.array(group, { minLength: 8, maxLength: 8 }), (groups) => {
      // A mapped IPv4 address counts as IPv4, see below.
      if (groups.slice(0, 5).every((one) => one === 0)) return
      const text = (ip6: string): string => `/ip6/${ip6}/tcp/1`
      assert.equal(
        hostOfText(text(short(groups))),
        groups
          .slice(0, 4)
          .map((one) => one.toString(16))
          .join(':'),
      )
      assert.equal(hostOfText(text(long(groups))), hostOfText(text(short(groups))))
      assert.equal(hostOf(multiaddr(text(long(groups)))), hostOfText(text(short(groups))))
    }),
  )
  assert.equal(hostOfText('/ip6/::FFFF:192.0.2.1/tcp/1'), '192.0.2.1')
  assert.equal(hostOfText('/ip6/::ffff:192.0.2.1/tcp/1'), hostOfText('/ip4/192.0.2.1/tcp/1'))
  assert.equal(hostOfText('/dns4/example.org/tcp/1'), null)
})

test('listed hosts come from cards and the bootstrap list, and not from blocked contacts', () => {
  const contacts = [
    contact({ trust: 'unknown', addresses: [at(M1, '192.0.2.1'), `/dns4/example.org/tcp/1/p2p/${peerIdOf(M1)}`] }),
    contact({ agent_id: 'b2'.repeat(32), trust: 'blocked', addresses: [at(M2, '192.0.2.2')] }),
  ]
  const book = new AddressBook(
    { contacts: () => contacts, seen: () => [seen(M3, [at(M3, '192.0.2.3')])] },
    { bootstrap: [at(M3, '192.0.2.4')] },
  )
  assert.deepEqual([...book.listedHosts], ['192.0.2.1', '192.0.2.4'])
})

test('an address that cannot be dialled is never announced, even if it is the only one', () => {
  const [linkLocal, good, loopback] = ['/ip6/fe80::1/tcp/1', '/ip4/10.0.0.1/tcp/1', '/ip4/127.0.0.1/tcp/1']
  assert.deepEqual(announceable([linkLocal, good]), [good])
  assert.deepEqual(announceable([linkLocal, loopback]), [loopback])
  assert.deepEqual(announceable([linkLocal]), [])
  assert.deepEqual(announceable([`${linkLocal}/p2p/${peerIdOf(M2)}/p2p-circuit/p2p/${peerIdOf(M1)}`]), [])
})

test('a loopback address is announced only if the machine has only loopback addresses', () => {
  assert.deepEqual(announceable(['/ip4/127.0.0.1/tcp/1', '/ip4/10.0.0.1/tcp/1']), ['/ip4/10.0.0.1/tcp/1'])
  assert.deepEqual(announceable(['/ip4/127.0.0.1/tcp/1']), ['/ip4/127.0.0.1/tcp/1'])
})

test('private, loopback, multicast and mapped addresses are not public, in any notation', () => {
  for (const ip4 of ['8.8.8.8', '203.0.113.7', '172.32.0.1']) assert.ok(isPublicText(`/ip4/${ip4}/tcp/1`), ip4)
  for (const ip4 of ['10.0.0.1', '127.0.0.1', '172.16.0.1', '192.168.1.1', '224.0.0.1']) assert.ok(!isPublicText(`/ip4/${ip4}/tcp/1`), ip4)
  for (const ip6 of ['2001:db8::1', '2600::1']) assert.ok(isPublicText(`/ip6/${ip6}/tcp/1`), ip6)
  for (const ip6 of ['::1', 'fd00::1', 'fe80::1', 'ff02::1', '::ffff:10.0.0.1', '::ffff:8.8.8.8', '::ffff:808:808'])
    assert.ok(!isPublicText(`/ip6/${ip6}/tcp/1`), ip6)
  assert.ok(isPublicText('/dns4/example.org/tcp/1'))
})

const seen = (machine_id: string, addresses: string[], issued_at_ms = 1): SeenAgent => ({
  agent_id: ALICE,
  machine_id,
  name: 'alice',
  addresses,
  issued_at_ms,
  expires_at_ms: 9,
})

const contact = (over: Partial<BookContact> = {}): BookContact => ({
  agent_id: ALICE,
  trust: 'trusted',
  machines: [],
  addresses: [],
  ...over,
})

test('an agent is looked for at its latest announced machine first, then at the addresses of its card', () => {
  const book = new AddressBook(
    { contacts: () => [contact({ addresses: [at(M3)] })], seen: () => [seen(M1, [at(M1)], 1), seen(M2, [at(M2)], 2)] },
    { bootstrap: [at(M1, '10.9.9.9'), 'nonsense'] },
  )
  assert.deepEqual(
    book.candidates(ALICE).map((one) => one.machineId),
    [M2, M1, M3],
  )
  assert.deepEqual(book.addressesOf(M1), [at(M1), at(M1, '10.9.9.9')])
  assert.deepEqual(book.candidates('ff'.repeat(32)), [])
})

test('a contact with pins is looked for on pinned machines only', () => {
  const book = new AddressBook(
    { contacts: () => [contact({ machines: [M2], addresses: [at(M1), at(M2)] })], seen: () => [seen(M3, [at(M3)])] },
    { bootstrap: [] },
  )
  assert.deepEqual(book.candidates(ALICE), [{ machineId: M2, addresses: [at(M2)] }])
})

test('persistent connections go to bootstrap peers and to contacts of level known or trusted', () => {
  for (const [trust, wanted] of [
    ['trusted', [M3, M1]],
    ['known', [M3, M1]],
    ['unknown', [M3]],
    ['blocked', [M3]],
  ] as const) {
    const book = new AddressBook({ contacts: () => [contact({ trust, addresses: [at(M1)] })], seen: () => [] }, { bootstrap: [at(M3)] })
    assert.deepEqual(book.wanted(), wanted)
    assert.deepEqual(book.bootstrapMachines, [M3])
  }
})

test('addresses from the local network are limited per machine and in total', () => {
  const book = new AddressBook({ contacts: () => [], seen: () => [] }, { bootstrap: [] })
  const many = Array.from({ length: MAX_DIAL_ADDRESSES + 4 }, (_, i) => at(M1, '10.0.0.1', i + 1))
  book.learnLocal(M1, many)
  assert.equal(book.addressesOf(M1).length, MAX_DIAL_ADDRESSES)
  for (let i = 0; i < MAX_MDNS_PEERS; i++) book.learnLocal(`machine${i}`, [at(M2)])
  assert.deepEqual(book.addressesOf(M1), [])
})

test('addresses of a known machine from the local network come after all others', () => {
  const told = seen(M1, [at(M1, '10.0.0.1')])
  const presences = { claimsOf: () => [], of: () => ({ addresses: [at(M1, '10.0.0.2')] }) as unknown as PresenceRecord }
  const book = new AddressBook(
    { contacts: () => [contact({ addresses: [at(M1, '10.0.0.3')] })], seen: () => [told], presences },
    { bootstrap: [at(M1, '10.0.0.4')] },
  )
  book.learnLocal(
    M1,
    Array.from({ length: MAX_DIAL_ADDRESSES }, (_, i) => at(M1, '10.9.9.9', i + 1)),
  )
  const others = ['10.0.0.2', '10.0.0.1', '10.0.0.3', '10.0.0.4'].map((host) => at(M1, host))
  assert.deepEqual([book.addressesOf(M1).slice(0, 4), book.candidates(ALICE)[0]!.addresses.slice(0, 4)], [others, others])
})

test('this machine is never dialled, even if a list, a card, a pin, a claim or the DHT names it', () => {
  const contacts = [contact({ machines: [M1, M2], addresses: [at(M1), at(M2)] })]
  const presences = { claimsOf: () => [M1, M3], of: () => null }
  const seenOn = [seen(M1, [at(M1)]), { ...seen(M1, [at(M1)]), agent_id: 'b2'.repeat(32) }]
  const book = new AddressBook({ contacts: () => contacts, seen: () => seenOn, presences }, { bootstrap: [at(M1), at(M3)], self: M1 })
  assert.deepEqual([book.bootstrapMachines, book.wanted()], [[M3], [M3, M2]])
  assert.deepEqual(
    [ALICE, 'b2'.repeat(32)].map((agent) => book.candidates(agent).map(({ machineId }) => machineId)),
    [[M2], [M3]],
  )
  for (const agent of [ALICE, 'b2'.repeat(32)]) assert.deepEqual([book.leavesRoomFor(agent, M1), book.mayBe(agent, M1)], [false, false])
})
