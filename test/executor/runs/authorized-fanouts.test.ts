import type { ContactRecord } from '../../../src/protocol/api-answers.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { PROVEN_FANOUT_MS, AuthorizedFanouts } from '../../../src/executor/runs/operator-proofs.ts'
import type { RequestToSign } from '../../../src/executor/runs/operator-proofs.ts'
import { pieceHashes } from '../../../src/identity/piece-hashes.ts'
import { MAX_FANOUTS } from '../../../src/protocol/limits/fleet.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const OTHER_ID = '01890a5d-ac96-774b-bcce-b302099a8058'
const [OWN, WEB1, WEB2, DB, STRANGER] = ['a', 'b', 'c', 'd', 'e'].map((digit) => digit.repeat(64)) as [
  string,
  string,
  string,
  string,
  string,
]

const contact = (name: string, agent_id: string, labels: Record<string, string> = {}): ContactRecord => ({
  name,
  agent_id,
  trust: 'known',
  machines: [],
  addresses: [],
  formerly: [],
  labels,
  revoked: false,
  revoked_machines: [],
})
const KNOWN = {
  own: OWN,
  contacts: [contact('web1', WEB1), contact('web2', WEB2), contact('db', DB, { role: 'db' })],
  groups: [{ name: 'web', words: ['web[1-2]'] }],
}

const COMMAND = { argv: ['uptime'], stdin: null, timeout_ms: null, cwd: null, clamp: false, detach: null, terminal: null }
const asking = (to_agent: string, more: Partial<RequestToSign> = {}): RequestToSign => ({ ...COMMAND, to_agent, request_id: ID, ...more })

const proven = (body: object, clock = new ManualClock()): AuthorizedFanouts => {
  const fanouts = new AuthorizedFanouts({ clock })
  fanouts.add(ID, Buffer.from(JSON.stringify({ argv: ['uptime'], ...body })), KNOWN)
  return fanouts
}
const REFUSED = { code: 'operator_proof_required' }

test('a proven fan-out may send one request to each host that its words select', () => {
  for (const [hosts, agents] of [
    [['web1'], [WEB1]],
    [
      ['web[1-2]', 'role=db'],
      [WEB1, WEB2, DB],
    ],
    [['@web', '!web1'], [WEB2]],
    [[STRANGER], [STRANGER]],
    [['bbbbbb'], [WEB1]],
  ] as const) {
    const fanouts = proven({ hosts })
    for (const agent of [OWN, WEB1, WEB2, DB, STRANGER].filter((one) => !agents.includes(one as never)))
      assert.throws(() => fanouts.spend(ID, asking(agent)), REFUSED, `${hosts.join(' ')}: ${agent}`)
    for (const agent of agents) {
      fanouts.spend(ID, asking(agent))
      assert.throws(() => fanouts.spend(ID, asking(agent)), REFUSED)
    }
  }
})

test('a changed request is refused, and its host can still get the proven one', () => {
  const stdin = Buffer.from('hi')
  const signed = { len: 2, pieces: pieceHashes(stdin) }
  const fanouts = proven({ hosts: ['web1'], stdin_b64: stdin.toString('base64'), timeout_ms: 5, request_ids: { [WEB1]: ID } })
  const right = { stdin: signed, timeout_ms: 5 }
  for (const wrong of [
    { argv: ['reboot'] },
    { argv: ['uptime', '-p'] },
    { stdin: null },
    { stdin: { len: 2, pieces: pieceHashes(Buffer.from('ho')) } },
    { timeout_ms: 6 },
    { cwd: '/' },
    { clamp: true },
    { request_id: OTHER_ID },
  ])
    assert.throws(() => fanouts.spend(ID, asking(WEB1, { ...right, ...wrong })), REFUSED, JSON.stringify(wrong))
  fanouts.spend(ID, asking(WEB1, right))
})

test('a proven fan-out ends when it is over, at its deadline, or after a day', async () => {
  const over = proven({ hosts: ['web1'] })
  over.over(ID)
  assert.equal(over.has(ID), false)
  for (const [body, lasts] of [
    [{ deadline_ms: 1_000 }, 1_000],
    [{ deadline_ms: 2 * PROVEN_FANOUT_MS }, PROVEN_FANOUT_MS],
    [{}, PROVEN_FANOUT_MS],
  ] as const) {
    const clock = new ManualClock()
    const fanouts = proven({ hosts: ['web1', 'web2'], ...body }, clock)
    await clock.advance(lasts)
    fanouts.spend(ID, asking(WEB1))
    await clock.advance(1)
    assert.throws(() => fanouts.spend(ID, asking(WEB2)), REFUSED)
  }
})

test('an object that is not a valid fan-out, has another ID, or selects no known host is refused', () => {
  const fanouts = new AuthorizedFanouts({ clock: new ManualClock() })
  const add = (body: unknown): void => fanouts.add(ID, Buffer.from(JSON.stringify(body)), KNOWN)
  const good = { hosts: ['web1'], argv: ['uptime'] }
  for (const [body, code] of [
    [[], 'bad_request'],
    [{ ...good, shell: true }, 'bad_request'],
    [{ argv: ['uptime'] }, 'bad_request'],
    [{ ...good, argv: 'uptime' }, 'bad_request'],
    [{ ...good, request_ids: [] }, 'bad_request'],
    [{ ...good, fanout_id: OTHER_ID }, 'operator_proof_required'],
    [{ ...good, hosts: ['nobody'] }, 'unknown_agent'],
    [{ ...good, hosts: ['web1', '!web1'] }, 'no_hosts'],
    // Anyone can create an ID with this beginning.
    [{ ...good, hosts: ['eeeeee'] }, 'operator_proof_required'],
  ] as const)
    assert.throws(() => add(body), { code }, JSON.stringify(body))
  assert.equal(fanouts.has(ID), false)
  add(good)
  assert.throws(() => add(good), { code: 'conflict' })
})

test('above the limit of active fan-outs the oldest one is dropped', () => {
  const fanouts = new AuthorizedFanouts({ clock: new ManualClock() })
  const ids = Array.from({ length: MAX_FANOUTS + 1 }, (_, index) => `01890a5d-ac96-774b-bcce-${String(index).padStart(12, '0')}`)
  for (const id of ids) fanouts.add(id, Buffer.from(JSON.stringify({ hosts: ['web1'], argv: ['uptime'] })), KNOWN)
  assert.deepEqual(
    ids.map((id) => fanouts.has(id)),
    ids.map((_, index) => index > 0),
  )
  // An invalid fan-out does not displace another.
  assert.throws(() => fanouts.add(ID, Buffer.from(JSON.stringify({ hosts: ['web1'], argv: 'uptime' })), KNOWN), { code: 'bad_request' })
  assert.ok(fanouts.has(ids[1]!))
})
