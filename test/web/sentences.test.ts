import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { JOURNAL_EVENTS } from '../../src/journal/events.ts'
import type { Fields } from '../../src/protocol/json-table.ts'
import { sentenceOf } from '../../src/web/audit/sentences.ts'

const nameOf = (id: string): string => ({ a1: 'alice', b2: 'bob' })[id] ?? id.slice(0, 8)

const said = (...lines: readonly Fields[]): string =>
  sentenceOf(lines, nameOf)
    .parts.map((part) => (typeof part === 'string' ? part : 'argv' in part ? part.argv.join(' ') : part.foreign))
    .join('')

const request = { event: 'request', agent_id: 'a1', request_id: 'r', argv: ['df', '-h'] }

test('the audit log lines of a run become one sentence, from the request to the end', () => {
  const started = { ...request, event: 'started', pid: 1 }
  const exit = (more: Fields): Fields => ({
    ...request,
    event: 'exit',
    code: null,
    signal: null,
    duration_ms: 12,
    truncated: false,
    ...more,
  })
  assert.equal(said(request, started), 'alice runs df -h on this machine')
  assert.equal(said(request, started, exit({ code: 0 })), 'alice ran df -h on this machine: exit 0 in 12 ms')
  assert.equal(
    said(request, exit({ signal: 9, truncated: true })),
    'alice ran df -h on this machine: SIGKILL in 12 ms, output cut at a limit',
  )
  assert.equal(said(request, { ...request, event: 'lost' }), 'alice ran df -h on this machine: lost, because the daemon died')
  const denial = { ...request, event: 'denial', reason: 'argv_not_allowed' }
  assert.equal(said(denial), 'alice could not run df -h on this machine: argv_not_allowed')
  const local = { event: 'request', client_name: 'reviewer', session_id: 's', target: 'b2', argv: ['id'] }
  assert.equal(said(local), 'reviewer may run id on bob')
  assert.equal(sentenceOf([request, exit({ code: 1 })], nameOf).tone, 'bad')
})

test('requests to other agents, approvals and trust changes become sentences', () => {
  assert.equal(said({ event: 'asked', agent_id: 'b2', argv: ['id'], fanout_id: 'f' }), 'This agent asked bob to run id, in a fan-out')
  const question = { event: 'question', asker: 'a1', argv: ['id'], target: null }
  assert.equal(said(question), 'alice asked to run id on this machine: no decision yet')
  const approval = { event: 'approval', outcome: 'allowed', by: 'human:x0x ui', count: 1 }
  assert.equal(said(question, approval), 'alice asked to run id on this machine: allowed by human:x0x ui')
  const trust = { event: 'authority', operation: 'contact_trust', agent: 'b2', machine: null, level: 'blocked', code: null, detail: null }
  assert.equal(said(trust), 'The operator changed the trust of bob to blocked')
  assert.equal(
    said({ ...trust, code: 'operator_proof_required' }),
    'A client tried contact_trust without a valid proof: operator_proof_required',
  )
  assert.equal(said({ event: 'refusals_suppressed', count: 7 }), '7 refusals were counted without a line')
})

test('every event has its own sentence, and every malformed line has a sentence', () => {
  for (const event of JOURNAL_EVENTS) assert.notEqual(said({ event }), event, event)
  const value = fc.oneof(fc.string(), fc.integer(), fc.constant(null), fc.array(fc.string()), fc.boolean())
  const name = fc.constantFrom(
    'argv',
    'agent_id',
    'target',
    'by',
    'code',
    'detail',
    'outcome',
    'operation',
    'agent',
    'reason',
    'level',
    'count',
  )
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.constantFrom(...JOURNAL_EVENTS, 'other'), fc.dictionary(name, value)), { minLength: 1, maxLength: 4 }),
      (lines) => {
        assert.ok(said(...lines.map(([event, fields]) => ({ ...fields, event }))).length > 0)
      },
    ),
  )
})
