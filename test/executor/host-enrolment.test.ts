import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { AppError, isAppError } from '../../src/base/errors.ts'
import { HostEnrolment } from '../../src/executor/enrolment/host-enrolment.ts'
import type { PeerLink } from '../../src/executor/links/executor-links.ts'
import type { EnrolAsk } from '../../src/executor-api/messages.ts'
import { randomBytes, sha256 } from '../../src/identity/hash.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import type { LoadedAcl } from '../../src/policy/mesh/load-acl.ts'
import {
  ENROL_GRANT_DOMAIN,
  type EnrolFrame,
  type EnrolGrant,
  type EnrolRequest,
  enrolFrame,
  enrolGrant,
  enrolRequest,
} from '../../src/protocol/wire/enrolment.ts'
import { MIN_ENROL_ATTEMPTS } from '../../src/protocol/limits/enrolment.ts'
import { Contacts } from '../../src/trust/contacts.ts'
import { encodeEnrolToken, enrolMac, isEnrolMac } from '../../src/trust/enrolment-token.ts'
import { enrolTokenDigest, saveEnrolment } from '../../src/trust/pending-enrolment.ts'
import { entryText } from '../support/acl-text.ts'
import { type Party, newParty } from '../support/fake-network.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

const NOW = Date.UTC(2026, 0, 1)
const LIFE_MS = 12 * 3_600_000

const linkOf = ({ signer, machine }: Party): PeerLink =>
  ({ number: 1, agentId: signer.agentId, machineId: machine.machineId, agentPublicKey: signer.publicKey }) as unknown as PeerLink

/** A host with a token of an operator. The test plays the operator. */
class Enrolling {
  readonly clock = new ManualClock(NOW)
  readonly operator = newParty()
  readonly host = newParty()
  readonly secret = randomBytes(20)
  readonly said: string[] = []
  readonly added: string[] = []
  readonly adopted: string[] = []
  readonly logged: string[] = []
  /** Reason why the entries cannot be used on this machine. */
  unusable: string | null = null
  readonly #asks: EnrolAsk[] = []
  contacts!: Contacts
  enrolment!: HostEnrolment
  path = ''
  result!: Promise<unknown>
  readonly stop = new AbortController()

  static async begin(t: TestContext, hasAcl = false): Promise<Enrolling> {
    const one = new Enrolling()
    const directory = await tempDir(t)
    one.path = join(directory, 'enrolment.json')
    one.contacts = new Contacts({ path: join(directory, 'contacts.json') })
    const { machineId } = one.operator.machine
    const token = encodeEnrolToken({
      agentId: one.operator.signer.agentId,
      machineId,
      secret: one.secret,
      expiresAtMs: NOW + LIFE_MS,
      hasAcl,
      addresses: [`/ip4/127.0.0.1/tcp/1/p2p/${peerIdOf(machineId)}`],
    })
    const pending = { state: 'pending', token, token_sha256: enrolTokenDigest(token), name: null, append: false, attempt: null } as const
    await saveEnrolment(one.path, pending)
    const acl = {
      add: async (entries: string) => {
        if (one.unusable !== null) throw new AppError('bad_acl', one.unusable)
        one.added.push(entries)
        return {} as LoadedAcl
      },
    }
    const init = { pending, path: one.path, displayName: 'box', acl, say: (line: string) => void one.said.push(line) }
    const own = { agentId: one.host.signer.agentId, machineId: one.host.machine.machineId }
    one.enrolment = new HostEnrolment({ clock: one.clock, contacts: one.contacts, log: silent }, init, own)
    one.enrolment.attach({
      enrolAsk: (ask) => void one.#asks.push(ask),
    })
    const services = {
      authority: {
        announce: async ({ operation }: { operation: string }) => void one.logged.push(operation),
        refused: async (operation: string) => void one.logged.push(`${operation} refused`),
      },
      adopt: async (_acl: LoadedAcl, { agent_id }: { agent_id: string }) => {
        one.adopted.push(agent_id)
        return true
      },
    }
    one.result = one.enrolment
      .run(services as unknown as Parameters<HostEnrolment['run']>[0], one.stop.signal)
      .catch((error: unknown) => error)
    t.after(() => one.stop.abort(new AppError('shutting_down')))
    return one
  }

