import assert from 'node:assert/strict'
import { test } from 'node:test'

import { peerIdFromString } from '@libp2p/peer-id'
import { multiaddr } from '@multiformats/multiaddr'

import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import {
  ConnectionGate,
  type GateComponents,
  type GateView,
  type InboundConnection,
  MAX_UNLISTED_PER_HOST,
  MAX_CONNECTIONS_PER_UNLISTED,
  MAX_CONNECTIONS_PER_MACHINE,
} from '../../src/mesh/gater.ts'
import type { MachineId } from '../../src/protocol/ids.ts'
import { MAX_UNLISTED_CONNECTIONS } from '../../src/protocol/limits/wire.ts'
import { MAX_UNPROVEN_CONNECTIONS } from '../../src/protocol/limits/mesh.ts'
import { MAX_REMEMBERED_MACHINES, MAX_HOSTS_PER_MACHINE } from '../../src/mesh/gater.ts'
import { MAX_UNLISTED_PER_RELAY } from '../../src/protocol/limits/mesh.ts'

const machineOf = (n: number): MachineId => machineKeyOf(Buffer.alloc(32, `machine${n}`)).machineId

/** A gate with a fake mesh, whose answers the tests set. */
const setUp = (init: { strangers?: boolean; connections?: number } = {}) => {
  const known = new Set<MachineId>()
  const listed = new Set<MachineId>()
  const agents = new Map<MachineId, string>()
  const refused = new Set<string>()
  const unfinished: string[] = []
  const asked: [string, boolean][] = []
  const view: GateView = {
    isKnown: (machineId) => known.has(machineId),
    isRefused: (_machineId, host) => refused.has(host),
    mayBegin: (host, fromKnown) => asked.push([host, fromKnown]) > 0,
    onUnfinished: (host) => void unfinished.push(host),
    dialled: () => [],
    isPinned: (machineId) => listed.has(machineId),
    mayDial: (machineId) => known.has(machineId),
  }
  const reach: GateComponents['reach'] = {
    mayReserve: (machineId) => known.has(machineId),
    mayCarry: (from, to) => known.has(from) && known.has(to),
  }
  const shares: GateComponents['shares'] = { agentOf: (machineId) => agents.get(machineId) ?? null }
  const gate = new ConnectionGate({ view, reach, shares }, { acceptsUnlisted: init.strangers ?? true, connections: init.connections })
  /** Opens an inbound connection from a host or a full address. Returns null if it is refused. */
  const come = (host: string, machine: MachineId | null, idle = false) => {
    const onClose: (() => void)[] = []
    const guest = {
      host,
      open: true,
      close: () => {
        if (guest.open) for (const tell of onClose) tell()
        guest.open = false
      },
    }
    const incoming = {
      remoteAddr: multiaddr(host.startsWith('/') ? host : `/${host.includes(':') ? 'ip6' : 'ip4'}/${host}/tcp/4711`),
      timeline: { open: 0 },
      addEventListener: (_name: string, listener: () => void) => onClose.push(listener),
      abort: () => guest.close(),
    } as unknown as InboundConnection
    if (gate.denyInboundConnection(incoming)) return null
    if (machine === null) return guest
    if (gate.denyInboundEncryptedConnection(peerIdFromString(peerIdOf(machine)), incoming)) return (guest.close(), null)
    gate.opened(incoming.timeline, { idle, abort: () => guest.close() })
    return guest
  }
  return { gate, known, listed, agents, refused, unfinished, asked, come }
}

