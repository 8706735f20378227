import assert from 'node:assert/strict'
import { test } from 'node:test'

import { peerIdFromString } from '@libp2p/peer-id'
import { multiaddr } from '@multiformats/multiaddr'

import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/peer-id.ts'
import {
  Gate,
  type GateView,
  type Incoming,
  MAX_STRANGERS_PER_HOST,
  MAX_CONNECTIONS_PER_STRANGER,
  MAX_CONNECTIONS_PER_MACHINE,
} from '../../src/mesh/gater.ts'
import type { MachineId } from '../../src/protocol/ids.ts'
import { MAX_STRANGER_CONNECTIONS } from '../../src/protocol/limits.ts'
import { MAX_UNPROVEN_CONNECTIONS } from '../../src/protocol/meter-limits.ts'
import { MAX_REMEMBERED_MACHINES, MAX_HOSTS_PER_MACHINE } from '../../src/mesh/known-hosts.ts'
import { MAX_STRANGERS_PER_RELAY } from '../../src/protocol/relay-limits.ts'

const machineOf = (n: number): MachineId => machineKeyOf(Buffer.alloc(32, `machine${n}`)).machineId

/** A gate with everybody who ever came, and what the mesh would tell it. */
const setUp = (init: { strangers?: boolean } = {}) => {
  const known = new Set<MachineId>()
  const refused = new Set<string>()
  const unfinished: string[] = []
  const asked: [string, boolean][] = []
  const view: GateView = {
    isKnown: (machineId) => known.has(machineId),
    isRefused: (_machineId, host) => refused.has(host),
    mayBegin: (host, fromKnown) => asked.push([host, fromKnown]) > 0,
    onUnfinished: (host) => void unfinished.push(host),
    strangersDialled: () => 0,
    mayDial: (machineId) => known.has(machineId),
    mayReserve: (machineId) => known.has(machineId),
    mayCarry: (from, to) => known.has(from) && known.has(to),
  }
  const gate = new Gate({ view }, { strangers: init.strangers ?? true })
  /** One connection, from a host or a whole address: false when it was refused, or what to close. */
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
    } as unknown as Incoming
    if (gate.denyInboundConnection(incoming)) return null
    if (machine === null) return guest
    if (gate.denyInboundEncryptedConnection(peerIdFromString(peerIdOf(machine)), incoming)) return (guest.close(), null)
    gate.opened(incoming.timeline, { idle, abort: () => guest.close() })
    return guest
  }
  return { gate, known, refused, unfinished, asked, come }
}