  /** The next attempt of the host. Advances the clock past its pauses. */
  async ask(): Promise<EnrolAsk> {
    for (;;) {
      const ask = this.#asks.shift()
      if (ask !== undefined) return ask
      await this.clock.advance(1_000)
      // The host writes files in between.
      await sleep(1)
    }
  }

  /** The request of this attempt, on a link to this peer. */
  request({ ask }: EnrolAsk, peer: Party = this.operator): { request: EnrolRequest; body: Uint8Array } {
    const call = { id: 1, link: 1, ask, request_id: randomUUID(), stream_nonce: randomBytes(32), addresses: [] }
    const frame = enrolFrame.decode(this.enrolment.sign({ type: 'enrol_sign', ...call }, linkOf(peer)))
    assert.ok(frame.type === 'request')
    assert.ok(isEnrolMac(this.secret, 'request', frame.body, frame.mac))
    return { request: enrolRequest.decode(frame.body), body: frame.body }
  }

  async grant(
    asked: { request: EnrolRequest; body: Uint8Array },
    fields: Partial<EnrolGrant> = {},
    by: Party = this.operator,
  ): Promise<Extract<EnrolFrame, { type: 'granted' }>> {
    const { request } = asked
    const body = enrolGrant.encode({
      version: 1,
      request_id: request.request_id,
      from_agent: request.to_agent,
      from_machine: request.to_machine,
      to_agent: request.from_agent,
      to_machine: request.from_machine,
      request_sha256: sha256(asked.body),
      key_id: request.key_id,
      attempt: request.attempt,
      name: 'web1',
      operator_name: 'ops',
      acl: '',
      ...fields,
    })
    return { type: 'granted', body, signature: await by.signer.sign(ENROL_GRANT_DOMAIN, body), mac: enrolMac(this.secret, 'grant', body) }
  }

  answer({ ask }: EnrolAsk, frame: EnrolFrame): void {
    this.enrolment.answered(ask, enrolFrame.encode(frame))
  }

  /** Confirms the report of the host. */
  async confirm(): Promise<void> {
    const ask = await this.ask()
    const { request, body } = this.request(ask)
    assert.equal(request.step, 'done')
    const request_sha256 = sha256(body)
    this.answer(ask, { type: 'confirmed', request_sha256, mac: enrolMac(this.secret, 'confirmed', request_sha256) })
  }

  entries(keys: Record<string, string> = {}): string {
    return entryText([['df']], { agent_id: this.operator.signer.agentId, machine_id: this.operator.machine.machineId, ...keys })
  }
}

test('a host enrols, shows and adds the entries of its operator, reports this, and deletes the token', async (t) => {
  const one = await Enrolling.begin(t, true)
  const ask = await one.ask()
  assert.deepEqual([ask.agent_id, ask.machine_id], [one.operator.signer.agentId, one.operator.machine.machineId])
  const asked = one.request(ask)
  assert.deepEqual([asked.request.step, asked.request.name, asked.request.name_required], ['ask', 'box', false])
  one.answer(ask, await one.grant(asked, { acl: one.entries() }))
  await one.confirm()
  assert.equal(await one.result, true)
  assert.deepEqual([one.added, one.adopted, one.logged], [[one.entries()], [one.operator.signer.agentId], ['enrolled']])
  assert.ok(one.said.some((line) => line.includes('argv = ["df"]')))
  const [contact] = one.contacts.list()
  assert.deepEqual([contact?.name, contact?.trust, contact?.machines], ['ops', 'trusted', [one.operator.machine.machineId]])
  const state = JSON.parse(await readFile(one.path, 'utf8')) as Record<string, unknown>
  assert.deepEqual([state['state'], state['token']], ['done', null])
})

