import { verifyJournal } from '../../src/journal/verify.ts'
import { REFUSAL_LINES } from '../../src/journal/refusals.ts'
import assert from 'node:assert/strict'
import { mkdir, rename, rmdir } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import type { AuthorityEvent } from '../../src/journal/events.ts'
import type { JournalEvent, JournalLine } from '../../src/journal/events.ts'
import { isAppError } from '../../src/base/errors.ts'
import type { Operation } from '../../src/executor-api/messages.ts'
import { ExecutorHost, type HostOptions } from '../support/executor-host.ts'
import type { FakeNetwork } from '../support/fake-network.ts'
import { linesOf } from '../support/journal.ts'

interface Operator {
  readonly host: ExecutorHost
  readonly network: FakeNetwork
  operate(operation: Operation, body: object): Promise<unknown>
  lines(): Promise<AuthorityEvent[]>
}

/** A host whose peer is a contact. */
const operator = async (t: TestContext, options: HostOptions = {}): Promise<Operator> => {
  const { host, network } = await ExecutorHost.linked(t, options)
  return {
    host,
    network,
    operate: async (operation, json) => {
      const body = Buffer.from(JSON.stringify(json))
      return network.client.operate(operation, body, await host.prove(operation, body))
    },
    lines: async () => {
      const lines = (await linesOf(options.acl === false ? host.outgoingPath : host.journalPath)) as (JournalEvent & JournalLine)[]
      return lines.flatMap(({ ts: _ts, chain: _chain, n: _n, prev: _prev, ...line }) => (line.event === 'authority' ? [line] : []))
    },
  }
}

test('every trust change is logged before it takes effect, with and without an ACL', async (t) => {
  for (const acl of [true, false]) {
    const { host, operate, lines } = await operator(t, { acl })
    const contact = host.peer.signer.agentId
    const machine_id = host.peer.machine.machineId
    const done: [Operation, object, Partial<AuthorityEvent>][] = [
      ['contact_trust', { contact, level: 'known' }, { agent: contact, level: 'known' }],
      ['contact_pin', { contact, machine_id }, { agent: contact, machine: machine_id }],
      ['contact_unpin', { contact, machine_id }, { agent: contact, machine: machine_id }],
      [
        'contact_meet',
        { name: host.contacts.find(contact).name, agent_id: contact, machine_id, addresses: [] },
        { agent: contact, machine: machine_id, level: 'trusted' },
      ],
      [
        'contact_label',
        { contact, labels: { role: 'db', site: 'ber' } },
        { agent: contact, detail: `${host.contacts.find(contact).name}: role=db site=ber` },
      ],
      ['contact_remove', { contact }, { agent: contact }],
      ['identity_revoke', { machine_id }, { agent: host.own.signer.agentId, machine: machine_id }],
    ]
    for (const [operation, body] of done) await operate(operation, body)
    assert.deepEqual(
      await lines(),
      done.map(([operation, , about]) => ({
        event: 'authority',
        operation,
        agent: null,
        machine: null,
        level: null,
        code: null,
        detail: null,
        ...about,
      })),
    )
  }
})

test('if the audit log cannot be written, no contact can be trusted but any can be blocked', async (t) => {
  const { host, operate } = await operator(t)
  const contact = host.peer.signer.agentId
  await rename(host.journalPath, `${host.journalPath}.away`)
  await mkdir(host.journalPath)
  const before = host.contacts.list()
  await assert.rejects(operate('contact_trust', { contact, level: 'known' }), (error) => isAppError(error, 'journal_unavailable'))
  assert.deepEqual(host.contacts.list(), before)
  await operate('contact_trust', { contact, level: 'blocked' })
  assert.equal(host.contacts.find(contact).trust, 'blocked')
  await rmdir(host.journalPath)
})

test('operations without an operator proof are logged, but the log lines are limited', async (t) => {
  const { host, network, lines } = await operator(t)
  const body = Buffer.from(JSON.stringify({ contact: host.peer.signer.agentId, level: 'trusted' }))
  const tries = REFUSAL_LINES.burst + 100
  for (let n = 0; n < tries; n++) await assert.rejects(network.client.operate('contact_trust', body, 'no proof'))
  const written = await lines()
  assert.ok(written.length >= REFUSAL_LINES.burst && written.length < tries, `${written.length}`)
  assert.ok(written.every(({ operation, code }) => operation === 'contact_trust' && code === 'operator_proof_required'))
  assert.equal((await verifyJournal([host.journalPath])).ok, true)
})
