import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { judge, judgeFallback, type StoredAgent, type StoreSnapshot } from '../../../src/policy/approval/judge.ts'
import type { ApprovalRequest } from '../../../src/policy/approval/approval.ts'
import { ASK_FALLBACKS, ASKS, SECURITIES } from '../../../src/protocol/desk/approval-request.ts'
import { GRANT_SHA, meshQuestionOf, questionOf, storeOf } from '../../support/questions.ts'

const NOW = 1_000
const row = (fields: Partial<StoredAgent> = {}): StoredAgent => ({
  security: null,
  ask: null,
  ask_fallback: null,
  allowlist: [],
  ...fields,
})
const listing = (...patterns: string[]): StoredAgent => row({ allowlist: patterns.map((pattern) => ({ pattern })) })
const granting = (fields: Partial<StoreSnapshot['grants'][number]> = {}): StoreSnapshot['grants'] => [
  {
    id: 'g_1',
    grant_sha256: GRANT_SHA,
    timeout_ms: 30_000,
    max_output_bytes: 1_048_576,
    created_at_ms: 0,
    expires_at_ms: NOW + 1,
    uses_left: null,
    ...fields,
  },
]
const said = (question: ApprovalRequest, store: StoreSnapshot): string => {
  const judgement = judge(question, store, NOW)
  return judgement.kind === 'allow' ? judgement.by : judgement.kind
}
const fallen = (question: ApprovalRequest, store: StoreSnapshot): string => {
  const judgement = judgeFallback(question, store, NOW)
  return judgement.kind === 'allow' ? judgement.by : judgement.kind
}

test('security and ask decide independently of each other (O2 O3)', () => {
  const agents = { coder: listing('/usr/bin/git') }
  const table = SECURITIES.map((security) => ASKS.map((ask) => said(questionOf({ security, ask }), storeOf({ agents }))))
  assert.deepEqual(table, [
    ['deny', 'deny', 'deny'],
    ['ask', 'allowlist:/usr/bin/git', 'allowlist:/usr/bin/git'],
    ['ask', 'mode:full', 'mode:full'],
  ])
  const misses = SECURITIES.map((security) => ASKS.map((ask) => said(questionOf({ security, ask }), storeOf())))
  assert.deepEqual(misses, [
    ['deny', 'deny', 'deny'],
    ['ask', 'ask', 'deny'],
    ['ask', 'mode:full', 'mode:full'],
  ])
})

test('the stricter setting of the request and the store applies, by agent or by default', () => {
  const full = questionOf({ security: 'full', ask: 'off' })
  const strict = storeOf({ defaults: { security: 'deny', ask: 'always', ask_fallback: 'deny' } })
  assert.equal(said(full, strict), 'deny')
  assert.equal(said(full, { ...strict, agents: { coder: row({ security: 'full' }) } }), 'ask')
  assert.equal(said(full, { ...strict, agents: { coder: row({ security: 'full', ask: 'off' }) } }), 'mode:full')
  assert.equal(said(questionOf({ security: 'deny' }), storeOf()), 'deny')
  assert.equal(said(full, storeOf({ agents: { coder: row({ ask: 'always' }) } })), 'ask')
  assert.equal(said(full, storeOf({ agents: { toString: row({ security: 'deny' }) } })), 'mode:full')
  assert.equal(said(questionOf({ ...full, asker: { kind: 'local', label: 'constructor' } }), storeOf()), 'mode:full')
})

test('a command of an always-ask rule always asks an approver, despite grants, lists and fallbacks', () => {
  const agents = { coder: listing('/**') }
  const store = storeOf({ agents, grants: granting() })
  for (const security of ['allowlist', 'full'] as const)
    for (const ask of ASKS) {
      const question = questionOf({ security, ask, ask_fallback: 'full', always_ask: 'it publishes' })
      assert.equal(said(question, store), 'ask')
      assert.equal(fallen(question, store), 'deny')
    }
  assert.equal(said(questionOf({ ask: 'always' }), store), 'ask')
})