test('a host signs no request for a link to another agent or machine', async (t) => {
  const one = await Enrolling.begin(t)
  const ask = await one.ask()
  const other = newParty()
  for (const peer of [
    other,
    { signer: one.operator.signer, machine: other.machine },
    { signer: other.signer, machine: one.operator.machine },
  ])
    assert.throws(
      () => one.request(ask, peer),
      (error) => isAppError(error, 'peer_rejected'),
    )
})

test('a forged, changed, early or unrelated answer is ignored, and the host asks again', async (t) => {
  const one = await Enrolling.begin(t)
  const other = newParty()
  const early = await one.ask()
  one.answer(early, { type: 'confirmed', request_sha256: randomBytes(32), mac: randomBytes(32) })
  type Asked = { request: EnrolRequest; body: Uint8Array }
  const forgeries: readonly ((asked: Asked) => Promise<EnrolFrame>)[] = [
    async (asked) => one.grant(asked, {}, other),
    async (asked) => ({ ...(await one.grant(asked)), mac: randomBytes(32) }),
    async (asked) => ({ ...(await one.grant(asked)), signature: randomBytes(3309) }),
    async (asked) => ({ ...(await one.grant(asked)), body: (await one.grant(asked, { name: 'other' })).body }),
    async (asked) => one.grant(asked, { request_sha256: randomBytes(32) }),
    async (asked) => one.grant(asked, { request_id: randomUUID() }),
    async (asked) => one.grant(asked, { attempt: randomBytes(16) }),
    async (asked) => one.grant(asked, { key_id: randomBytes(8) }),
    async (asked) => one.grant(asked, { to_agent: other.signer.agentId }),
    async (asked) => one.grant(asked, { to_machine: other.machine.machineId }),
    async (asked) => one.grant(asked, { from_agent: other.signer.agentId }),
    async (asked) => one.grant(asked, { from_machine: other.machine.machineId }),
    async ({ body }) => ({ type: 'confirmed', request_sha256: sha256(body), mac: enrolMac(one.secret, 'confirmed', sha256(body)) }),
    async ({ body }) => ({ type: 'request', body, mac: enrolMac(one.secret, 'request', body) }),
    async () => ({ type: 'refused', reason: 'busy', message: 'later' }),
  ]
  for (const forge of forgeries) {
    const ask = await one.ask()
    one.answer(ask, await forge(one.request(ask)))
  }
  const ask = await one.ask()
  one.enrolment.answered(ask.ask, randomBytes(100))
  const last = await one.ask()
  assert.deepEqual([one.contacts.list(), one.added, one.logged], [[], [], []])
  assert.equal(one.said.filter((line) => line.startsWith('waiting for the operator')).length, forgeries.length + 2)
  one.answer(last, await one.grant(one.request(last)))
  await one.confirm()
  assert.equal(await one.result, true)
})

test('entries for another agent, or entries that the token does not announce, change nothing', async (t) => {
  for (const [hasAcl, acl, expected] of [
    [true, (one: Enrolling) => one.entries({ agent_id: 'e'.repeat(64) }), /not valid: an entry is not for the agent/],
    [true, (one: Enrolling) => `${one.entries()}\n[exec]\nenabled = true\n`, /not valid: has exec\.enabled/],
    [false, (one: Enrolling) => one.entries(), /the token announces none/],
  ] as const) {
    const one = await Enrolling.begin(t, hasAcl)
    const ask = await one.ask()
    one.answer(ask, await one.grant(one.request(ask), { acl: acl(one) }))
    const error = await one.result
    assert.ok(isAppError(error, 'enrolment_refused'))
    assert.match(error.message, expected)
    assert.deepEqual([one.contacts.list(), one.added], [[], []])
    assert.ok(!existsSync(one.path))
  }
})

