import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { Stream } from '@libp2p/interface'

import { silentLogger } from '../../../src/base/log.ts'
import { Carrier } from '../../../src/mesh/carrier.ts'
import type { MachineId } from '../../../src/protocol/ids.ts'
import { MAX_CARRIED, MAX_CARRIED_HELD, MAX_CARRIED_OF_MACHINE, MAX_CARRIED_OF_PAIR } from '../../../src/protocol/limits/mesh.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/processes.ts'

const machine = (number: number): MachineId => number.toString(16).padStart(64, '0')

/** The part of a muxer stream that a carrier uses. */
class FakeStream extends EventTarget {
  readonly recvWindow = 0
  readonly recvWindowCapacity = 0
  readonly state = 3
  writeBufferLength = 0
  status = 'open'
  updates = 0

  sendWindowUpdate(): void {
    this.updates += 1
  }

  send(): boolean {
    return true
  }

  abort(error: Error): void {
    if (this.status !== 'open') return
    this.status = 'aborted'
    this.dispatchEvent(Object.assign(new Event('close'), { error }))
  }

  bring(bytes: number): void {
    this.dispatchEvent(Object.assign(new Event('message'), { data: new Uint8Array(bytes) }))
  }
}

const setUp = (init: ConstructorParameters<typeof Carrier>[1] = {}) => {
  const clock = new ManualClock()
  const agents = new Map<string, string>()
  const contacts = new Set(Array.from({ length: 2 * MAX_CARRIED }, (_, number) => machine(number)))
  const carrier = new Carrier(
    { clock, log: silentLogger, isAccepted: (one) => contacts.has(one), agentOf: (one) => agents.get(one) ?? null },
    init,
  )
  const carry = (from: number, to: number): [FakeStream, FakeStream] | null => {
    if (!carrier.mayCarry(machine(from), machine(to))) return null
    const [here, there] = [new FakeStream(), new FakeStream()]
    carrier.carry({ from: machine(from), to: machine(to), here: here as unknown as Stream, there: there as unknown as Stream })
    return [here, there]
  }
  return { clock, contacts, agents, carrier, carry, carried: () => carrier.diagnostics().carried.length }
}

test('a relay carries only between contacts, and ends a connection when one end stops being a contact', () => {
  const { contacts, carrier, carry, carried } = setUp()
  const [here, there] = carry(1, 2)!
  carry(3, 4)
  contacts.delete(machine(2))
  assert.deepEqual([carry(1, 2), carry(2, 1), carrier.mayUse(machine(2))], [null, null, false])
  assert.equal(carrier.diagnostics().refused.stranger, 3)
  carrier.review()
  assert.deepEqual([here.status, there.status, carried()], ['aborted', 'aborted', 1])
})

test('connections of one pair are limited for both directions together, and failed attempts end no other', () => {
  const { carrier, carry, carried } = setUp()
  for (let i = 0; i < MAX_CARRIED_OF_PAIR; i++) assert.ok(i % 2 === 0 ? carry(1, 2) : carry(2, 1))
  const all = Array.from({ length: 2 * MAX_CARRIED_OF_PAIR }, () => carrier.mayCarry(machine(2), machine(1)))
  assert.deepEqual([all.every((may) => may), carried()], [true, MAX_CARRIED_OF_PAIR])
  for (const _ of all) {
    const [here, there] = [new FakeStream(), new FakeStream()]
    carrier.carry({ from: machine(2), to: machine(1), here: here as unknown as Stream, there: there as unknown as Stream })
    assert.deepEqual([here.status, carried()], ['open', MAX_CARRIED_OF_PAIR])
  }
})

