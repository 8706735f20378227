import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { randomBytes } from '../../src/identity/hash.ts'
import { type EnrolContext, type EnrolVerdict, judgeEnrolment } from '../../src/policy/enrolment.ts'
import { ENROL_CONTACT_MS } from '../../src/protocol/limits/enrolment.ts'
import { fromHex, toHex } from '../../src/protocol/ids.ts'
import type { EnrolRequest } from '../../src/protocol/wire/enrolment.ts'
import type { EnrolKey } from '../../src/trust/enrolment-keys.ts'
import { enrolKeyId, enrolMac } from '../../src/trust/enrolment-token.ts'

const NOW = 1_800_000_000_000
const secret = randomBytes(20)
const key: EnrolKey = {
  id: enrolKeyId(secret),
  secret: toHex(secret),
  created_at_ms: NOW,
  expires_at_ms: NOW + 60_000,
  uses: 3,
  names: 'web[1-3]',
  labels: { role: 'web' },
  operator_name: 'ops',
  acl: '',
  revoked: false,
  hosts: [],
}

const idOf = (digit: string): string => digit.repeat(64)

interface Host {
  readonly agent: string
  readonly machine?: string
  readonly attempt?: number
  readonly fields?: Partial<EnrolRequest>
  readonly with?: Uint8Array
}

const ask = (
  { agent, machine = agent, attempt = 0, fields = {}, with: used = secret }: Host,
  context: Partial<EnrolContext> = {},
): EnrolVerdict => {
  const request = {
    key_id: fromHex(enrolKeyId(used)),
    step: 'ask' as const,
    attempt: new Uint8Array(16).fill(attempt),
    name: 'box',
    name_required: false,
    ...fields,
  }
  const body = randomBytes(50)
  const arrival = { agentId: idOf(agent), machineId: idOf(machine), request, body, mac: enrolMac(used, 'request', body) }
  return judgeEnrolment(arrival, { keys: [key], contacts: [], nowMs: NOW, ...context })
}

const allowed = (verdict: EnrolVerdict) => {
  assert.ok(verdict.kind === 'allowed', JSON.stringify(verdict))
  return verdict
}
const refusedAs = (verdict: EnrolVerdict, reason: string, text: RegExp = /./): void => {
  assert.ok(verdict.kind === 'refused', 'it is allowed')
  assert.equal(verdict.reason, reason, verdict.message)
  assert.match(verdict.message, text)
}

test('a host gets its own name if it is in the set and free, otherwise the next free name', () => {
  assert.equal(allowed(ask({ agent: 'a' })).host.name, 'web1')
  assert.equal(allowed(ask({ agent: 'a', fields: { name: 'web3' } })).host.name, 'web3')
  const contacts = [{ name: 'web1', agent_id: idOf('9'), machines: [] }]
  assert.equal(allowed(ask({ agent: 'a', fields: { name: 'web1' } }, { contacts })).host.name, 'web2')
  const free = { ...key, names: null }
  assert.equal(allowed(ask({ agent: 'a' }, { keys: [free] })).host.name, 'box')
  assert.equal(allowed(ask({ agent: 'a', fields: { name: '-x' } }, { keys: [free] })).host.name, 'agent-aaaaaaaa')
})

test('a host that requires a name gets exactly that name or is refused', () => {
  const fields = { name: 'web2', name_required: true }
  assert.equal(allowed(ask({ agent: 'a', fields })).host.name, 'web2')
  const contacts = [{ name: 'web2', agent_id: idOf('9'), machines: [] }]
  refusedAs(ask({ agent: 'a', fields }, { contacts }), 'name_taken', /the name web2 is taken/)
  refusedAs(ask({ agent: 'a', fields: { name: 'db1', name_required: true } }), 'name_unknown', /"db1" is not one of web\[1-3\]/)
  const all = ['web1', 'web2', 'web3'].map((name, index) => ({ name, agent_id: idOf(String(index)), machines: [] }))
  refusedAs(ask({ agent: 'a' }, { contacts: all }), 'name_taken', /all names of web\[1-3\] are taken/)
})

test('a wrong secret, an unknown key, or a revoked, expired or used-up key is refused', () => {
  refusedAs(ask({ agent: 'a', with: randomBytes(20) }), 'unknown_key', /the token is from another operator, or was forgotten/)
  refusedAs(ask({ agent: 'a', with: randomBytes(20), fields: { key_id: fromHex(key.id) } }), 'wrong_proof')
  refusedAs(ask({ agent: 'a' }, { keys: [{ ...key, revoked: true }] }), 'revoked', /was revoked/)
  refusedAs(ask({ agent: 'a' }, { nowMs: key.expires_at_ms }), 'expired', /expired at .* and the clock of the operator says/)
  const { keys } = allowed(ask({ agent: 'a' }, { keys: [{ ...key, uses: 1 }] }))
  refusedAs(ask({ agent: 'b' }, { keys }), 'used_up', /is used up: 1 of 1/)
})