test('a refusal ends the enrolment with the message of the operator', async (t) => {
  const one = await Enrolling.begin(t)
  const ask = await one.ask()
  one.request(ask)
  one.answer(ask, { type: 'refused', reason: 'used_up', message: 'all uses are gone' })
  const error = await one.result
  assert.ok(isAppError(error, 'enrolment_refused') && error.message === 'all uses are gone')
  assert.ok(!existsSync(one.path), 'the next start is an ordinary one')
})

test('a host whose clock is a day ahead tries several times before it fails with the reason', async (t) => {
  const one = await Enrolling.begin(t)
  one.clock.jump(86_400_000)
  for (let asks = 0; asks < MIN_ENROL_ATTEMPTS; asks++) {
    const { ask } = await one.ask()
    one.enrolment.failed({ type: 'enrol_failed', ask, code: 'peer_unreachable', message: 'connection refused' })
  }
  const error = await one.result
  assert.ok(isAppError(error, 'enrolment_refused'))
  assert.match(error.message, /^the operator was not reached before the token expired at \S+: connection refused$/)
  assert.match(one.said[0] ?? '', /^waiting for the operator: connection refused; next try in 1 s$/)
})

test('an enrolled host stays enrolled even if the operator never confirms it', async (t) => {
  for (const ending of ['expired', 'refused'] as const) {
    const one = await Enrolling.begin(t)
    const ask = await one.ask()
    one.answer(ask, await one.grant(one.request(ask)))
    if (ending === 'expired') one.clock.jump(2 * LIFE_MS)
    for (let asks = 0; asks < (ending === 'expired' ? MIN_ENROL_ATTEMPTS : 1); asks++) {
      const done = await one.ask()
      if (ending === 'expired') one.enrolment.failed({ type: 'enrol_failed', ask: done.ask, code: 'peer_unreachable', message: 'asleep' })
      else {
        one.request(done)
        one.answer(done, { type: 'refused', reason: 'unknown_key', message: 'it was forgotten' })
      }
    }
    assert.equal(await one.result, true)
    assert.match(one.said.at(-1) ?? '', /^this machine is enrolled, but the operator did not confirm it: /)
    const { state, token } = JSON.parse(await readFile(one.path, 'utf8')) as { state: string; token: string | null }
    assert.deepEqual([state, token, one.contacts.list().length], ['done', null, 1])
  }
})

test('unusable entries end the enrolment, and the operator does not become a contact', async (t) => {
  const one = await Enrolling.begin(t, true)
  one.unusable = 'exec-acl.toml:9: run_as: no user "deploy"'
  const ask = await one.ask()
  one.answer(ask, await one.grant(one.request(ask), { acl: one.entries() }))
  const error = await one.result
  assert.ok(isAppError(error, 'enrolment_refused'))
  assert.match(error.message, /cannot be used on this machine: .*no user "deploy"/)
  assert.deepEqual([one.contacts.list(), existsSync(one.path)], [[], false])
  assert.deepEqual(one.logged, ['enrolled', 'enrolled refused'])
})

test('a host that blocked its operator is not enrolled, and no entry is written', async (t) => {
  const one = await Enrolling.begin(t, true)
  const { agentId: agent_id } = one.operator.signer
  await one.contacts.meet({ name: 'ops', agent_id, machine_id: one.operator.machine.machineId, addresses: [] })
  await one.contacts.setTrust('ops', 'blocked')
  const ask = await one.ask()
  one.answer(ask, await one.grant(one.request(ask), { acl: one.entries() }))
  const error = await one.result
  assert.ok(isAppError(error, 'enrolment_refused'))
  assert.match(error.message, /cannot become a contact of this machine: /)
  assert.deepEqual([one.added, one.logged, existsSync(one.path)], [[], [], false])
})

test('a stop ends the enrolment attempts and keeps the token for the next start', async (t) => {
  const one = await Enrolling.begin(t)
  await one.ask()
  one.stop.abort(new AppError('shutting_down'))
  assert.equal(await one.result, false)
  assert.ok(existsSync(one.path))
})