test('the oldest connection of a pair makes room, and machines, agents and the relay have limits', () => {
  const { agents, carrier, carry, carried } = setUp()
  const pair = Array.from({ length: MAX_CARRIED_OF_PAIR + 1 }, () => carry(1, 2)!)
  assert.deepEqual(
    pair.map(([here]) => here.status),
    ['aborted', ...Array.from({ length: MAX_CARRIED_OF_PAIR }, () => 'open')],
  )
  for (let other = 3; carried() < MAX_CARRIED_OF_MACHINE; other++) assert.ok(carry(1, other))
  assert.deepEqual([carry(1, 900), carry(900, 1)], [null, null])
  assert.equal(carrier.diagnostics().refused.machine_full, 2)
  // Two machines of one agent share a limit.
  for (const number of [1, 1_020]) agents.set(machine(number), 'hugo')
  assert.equal(carry(1_020, 1_021), null)
  assert.equal(carrier.diagnostics().refused.machine_full, 3)
  for (let other = 200; carried() < MAX_CARRIED; other += 2) assert.ok(carry(other, other + 1))
  assert.equal(carry(901, 902), null)
  assert.equal(carrier.diagnostics().refused.full, 1)
  pair[1]![0].abort(new Error('gone'))
  assert.equal(pair[1]![1].status, 'aborted')
  assert.ok(carry(901, 902))
})

test('a connection that was allowed before others took the last places is ended at once', () => {
  const { carrier, carry, carried } = setUp()
  for (let other = 2; carried() < MAX_CARRIED_OF_MACHINE; other++) carry(1, other)
  const [here, there] = [new FakeStream(), new FakeStream()]
  carrier.carry({ from: machine(1), to: machine(950), here: here as unknown as Stream, there: there as unknown as Stream })
  assert.deepEqual([here.status, there.status, carried()], ['aborted', 'aborted', MAX_CARRIED_OF_MACHINE])
})

test('a sender above the rate gets no window updates until the rate allows it, and stays connected', async () => {
  const { clock, carrier, carry } = setUp({ burst: 100_000, perSecond: 100_000 })
  const [here, there] = carry(1, 2)!
  here.bring(100_000)
  here.bring(50_000)
  assert.deepEqual([here.updates, here.status], [0, 'open'])
  await clock.advance(1_000)
  await until(() => here.updates > 0 && there.updates > 0)
  const { carried, carried_bytes_total } = carrier.diagnostics()
  assert.deepEqual([carried[0]?.bytes, carried_bytes_total, here.status], [150_000, 150_000, 'open'])
  carrier.stop()
})

test('an agent with many connections leaves others their share of the relay rate', async () => {
  const [MIB, KIB] = [1024 * 1024, 1024]
  const { agents, clock, carrier, carry } = setUp({ burst: 128 * KIB, perSecond: 128 * KIB })
  for (const number of [1, 2]) agents.set(machine(number), 'hugo')
  const greedy = Array.from({ length: MAX_CARRIED_OF_MACHINE }, (_, other) => carry((other % 2) + 1, 100 + other)!)
  const honest = carry(3, 4)!
  for (const [here] of greedy) here.bring(MIB)
  // Both directions count for the agent that dialled through the relay.
  for (let second = 0; second < 3; second++) {
    const before = honest[0].updates
    honest[1].bring(64 * KIB)
    await clock.advance(1_000)
    await until(() => honest[0].updates > before)
  }
  assert.equal(
    greedy.every(([here, there]) => here.updates + there.updates === 0),
    true,
  )
  carrier.stop()
})

test('if a relay buffers too much in total, only the connections with the largest buffers end', () => {
  const { carry, carrier, carried } = setUp({ burst: 2 * MAX_CARRIED_HELD, perSecond: 1 })
  const MIB = 1024 * 1024
  const window = 8 * MIB
  const honest = carry(1, 2)!
  const silent = Array.from({ length: MAX_CARRIED_HELD / window + 2 }, (_, other) => carry(3, 100 + other)!)
  for (const [here, there] of silent) {
    there.writeBufferLength = window - MIB
    here.bring(MIB)
  }
  const open = silent.filter(([here]) => here.status === 'open')
  assert.ok(open.length * window <= MAX_CARRIED_HELD, String(open.length))
  assert.ok(open.length >= MAX_CARRIED_HELD / window - 1, String(open.length))
  assert.deepEqual([honest[0].status, carried()], ['open', open.length + 1])
  carrier.stop()
})