test('the gate refuses penalised hosts and keys other than Ed25519, and keeps places for known machines', () => {
  const { gate, known, refused, come } = setUp()
  known.add(machineOf(0))
  for (let i = 1; i <= MAX_UNLISTED_CONNECTIONS; i++) assert.notEqual(come(`10.0.${i >> 8}.${i & 255}`, machineOf(i)), null)
  assert.notEqual(come('192.0.2.9', machineOf(0)), null)
  refused.add('192.0.2.9')
  assert.equal(come('192.0.2.9', machineOf(0)), null)
  const rsa = peerIdFromString('QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N')
  const incoming = {
    remoteAddr: multiaddr('/ip4/192.0.2.8/tcp/1'),
    timeline: {},
    addEventListener: () => undefined,
    abort: () => undefined,
  }
  assert.equal(gate.denyInboundConnection(incoming as never), false)
  assert.equal(gate.denyInboundEncryptedConnection(rsa, incoming as never), true)
  assert.deepEqual([gate.refusals.penalty, gate.refusals.no_machine], [1, 1])
})

test('unlisted peers of a host or IPv6 /64 share few places, and a machine above its limit loses its oldest', () => {
  const { gate, come } = setUp()
  for (let i = 0; i < MAX_UNLISTED_PER_HOST; i++) assert.notEqual(come(`2001:db8:0:1::${i + 1}`, machineOf(i)), null)
  assert.equal(come('2001:db8:0:1:ffff::1', machineOf(1_000)), null)
  assert.equal(gate.refusals.host_full, 1)
  const own = Array.from({ length: MAX_CONNECTIONS_PER_UNLISTED + 2 }, () => come('2001:db8:0:2::1', machineOf(2_000)))
  assert.deepEqual(
    own.map((guest) => guest?.open),
    [false, false, ...Array<boolean>(MAX_CONNECTIONS_PER_UNLISTED).fill(true)],
  )
})

test('a named machine holds few connections until it has proven an accepted agent, and then more', () => {
  const { known, agents, come } = setUp()
  known.add(machineOf(0))
  const own = Array.from({ length: MAX_CONNECTIONS_PER_UNLISTED + 5 }, () => come('192.0.2.1', machineOf(0)))
  assert.equal(own.filter((guest) => guest?.open).length, MAX_CONNECTIONS_PER_UNLISTED)
  agents.set(machineOf(0), 'hugo')
  for (let i = 0; i < MAX_CONNECTIONS_PER_MACHINE + 5; i++) own.push(come('192.0.2.1', machineOf(0)))
  assert.equal(own.filter((guest) => guest?.open).length, MAX_CONNECTIONS_PER_MACHINE)
})

test('when all places are taken, the agent or host with most loses one to a pinned machine or smaller agent', () => {
  const { gate, known, listed, agents, come } = setUp({ connections: 12 })
  const enter = (number: number, agent: string | null, host = `10.0.0.${number}`, idle = false) => {
    known.add(machineOf(number))
    if (agent !== null) agents.set(machineOf(number), agent)
    return come(host, machineOf(number), idle)
  }
  const hugo = Array.from({ length: 5 }, (_, i) => enter(i, 'hugo'))
  const carol = Array.from({ length: 3 }, (_, i) => enter(10 + i, 'carol'))
  const host = Array.from({ length: 4 }, (_, i) => enter(20 + i, null, '192.0.2.1'))
  const open = (guests: readonly ({ open: boolean } | null)[]): number => guests.filter((guest) => guest?.open).length
  assert.deepEqual([hugo, carol, host].map(open), [5, 3, 4])
  // An agent with as many connections gets no place. One with fewer takes the place of the oldest.
  assert.equal(enter(6, 'hugo'), null)
  assert.equal(enter(13, 'carol')?.open, true)
  assert.deepEqual([hugo[0]?.open, ...[hugo, carol, host].map(open)], [false, 4, 3, 4])
  listed.add(machineOf(30))
  listed.add(machineOf(31))
  assert.equal(enter(30, 'alice')?.open, true)
  assert.equal(enter(31, 'alice')?.open, true)
  assert.deepEqual([hugo, carol, host].map(open), [3, 2, 4])
  assert.equal(gate.refusals.all_full, 4)
  // The same holds for a pinned machine at the host with the most connections. A machine there that is not pinned makes room.
  listed.add(machineOf(32))
  assert.equal(enter(32, null, '192.0.2.1')?.open, true)
  assert.deepEqual([hugo, carol, host].map(open), [3, 2, 3])
  // A pinned machine keeps its place for any number of newcomers. Pinned machines share the other places among each other.
  for (let i = 40; i < 60; i++) enter(i, `sybil ${i}`)
  for (let i = 60; i < 80; i++) {
    listed.add(machineOf(i))
    assert.equal(enter(i, 'alice')?.open, true)
  }
  assert.equal(open([...hugo, ...carol, ...host]), 0)
})

