import assert from 'node:assert/strict'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { test } from 'node:test'

import { silentLogger } from '../../src/base/log.ts'
import { Beacon, OWN_PRESENCES_BURST, OWN_PRESENCES_PER_MINUTE } from '../../src/mesh/beacon.ts'
import type { TopicValidator, MessageVerdict } from '../../src/mesh/libp2p/gossip.ts'
import { Presences } from '../../src/mesh/presences.ts'
import { PRESENCES_PER_MINUTE } from '../../src/protocol/limits/wire.ts'
import { newParty } from '../support/fake-network.ts'
import { ManualClock } from '../support/manual-clock.ts'

interface Member {
  readonly machineId: string
  readonly presences: Presences
  readonly beacon: Beacon
}

/** Daemons that all hear each other through the first one, which passes on what it accepts, as gossip does. */
class Hub {
  readonly members: Member[] = []
  readonly #clock: ManualClock
  readonly #ears = new Map<string, { validate: TopicValidator; onNeighbour: () => void }>()
  /** Presences that are being made. */
  #beingSaid = 0

  constructor(clock: ManualClock) {
    this.#clock = clock
  }

  join(): Member {
    const { signer, machine } = newParty()
    const { machineId } = machine
    const clock = this.#clock
    const issuedAt = clock.now()
    const presences = new Presences({ clock, isContact: () => false, isKnown: () => false }, { self: machineId })
    const ownCard = {
      current: async () => {
        this.#beingSaid += 1
        return { issuedAt, encoded: new Uint8Array() }
      },
    }
    const node = {
      addresses: () => ['/ip4/10.0.0.1/tcp/1'],
      joinTopic: (_topic: string, validate: TopicValidator, onNeighbour: () => void) =>
        void this.#ears.set(machineId, { validate, onNeighbour }),
      publish: async (_topic: string, data: Uint8Array) => {
        this.#beingSaid -= 1
        this.#spread(machineId, data)
      },
      reach: { onAddresses: (): void => undefined },
    }
    const onHeard = (): void => undefined
    const beacon = new Beacon({ node: node as never, presences, ownCard, onHeard, clock, log: silentLogger }, { agentId: signer.agentId })
    beacon.start()
    const member = { machineId, presences, beacon }
    const [hub] = this.members
    if (hub !== undefined) for (const one of [hub, member]) this.#ears.get(one.machineId)!.onNeighbour()
    this.members.push(member)
    return member
  }

  async advance(ms: number): Promise<void> {
    await this.#clock.advance(ms)
    while (this.#beingSaid > 0) await nextTurn()
  }

  #spread(from: string, data: Uint8Array): void {
    const hear = (who: string): MessageVerdict => this.#ears.get(who)!.validate(data, from, 'hub')
    const [hub, ...others] = this.members.map(({ machineId }) => machineId)
    if (from !== hub && hear(hub!) !== 'accept') return
    for (const one of others) if (one !== from) hear(one)
  }
}

test('of a fleet that starts together each hears of all others within seconds, and nobody says more than is heard', async () => {
  const [step, between, patience] = [200, 1_800, 12_000]
  const clock = new ManualClock()
  const hub = new Hub(clock)
  const joined = new Map<Member, number>([[hub.join(), clock.monotonic()]])
  const complete = new Map<Member, number>()
  const run = async (ms: number): Promise<void> => {
    for (const end = clock.monotonic() + ms; clock.monotonic() < end;) {
      await hub.advance(step)
      // Those that were there when it came.
      for (const [index, member] of hub.members.entries())
        if (member.presences.size >= index && !complete.has(member)) complete.set(member, clock.monotonic())
    }
  }
  for (let count = 1; count <= 20; count++) {
    await run(between)
    joined.set(hub.join(), clock.monotonic())
  }
  await run(patience)
  for (const member of hub.members) {
    assert.equal(member.presences.size, hub.members.length - 1)
    assert.equal(member.presences.counts.rate_limited, 0)
    assert.ok(complete.get(member)! - joined.get(member)! <= patience)
    member.beacon.stop()
  }
})

test('what one says of itself in any minute is no more than others accept of one', () => {
  assert.ok(OWN_PRESENCES_BURST + OWN_PRESENCES_PER_MINUTE <= PRESENCES_PER_MINUTE)
})
