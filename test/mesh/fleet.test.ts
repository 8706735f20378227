import assert from 'node:assert/strict'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { test } from 'node:test'

import { silentLogger } from '../../src/base/log.ts'
import { signCard } from '../../src/identity/card.ts'
import { peerIdOf } from '../../src/identity/peer-id.ts'
import { Announcements } from '../../src/mesh/announcements.ts'
import { Discovery } from '../../src/mesh/discovery.ts'
import type { TopicValidator, Verdict } from '../../src/mesh/libp2p/gossip.ts'
import { OWN_WORDS_BURST, OWN_WORDS_PER_MINUTE } from '../../src/mesh/own-words.ts'
import { ANNOUNCE_DOMAIN } from '../../src/protocol/card.ts'
import { ANNOUNCE_TTL_MS, ANNOUNCES_PER_MINUTE } from '../../src/protocol/limits.ts'
import { newParty, type Party } from '../support/fake-network.ts'
import { ManualClock } from '../support/manual-clock.ts'

interface Member {
  readonly party: Party
  readonly announcements: Announcements
  readonly discovery: Discovery
}

/** Daemons that all hear each other through the first one, which passes on what it accepts, as gossip does. */
class Hub {
  readonly members: Member[] = []
  readonly #clock: ManualClock
  readonly #ears = new Map<Party, { validate: TopicValidator; onNeighbour: () => void }>()
  /** Announcements that are being signed. */
  #beingSaid = 0

  constructor(clock: ManualClock) {
    this.#clock = clock
  }

  join(): Member {
    const party = newParty()
    const { signer, machine } = party
    const clock = this.#clock
    const announcements = new Announcements(
      { clock, isContact: () => false, isKnown: () => false },
      { self: { agentId: signer.agentId, machineId: machine.machineId } },
    )
    const signAnnouncement = async (addresses: string[]) => {
      this.#beingSaid += 1
      const issued_at_ms = clock.now()
      const body = { version: 1 as const, agent_public_key: signer.publicKey, machine_id: machine.machineId, name: '', addresses }
      return signCard(signer, { ...body, issued_at_ms, expires_at_ms: issued_at_ms + ANNOUNCE_TTL_MS }, ANNOUNCE_DOMAIN)
    }
    const node = {
      addresses: () => [`/ip4/10.0.0.1/tcp/1/p2p/${peerIdOf(machine.machineId)}`],
      // As for daemons that hear nothing else.
      hasNeighboursOnlyOn: () => true,
      joinTopic: (_topic: string, validate: TopicValidator, onNeighbour: () => void) =>
        void this.#ears.set(party, { validate, onNeighbour }),
      publish: async (_topic: string, data: Uint8Array) => {
        this.#beingSaid -= 1
        this.#spread(party, data)
      },
    }
    const reconnect = { look: () => undefined }
    const discovery = new Discovery({ node, announcements, reconnect, signAnnouncement, clock, log: silentLogger })
    discovery.start()
    const member = { party, announcements, discovery }
    const [hub] = this.members
    if (hub !== undefined) for (const one of [hub.party, party]) this.#ears.get(one)!.onNeighbour()
    this.members.push(member)
    return member
  }

  async advance(ms: number): Promise<void> {
    await this.#clock.advance(ms)
    while (this.#beingSaid > 0) await nextTurn()
  }

  #spread(from: Party, data: Uint8Array): void {
    const hear = (who: Party): Verdict => this.#ears.get(who)!.validate(data, from.machine.machineId, 'hub')
    const [hub, ...others] = this.members
    if (from !== hub!.party && hear(hub!.party) !== 'accept') return
    for (const { party } of others) if (party !== from) hear(party)
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
        if (member.announcements.list().length >= index && !complete.has(member)) complete.set(member, clock.monotonic())
    }
  }
  for (let count = 1; count <= 20; count++) {
    await run(between)
    joined.set(hub.join(), clock.monotonic())
  }
  await run(patience)
  for (const member of hub.members) {
    assert.equal(member.announcements.list().length, hub.members.length - 1)
    assert.equal(member.announcements.counts.rate_limited, 0)
    assert.ok(complete.get(member)! - joined.get(member)! <= patience)
    member.discovery.stop()
  }
})

test('what one says of itself in any minute is no more than others accept of one', () => {
  assert.ok(OWN_WORDS_BURST + OWN_WORDS_PER_MINUTE <= ANNOUNCES_PER_MINUTE)
})