test('a grant allows only its exact command, until it expires or its uses are spent', () => {
  assert.equal(said(questionOf(), storeOf({ grants: granting() })), 'grant:g_1')
  assert.equal(said(questionOf(), storeOf({ grants: granting({ uses_left: 1 }) })), 'grant:g_1')
  // The limits of a grant are upper bounds. An old grant without limits does not count.
  assert.equal(said(questionOf({ timeout_ms: 1, max_output_bytes: 1 }), storeOf({ grants: granting() })), 'grant:g_1')
  assert.equal(said(questionOf({ timeout_ms: 30_001 }), storeOf({ grants: granting() })), 'ask')
  assert.equal(said(questionOf({ max_output_bytes: 1_048_577 }), storeOf({ grants: granting() })), 'ask')
  const none = [{ timeout_ms: undefined }, { max_output_bytes: undefined }]
  for (const fields of [{ expires_at_ms: NOW }, { uses_left: 0 }, { grant_sha256: 'e'.repeat(64) }, ...none])
    assert.equal(said(questionOf(), storeOf({ grants: granting(fields) })), 'ask', JSON.stringify(fields))
  assert.equal(said(questionOf({ grant_sha256: null }), storeOf({ grants: granting() })), 'ask')
})

test('an opaque interpreter is on no allowlist, and without asking it is denied (B11)', () => {
  const agents = { coder: listing('/usr/bin/zsh', '/usr/bin/*', '/**') }
  const opaque = questionOf({
    argv: ['zsh', '-c', 'id'],
    programs: ['/usr/bin/zsh'],
    opaque: 'zsh runs what it is given',
    grant_sha256: null,
  })
  assert.equal(said(opaque, storeOf({ agents, grants: granting() })), 'ask')
  assert.equal(said({ ...opaque, ask: 'off' }, storeOf({ agents })), 'deny')
})

test('an allowlist allows a wrapper only with each program that it starts (B8 B10)', () => {
  const question = questionOf({ argv: ['env', 'git', 'push'], programs: ['/usr/bin/env', '/usr/bin/git'] })
  assert.equal(said(question, storeOf({ agents: { coder: listing('/usr/bin/env') } })), 'ask')
  assert.equal(said(question, storeOf({ agents: { coder: listing('/usr/bin/git') } })), 'ask')
  assert.equal(said(question, storeOf({ agents: { coder: listing('/usr/bin/env', '/usr/bin/gi*') } })), 'allowlist:/usr/bin/env')
  assert.equal(said(questionOf({ programs: [] }), storeOf({ agents: { coder: listing('/**') } })), 'ask')
})

test('a pattern covers opaque commands only if its row says so, and patterns for whole directories never count', () => {
  const opaque = 'git may start other programs'
  const rows = (...allowlist: StoredAgent['allowlist']) => storeOf({ agents: { coder: row({ allowlist }) } })
  const plain = rows({ pattern: '/usr/bin/git' })
  const known = rows({ pattern: '/usr/bin/git', opaque: true })
  assert.equal(said(questionOf(), plain), 'allowlist:/usr/bin/git')
  assert.equal(said(questionOf({ opaque }), plain), 'ask')
  assert.equal(said(questionOf({ opaque }), known), 'allowlist:/usr/bin/git')
  assert.equal(fallen(questionOf({ opaque, ask_fallback: 'allowlist' }), plain), 'deny')
  // Each program of the command needs such a row.
  const script = questionOf({ opaque, programs: ['/usr/bin/git', '/srv/x.sh'] })
  assert.equal(said(script, known), 'ask')
  assert.equal(said(script, rows({ pattern: '/usr/bin/git', opaque: true }, { pattern: '/srv/x.sh' })), 'ask')
  for (const pattern of ['/**', '/*/**', '/usr/bin/*', '/usr/bin/?*', '/usr/bin/**', '/usr/**/*', '/usr/bin/???', '/usr/bin/*.*'])
    for (const question of [questionOf(), questionOf({ opaque })])
      assert.equal(said(question, rows({ pattern, opaque: true })), 'ask', pattern)
})

