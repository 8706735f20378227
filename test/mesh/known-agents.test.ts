import assert from 'node:assert/strict'
import { test } from 'node:test'

import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { signCard } from '../../src/identity/card.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { KnownAgents, MAX_KNOWN_MACHINES, MAX_UNLISTED } from '../../src/mesh/known-agents.ts'
import { ANNOUNCE_DOMAIN, signedCard } from '../../src/protocol/wire/card.ts'
import { ManualClock } from '../support/manual-clock.ts'

const machineOf = (n: number): string => machineKeyOf(Buffer.alloc(32, `machine${n}`)).machineId
const contact = agentSignerOf(new Uint8Array(32).fill(1))
const stranger = agentSignerOf(new Uint8Array(32).fill(2))

const setUp = (known: string[] = []) => {
  const clock = new ManualClock()
  const knownAgents = new KnownAgents({
    clock,
    isContact: (agentId) => agentId === contact.agentId,
    isKnown: (machineId) => known.includes(machineId),
  })
  /** One peer announces that the agent is on this machine, and hands over the card. */
  const learn = async (signer: typeof contact, machineId: string): Promise<string> => {
    const now = clock.now()
    const body = { version: 1 as const, agent_public_key: signer.publicKey, machine_id: machineId, name: '', addresses: [] }
    const card = await signCard(signer, { ...body, issued_at_ms: now, expires_at_ms: now + 600_000 }, ANNOUNCE_DOMAIN)
    const said = {
      card_issued_at_ms: now,
      said_at_ms: now,
      claimed_at_ms: now,
      expires_at_ms: now + 600_000,
      addresses: [],
      neighbour: 'n',
    }
    return knownAgents.learn(signedCard.encode(card), { ...said, agent_id: signer.agentId, machine_id: machineId })
  }
  return { clock, knownAgents, learn }
}

test('a contact that signs cards for many machines is remembered on a limited number, including known ones', async () => {
  const known = machineOf(1)
  const { knownAgents, learn } = setUp([known])
  assert.equal(await learn(contact, known), 'newcomer')
  for (let i = 0; i < 3 * MAX_KNOWN_MACHINES; i++) assert.equal(await learn(contact, machineOf(100 + i)), 'newcomer')
  const machines = knownAgents.list().map(({ machine_id }) => machine_id)
  assert.deepEqual(
    [machines.length, machines.includes(known), machines.at(-1)],
    [MAX_KNOWN_MACHINES, true, machineOf(100 + 3 * MAX_KNOWN_MACHINES - 1)],
  )
})

test('new unlisted machines evict unlisted ones and no contact', async () => {
  const { knownAgents, learn } = setUp()
  await learn(contact, machineOf(1))
  for (let i = 0; i < MAX_UNLISTED + 5; i++) assert.equal(await learn(stranger, machineOf(100 + i)), 'newcomer')
  const machines = knownAgents.list().map(({ machine_id }) => machine_id)
  assert.equal(machines.length, MAX_UNLISTED + 1)
  assert.ok(machines.includes(machineOf(1)))
  assert.ok(!machines.includes(machineOf(104)) && machines.includes(machineOf(105)))
})
