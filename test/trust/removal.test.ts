import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { TRUST_LEVELS, type TrustLevel } from '../../src/protocol/reasons.ts'
import { Contacts } from '../../src/trust/contacts.ts'
import { decideTrust } from '../../src/trust/contact.ts'
import { tempDir } from '../support/temp-dir.ts'

const AGENTS = ['1', '2'].map((digit) => digit.repeat(64))
const MACHINES = ['a', 'b', 'c'].map((digit) => digit.repeat(64))

const agent = fc.constantFrom(...AGENTS)
const machine = fc.constantFrom(...MACHINES)
const pins = fc.subarray(MACHINES)
const level = fc.constantFrom<TrustLevel>(...TRUST_LEVELS)

/** Everything that an operator can remove or lower: a pin, a contact, a level. */
const removal = fc.oneof(
  fc.record({ take: fc.constant('pin' as const), agent, machine }),
  fc.record({ take: fc.constant('contact' as const), agent }),
  fc.record({ take: fc.constant('level' as const), agent }),
)

/** The (agent, machine) pairs that may run a command at this moment. */
const accepted = (contacts: Contacts): Set<string> =>
  new Set(
    AGENTS.flatMap((agentId) =>
      MACHINES.filter((machineId) => decideTrust({ contact: contacts.byAgent(agentId), machineId, revoked: false }) === 'accept').map(
        (machineId) => `${agentId} ${machineId}`,
      ),
    ),
  )

const card = (agentId: string) => ({
  agentId,
  machineId: MACHINES[0]!,
  name: '',
  addresses: [],
  issuedAt: 1,
  expiresAt: 2,
  publicKey: new Uint8Array([1]),
})

test('property: removals and imports never allow a pair that was refused before', async (t) => {
  const directory = await tempDir(t)
  let run = 0
  const start = fc.tuple(...AGENTS.map(() => fc.record({ trust: level, machines: pins })))
  await fc.assert(
    fc.asyncProperty(start, fc.array(removal, { minLength: 1, maxLength: 8 }), async (standings, removals) => {
      const contacts = new Contacts({ path: join(directory, `contacts-${run++}.json`) })
      for (const [index, { trust, machines }] of standings.entries()) {
        await contacts.importCard(card(AGENTS[index]!), { trust })
        for (const machineId of machines) await contacts.pin(AGENTS[index]!, machineId)
      }
      let before = accepted(contacts)
      for (const step of removals) {
        try {
          if (step.take === 'pin') await contacts.unpin(step.agent, step.machine)
          if (step.take === 'contact') await contacts.remove(step.agent)
          if (step.take === 'level') {
            const at = TRUST_LEVELS.indexOf(contacts.find(step.agent).trust)
            await contacts.setTrust(step.agent, TRUST_LEVELS[Math.max(0, at - 1)]!)
          }
          await contacts.importCard({ ...card(step.agent), issuedAt: 1000 })
        } catch (error) {
          assert.ok(isAppError(error, 'not_found') || isAppError(error, 'unknown_agent'), String(error))
        }
        const after = accepted(contacts)
        for (const pair of after) assert.ok(before.has(pair), `${pair} was let in by ${JSON.stringify(step)}`)
        before = after
      }
    }),
    { seed: 10, numRuns: 40 },
  )
})