test('a command that may run an always-ask command needs a grant, which lasts at most a day', () => {
  const [opaque, always_ask] = ['make may start other programs', 'make may start what the list has']
  const DAY = 24 * 3_600_000
  const agents = { coder: row({ security: 'full', ask: 'off', allowlist: [{ pattern: '/usr/bin/git', opaque: true }] }) }
  for (const security of ['allowlist', 'full'] as const) {
    const question = questionOf({ security, ask: 'off', ask_fallback: 'full', opaque, always_ask })
    assert.equal(said(question, storeOf({ agents })), 'ask')
    assert.equal(fallen(question, storeOf({ agents })), 'deny')
    const judged = judge(question, storeOf({ agents }), NOW)
    assert.ok(judged.kind === 'ask' && judged.mayLast)
    assert.equal(said(question, storeOf({ agents, grants: granting() })), 'grant:g_1')
    // A command that a rule names has no grant digest.
    assert.equal(said({ ...question, grant_sha256: null }, storeOf({ agents, grants: granting() })), 'ask')
    assert.equal(said({ ...question, ask: 'always' }, storeOf({ agents, grants: granting() })), 'ask')
  }
  // A grant of a release that allowed longer times ends after a day.
  for (const [created_at_ms, verdict] of [
    [NOW - DAY + 1, 'grant:g_1'],
    [NOW - DAY, 'ask'],
  ] as const) {
    const grants = granting({ created_at_ms, expires_at_ms: NOW + 30 * DAY })
    assert.equal(said(questionOf({ opaque }), storeOf({ grants })), verdict)
    assert.equal(said(questionOf(), storeOf({ grants })), 'grant:g_1')
  }
})

test('a label that the client chose can narrow permissions but not widen them (B27)', () => {
  const agents = { coder: { ...listing('/**'), security: 'full' as const, ask: 'off' as const }, timid: row({ security: 'deny' }) }
  const store = storeOf({ defaults: { security: 'allowlist', ask: 'on-miss', ask_fallback: 'deny' }, agents })
  const question = questionOf({ security: 'full', ask: 'off' })
  assert.equal(said(question, store), 'mode:full')
  for (const door of ['stdio', 'http', 'websocket', 'console'] as const) {
    assert.equal(said({ ...question, door }, store), 'ask', door)
    assert.equal(said({ ...question, door, asker: { kind: 'local', label: 'timid' } }, store), 'deny')
    assert.equal(said({ ...question, door }, { ...store, agents: { ...agents, main: listing('/usr/bin/git') } }), 'allowlist:/usr/bin/git')
  }
})

test('a run with ask = always is denied without an approver, with any fallback', () => {
  const defaults = { security: 'full', ask: 'off', ask_fallback: 'full' } as const
  const agents = { coder: listing('/usr/bin/git') }
  for (const ask_fallback of ASK_FALLBACKS)
    assert.equal(fallen(questionOf({ ask: 'always', ask_fallback }), storeOf({ agents, defaults })), 'deny')
  const row = { coder: { ...listing('/usr/bin/git'), ask: 'always' } as const }
  assert.equal(fallen(questionOf({ ask: 'off', ask_fallback: 'full' }), storeOf({ agents: row, defaults })), 'deny')
})

test('without an approver the stricter fallback of request and store decides, by default deny (B20 O9)', () => {
  const agents = { coder: listing('/usr/bin/git') }
  const table = ASK_FALLBACKS.map((own) =>
    ASK_FALLBACKS.map((stored) =>
      fallen(
        questionOf({ ask: 'on-miss', ask_fallback: own }),
        storeOf({ agents, defaults: { security: 'full', ask: 'off', ask_fallback: stored } }),
      ),
    ),
  )
  const list = 'allowlist:/usr/bin/git'
  assert.deepEqual(table, [
    ['deny', 'deny', 'deny'],
    ['deny', list, list],
    ['deny', list, 'fallback:full'],
  ])
  assert.equal(fallen(questionOf({ ask_fallback: 'allowlist', programs: ['/bin/rm'] }), storeOf({ agents })), 'deny')
  assert.equal(fallen(questionOf({ security: 'deny', ask_fallback: 'full' }), storeOf({ agents })), 'deny')
})