test('when unlisted peers use all their places, the host with the most loses one to a newcomer', () => {
  const { gate, come } = setUp()
  const perHost = MAX_UNLISTED_CONNECTIONS / MAX_UNLISTED_PER_HOST
  const there = Array.from({ length: MAX_UNLISTED_CONNECTIONS }, (_, i) =>
    // The third connection of the second host is idle, and all others are not.
    come(`10.0.0.${(i % perHost) + 1}`, machineOf(i), i === 2 * perHost + 1),
  )
  assert.ok(there.every((guest) => guest !== null))
  const gone = (): number[] => there.flatMap((guest, i) => (guest?.open === true ? [] : [i]))
  assert.notEqual(come('192.0.2.1', machineOf(9_000)), null)
  assert.deepEqual(gone(), [2 * perHost + 1])
  // No connection is idle, so the oldest of a host with more connections than the newcomer goes.
  assert.notEqual(come('192.0.2.2', machineOf(9_001)), null)
  assert.deepEqual(gone(), [0, 2 * perHost + 1])
  assert.equal(come('10.0.0.3', machineOf(9_002)), null)
  assert.equal(gate.refusals.host_full, 1)
})

test('among hosts with equally many connections, only an idle connection makes room', () => {
  const { gate, come } = setUp()
  const there = Array.from({ length: MAX_UNLISTED_CONNECTIONS }, (_, i) => come(`10.0.${i >> 8}.${i & 255}`, machineOf(i), i === 300))
  assert.notEqual(come('192.0.2.1', machineOf(9_000)), null)
  assert.deepEqual([there[300]?.open, there.filter((guest) => guest?.open === true).length], [false, MAX_UNLISTED_CONNECTIONS - 1])
  assert.equal(come('192.0.2.2', machineOf(9_001)), null)
  assert.equal(gate.refusals.full, 1)
})

test('surplus unproven connections end at the busiest host without blame, and those that a peer ends count against its host', () => {
  const { known, unfinished, asked, come } = setUp()
  const few = come('192.0.2.1', null)
  const silent = Array.from({ length: MAX_UNPROVEN_CONNECTIONS + 10 }, () => come('10.0.0.1', null))
  assert.equal(few?.open, true)
  assert.equal(silent.filter((guest) => guest?.open).length, MAX_UNPROVEN_CONNECTIONS - 1)
  assert.deepEqual(unfinished, [])
  few?.close()
  assert.deepEqual(unfinished, ['192.0.2.1'])
  known.add(machineOf(0))
  const named = come('192.0.2.7', machineOf(0))
  named?.close()
  come('192.0.2.7', null)
  assert.deepEqual(asked.at(-1), ['192.0.2.7', true])
  assert.deepEqual(unfinished, ['192.0.2.1'])
})

test('a host counts as known while a card names it or a machine that came from it is known', () => {
  const { gate, known, asked, come } = setUp()
  const isKnown = (host: string): boolean | undefined => (come(host, null)?.close(), asked.at(-1)?.[1])
  const [one, two] = [machineOf(1), machineOf(2)]
  for (const machine of [one, two]) known.add(machine)
  come('192.0.2.1', one)?.close()
  come('192.0.2.1', two)?.close()
  come('192.0.2.2', one)?.close()
  gate.reviewHosts(new Set(['192.0.2.3']))
  assert.deepEqual(['192.0.2.1', '192.0.2.2', '192.0.2.3', '192.0.2.4'].map(isKnown), [true, true, true, false])
  known.delete(one)
  gate.reviewHosts(new Set())
  assert.deepEqual(['192.0.2.1', '192.0.2.2', '192.0.2.3'].map(isKnown), [true, false, false])
})