test('the gate lets machines we know in when strangers have used up their places, nobody who is refused, and only Ed25519 machines at all', () => {
  const { gate, known, refused, come } = setUp()
  known.add(machineOf(0))
  for (let i = 1; i <= MAX_STRANGER_CONNECTIONS; i++) assert.notEqual(come(`10.0.${i >> 8}.${i & 255}`, machineOf(i)), null)
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

test('strangers of one host have few places, those of an IPv6 network together, and one machine fewer, of which the oldest goes', () => {
  const { gate, come } = setUp()
  for (let i = 0; i < MAX_STRANGERS_PER_HOST; i++) assert.notEqual(come(`2001:db8:0:1::${i + 1}`, machineOf(i)), null)
  assert.equal(come('2001:db8:0:1:ffff::1', machineOf(1_000)), null)
  assert.equal(gate.refusals.host_full, 1)
  const own = Array.from({ length: MAX_CONNECTIONS_PER_STRANGER + 2 }, () => come('2001:db8:0:2::1', machineOf(2_000)))
  assert.deepEqual(
    own.map((guest) => guest?.open),
    [false, false, ...Array<boolean>(MAX_CONNECTIONS_PER_STRANGER).fill(true)],
  )
})

test('a machine that is named holds no more connections than one can use', () => {
  const { known, come } = setUp()
  known.add(machineOf(0))
  const own = Array.from({ length: MAX_CONNECTIONS_PER_MACHINE + 5 }, () => come('192.0.2.1', machineOf(0)))
  assert.equal(own.filter((guest) => guest?.open).length, MAX_CONNECTIONS_PER_MACHINE)
})

test('when the places of strangers are used up, the host that has most of them loses one to a newcomer, and gets none', () => {
  const { gate, come } = setUp()
  const perHost = MAX_STRANGER_CONNECTIONS / MAX_STRANGERS_PER_HOST
  const there = Array.from({ length: MAX_STRANGER_CONNECTIONS }, (_, i) =>
    // The third of the second host has done nothing for long; all others have.
    come(`10.0.0.${(i % perHost) + 1}`, machineOf(i), i === 2 * perHost + 1),
  )
  assert.ok(there.every((guest) => guest !== null))
  const gone = (): number[] => there.flatMap((guest, i) => (guest?.open === true ? [] : [i]))
  assert.notEqual(come('192.0.2.1', machineOf(9_000)), null)
  assert.deepEqual(gone(), [2 * perHost + 1])
  // None is idle: the oldest of a host that has more than the newcomer's.
  assert.notEqual(come('192.0.2.2', machineOf(9_001)), null)
  assert.deepEqual(gone(), [0, 2 * perHost + 1])
  assert.equal(come('10.0.0.3', machineOf(9_002)), null)
  assert.equal(gate.refusals.host_full, 1)
})

test('among hosts that have as many only who is idle makes room', () => {
  const { gate, come } = setUp()
  const there = Array.from({ length: MAX_STRANGER_CONNECTIONS }, (_, i) => come(`10.0.${i >> 8}.${i & 255}`, machineOf(i), i === 300))
  assert.notEqual(come('192.0.2.1', machineOf(9_000)), null)
  assert.deepEqual([there[300]?.open, there.filter((guest) => guest?.open === true).length], [false, MAX_STRANGER_CONNECTIONS - 1])
  assert.equal(come('192.0.2.2', machineOf(9_001)), null)
  assert.equal(gate.refusals.full, 1)
})

test('connections that say nothing cost the host that has most of them its oldest, and are held against it; ours to give up are not', () => {
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

test('a host where somebody was that we know counts as one until nobody of them is known, and one that a card names while it does', () => {
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

test('a machine that moves from host to host leaves few of them a share, and takes none from the hosts of others', () => {
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

test('of those who have not said who they are, who comes from where we know somebody goes last', () => {
  const { gate, come } = setUp()
  gate.reviewHosts(new Set(['192.0.2.1']))
  const maybeKnown = Array.from({ length: 10 }, () => come('192.0.2.1', null))
  for (let i = 0; i < 2 * MAX_UNPROVEN_CONNECTIONS; i++) come(`10.0.${i >> 8}.${i & 255}`, null)
  assert.ok(maybeKnown.every((guest) => guest?.open))
})

test('hosts are counted of strangers and of who has not said who it is, as they come, go and become known', () => {
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

test('where only members may come, a stranger is refused as soon as Noise has proven it', () => {
  const { gate, known, come } = setUp({ strangers: false })
  known.add(machineOf(0))
  assert.equal(come('192.0.2.1', machineOf(1)), null)
  assert.notEqual(come('192.0.2.1', machineOf(0)), null)
  assert.equal(gate.refusals.stranger, 1)
  assert.equal(gate.outsideHosts(), 0)
})

test('strangers that one relay brings are few and one host of their own, wherever the relay is; a machine that we know is itself', () => {
  const { known, refused, unfinished, come } = setUp()
  const relay = machineOf(900)
  const throughRelay = (ip: string, machine: MachineId): string =>
    `/ip4/${ip}/tcp/5483/p2p/${peerIdOf(relay)}/p2p-circuit/p2p/${peerIdOf(machine)}`
  for (let i = 1; i <= MAX_STRANGERS_PER_RELAY; i++) assert.notEqual(come(throughRelay(`192.0.2.${i}`, machineOf(i)), machineOf(i)), null)
  assert.equal(come(throughRelay('192.0.2.99', machineOf(99)), machineOf(99)), null)
  known.add(machineOf(100))
  assert.notEqual(come(throughRelay('192.0.2.1', machineOf(100)), machineOf(100)), null)
  // Their host is neither the relay nor its address: what they are blamed for is not the relay's.
  come(throughRelay('192.0.2.1', machineOf(101)), null)!.close()
  assert.deepEqual(unfinished.at(-1), `relay ${relay}`)
  refused.add(`relay ${relay}`)
  assert.notEqual(come('192.0.2.1', machineOf(102)), null)
  assert.notEqual(come('192.0.2.1', relay), null)
})