test('a host that the operator removed does not come back with a retry', () => {
  const { keys, host } = allowed(ask({ agent: 'a' }))
  const contacts = [{ name: host.name, agent_id: idOf('a'), machines: [idOf('a')] }] as unknown as EnrolContext['contacts']
  const later = NOW + ENROL_CONTACT_MS + 1
  // The daemon may have stopped after it used the key and before it added the contact.
  allowed(ask({ agent: 'a' }, { keys, nowMs: NOW + ENROL_CONTACT_MS }))
  allowed(ask({ agent: 'a' }, { keys, nowMs: later, contacts }))
  refusedAs(ask({ agent: 'a' }, { keys, nowMs: later }), 'already_enrolled', /removed/)
})

test('a retry costs no use, even after expiry, and the newest attempt wins until the host confirms', () => {
  const first = allowed(ask({ agent: 'a', attempt: 1 }))
  assert.ok(first.isNew)
  const again = allowed(ask({ agent: 'a', attempt: 1 }, { keys: first.keys }))
  assert.ok(!again.isNew && again.keys === first.keys)
  const later = allowed(ask({ agent: 'a', attempt: 2 }, { keys: first.keys, nowMs: key.expires_at_ms + 1 }))
  assert.deepEqual([later.isNew, later.host.name, later.key.hosts.length], [false, 'web1', 1])
  const done = { step: 'done' as const }
  refusedAs(ask({ agent: 'a', attempt: 1, fields: done }, { keys: later.keys }), 'already_enrolled')
  const confirmed = allowed(ask({ agent: 'a', attempt: 2, fields: done }, { keys: later.keys }))
  assert.ok(confirmed.host.confirmed)
  const keys = confirmed.keys
  assert.ok(allowed(ask({ agent: 'a', attempt: 2, fields: done }, { keys })).host.confirmed)
  const copy = /these machine keys were already enrolled as web1; a cloned image must be initialised again \(delete the data directory\)/
  refusedAs(ask({ agent: 'a', attempt: 3 }, { keys }), 'already_enrolled', copy)
  refusedAs(ask({ agent: 'a', machine: 'b', attempt: 3 }, { keys }), 'already_enrolled', copy)
  refusedAs(ask({ agent: 'b', machine: 'a', attempt: 3 }, { keys }), 'already_enrolled', copy)
  refusedAs(ask({ agent: 'b', attempt: 3, fields: done }, { keys }), 'unknown_key', /was not granted to this machine/)
})

test('a host that another key enrolled, or that is already a contact, is not enrolled again', () => {
  const other = { ...key, id: '0'.repeat(16), hosts: allowed(ask({ agent: 'a' })).key.hosts.map((host) => ({ ...host, confirmed: true })) }
  refusedAs(ask({ agent: 'a', attempt: 5 }, { keys: [other, key] }), 'already_enrolled')
  const contacts = [{ name: 'bob', agent_id: idOf('c'), machines: [idOf('d')] }]
  refusedAs(
    ask({ agent: 'c' }, { contacts }),
    'already_contact',
    /already the operator's contact bob: remove it first.*x0x contacts remove bob/,
  )
  refusedAs(ask({ agent: 'e', machine: 'd' }, { contacts }), 'already_contact')
})

test('property: no name or host occurs twice, hosts never exceed uses, and a confirmed host does not change', () => {
  const step = fc.record({
    agent: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
    machine: fc.constantFrom('a', 'b', 'c', 'd', 'e', null),
    attempt: fc.nat({ max: 2 }),
    name: fc.constantFrom('web1', 'web2', 'web3', 'db1'),
    name_required: fc.boolean(),
    done: fc.boolean(),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      let keys: readonly EnrolKey[] = [key]
      for (const { agent, machine, attempt, name, name_required, done } of steps) {
        const before = keys[0]!.hosts
        const host = {
          agent,
          machine: machine ?? agent,
          attempt,
          fields: { name, name_required, step: done ? ('done' as const) : ('ask' as const) },
        }
        // The registrar makes a contact of each host.
        const contacts = before.map(({ name: given, agent_id, machine_id }) => ({ name: given, agent_id, machines: [machine_id] }))
        const verdict = ask(host, { keys, contacts })
        if (verdict.kind === 'allowed') keys = verdict.keys
        const { hosts } = keys[0]!
        assert.ok(hosts.length <= key.uses)
        for (const part of ['name', 'agent_id', 'machine_id'] as const)
          assert.equal(new Set(hosts.map((one) => one[part])).size, hosts.length, part)
        for (const old of before.filter(({ confirmed }) => confirmed)) assert.ok(hosts.includes(old))
      }
    }),
  )
})