test('a machine that changes hosts makes only its last hosts known, and evicts no hosts of others', () => {
  const { known, asked, come } = setUp()
  const isKnown = (host: string): boolean | undefined => (come(host, null)?.close(), asked.at(-1)?.[1])
  const [rover, homely] = [machineOf(1), machineOf(2)]
  for (const machine of [rover, homely]) known.add(machine)
  come('192.0.2.1', homely)?.close()
  const hosts = Array.from({ length: MAX_REMEMBERED_MACHINES + 10 }, (_, i) => `10.0.${i >> 8}.${i & 255}`)
  for (const host of hosts) come(host, rover)?.close()
  assert.equal(isKnown('192.0.2.1'), true)
  assert.deepEqual(hosts.filter(isKnown), hosts.slice(-MAX_HOSTS_PER_MACHINE))
})

test('among unproven connections, those from hosts of known machines are ended last', () => {
  const { gate, come } = setUp()
  gate.reviewHosts(new Set(['192.0.2.1']))
  const maybeKnown = Array.from({ length: 10 }, () => come('192.0.2.1', null))
  for (let i = 0; i < 2 * MAX_UNPROVEN_CONNECTIONS; i++) come(`10.0.${i >> 8}.${i & 255}`, null)
  assert.ok(maybeKnown.every((guest) => guest?.open))
})

test('the gate counts hosts with unlisted or unproven connections as these come, go and become known', () => {
  const { gate, known, come } = setUp()
  const silent = come('192.0.2.1', null)
  const stranger = come('192.0.2.2', machineOf(1))
  come('192.0.2.2', machineOf(2))
  known.add(machineOf(3))
  come('192.0.2.3', machineOf(3))
  assert.equal(gate.outsideHosts(), 2)
  silent?.close()
  stranger?.close()
  assert.equal(gate.outsideHosts(), 1)
  known.add(machineOf(2))
  gate.reviewHosts(new Set())
  assert.equal(gate.outsideHosts(), 0)
})

test('if only members are admitted, an unlisted peer is refused as soon as Noise has proven its key', () => {
  const { gate, known, come } = setUp({ strangers: false })
  known.add(machineOf(0))
  assert.equal(come('192.0.2.1', machineOf(1)), null)
  assert.notEqual(come('192.0.2.1', machineOf(0)), null)
  assert.equal(gate.refusals.stranger, 1)
  assert.equal(gate.outsideHosts(), 0)
})

test('unlisted peers behind one relay share few places as one host, and a known machine is not counted there', () => {
  const { known, refused, unfinished, come } = setUp()
  const relay = machineOf(900)
  const throughRelay = (ip: string, machine: MachineId): string =>
    `/ip4/${ip}/tcp/5483/p2p/${peerIdOf(relay)}/p2p-circuit/p2p/${peerIdOf(machine)}`
  for (let i = 1; i <= MAX_UNLISTED_PER_RELAY; i++) assert.notEqual(come(throughRelay(`192.0.2.${i}`, machineOf(i)), machineOf(i)), null)
  assert.equal(come(throughRelay('192.0.2.99', machineOf(99)), machineOf(99)), null)
  known.add(machineOf(100))
  assert.notEqual(come(throughRelay('192.0.2.1', machineOf(100)), machineOf(100)), null)
  // Their host is the relayed path and not the address of the relay. Their violations do not count for the relay.
  come(throughRelay('192.0.2.1', machineOf(101)), null)!.close()
  assert.deepEqual(unfinished.at(-1), `relay ${relay}`)
  refused.add(`relay ${relay}`)
  assert.notEqual(come('192.0.2.1', machineOf(102)), null)
  assert.notEqual(come('192.0.2.1', relay), null)
})