test('the stricter fallback of a row applies, also for a label that the client chose', () => {
  const defaults = { security: 'full', ask: 'off', ask_fallback: 'full' } as const
  for (const ask_fallback of ASK_FALLBACKS)
    for (const [door, label, rows] of [
      ['mcp', 'coder', { coder: row({ ask_fallback }) }],
      ['stdio', 'coder', { coder: row({ ask_fallback }) }],
      ['stdio', 'other', { main: row({ ask_fallback }) }],
    ] as const) {
      const question = questionOf({ door, asker: { kind: 'local', label }, ask: 'on-miss', ask_fallback: 'full' })
      assert.equal(fallen(question, storeOf({ agents: rows, defaults })) === 'fallback:full', ask_fallback === 'full', `${door} ${label}`)
      const none = { ...defaults, ask_fallback: 'deny' } as const
      assert.equal(fallen(question, storeOf({ agents: rows, defaults: none })), 'deny')
    }
})

test('only a grant or an approver allows a mesh request, never a pattern, default or fallback', () => {
  const agents = { ['c'.repeat(64)]: listing('/**'), main: listing('/**') }
  const strict = { security: 'deny', ask: 'always', ask_fallback: 'deny' } as const
  assert.equal(said(meshQuestionOf(), storeOf({ agents })), 'ask')
  assert.equal(said(meshQuestionOf(), storeOf({ agents, grants: granting(), defaults: strict })), 'grant:g_1')
  assert.equal(said(meshQuestionOf({ ask: 'always' }), storeOf({ grants: granting() })), 'ask')
  assert.equal(said(meshQuestionOf({ ask: 'off' }), storeOf()), 'ask')
  assert.equal(said(meshQuestionOf({ security: 'full' }), storeOf()), 'ask')
  assert.equal(said(meshQuestionOf(), storeOf({ agents: { ['c'.repeat(64)]: row({ security: 'deny' }) }, grants: granting() })), 'deny')
  assert.equal(fallen(meshQuestionOf({ ask_fallback: 'full' }), storeOf({ grants: granting() })), 'deny')
  assert.equal(fallen(questionOf({ ask_fallback: 'full', approvers: { agent_ids: ['c'.repeat(64)], needed: 1 } }), storeOf()), 'deny')
})

test('property: a stricter setting never allows a run that a wider one does not', () => {
  const level = <T>(order: readonly T[]): fc.Arbitrary<T> => fc.constantFrom(...order)
  fc.assert(
    fc.property(
      level(SECURITIES),
      level(ASKS),
      level(SECURITIES),
      level(ASKS),
      fc.boolean(),
      fc.boolean(),
      level(SECURITIES),
      level(ASKS),
      (security, ask, stored, storedAsk, isListed, hasGrant, narrower, narrowerAsk) => {
        const store = (security_: typeof stored, ask_: typeof storedAsk): StoreSnapshot =>
          storeOf({
            defaults: { security: security_, ask: ask_, ask_fallback: 'deny' },
            agents: { coder: isListed ? listing('/usr/bin/git') : row() },
            grants: hasGrant ? granting() : [],
          })
        const stricter = <T>(order: readonly T[], one: T, other: T): T => order[Math.min(order.indexOf(one), order.indexOf(other))]!
        // A stricter `ask` may turn a denial into a question, but never into a permit.
        const wide = judge(questionOf({ security, ask }), store(stored, storedAsk), NOW).kind
        const narrow = judge(
          questionOf({ security: stricter(SECURITIES, security, narrower), ask: stricter(ASKS, ask, narrowerAsk) }),
          store(stored, storedAsk),
          NOW,
        ).kind
        assert.ok(narrow !== 'allow' || wide === 'allow')
        const host = judge(
          questionOf({ security, ask }),
          store(stricter(SECURITIES, stored, narrower), stricter(ASKS, storedAsk, narrowerAsk)),
          NOW,
        ).kind
        assert.ok(host !== 'allow' || wide === 'allow')
      },
    ),
    { seed: 20_260_502, numRuns: 3_000 },
  )
})

test('the row of the asking host applies, and the row of its requester can only narrow', () => {
  const [host, named] = ['e'.repeat(64), 'c'.repeat(64)]
  const asked = meshQuestionOf({ ask: 'always', security: 'full', target: { host: 'node', agent_id: host } })
  assert.equal(said(asked, storeOf()), 'ask')
  assert.equal(said(asked, storeOf({ agents: { [host]: row({ security: 'deny' }), [named]: row({ security: 'full' }) } })), 'deny')
  assert.equal(said(asked, storeOf({ agents: { [host]: row({ security: 'full' }), [named]: row({ security: 'deny' }) } })), 'deny')
})
