import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { lifecycleEvent, type LifecycleFacts } from '../../../src/protocol/events/lifecycle.ts'
import { MAX_PAGE_RUNS } from '../../../src/protocol/limits/page.ts'
import { RUN_RESULTS } from '../../../src/protocol/page-lists.ts'
import { RunIndex, firstWords, keyOfMine } from '../../../src/programs/ui/run-index.ts'

const ts = (second: number): string => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString()
const KEY = { agent_id: 'a'.repeat(64), machine_id: 'b'.repeat(64), request_id: 'r1' }
const REQUEST = { ...KEY, event: 'request', ts: ts(0), argv: ['df', '-h'], matched_acl: 'status', timeout_ms: 30_000, stdin_bytes: 0 }

const event = (type: LifecycleFacts['type'], more: Partial<LifecycleFacts> = {}) =>
  lifecycleEvent({ type, owner: 'x', session: null, door: 'rest', run_id: 'r9', node: 'web1', ...more }, { n: 1, ts: ts(5) })

const onlyOf = (index: RunIndex) => {
  const [run, ...others] = index.list()
  assert.equal(others.length, 0)
  return run!
}

test('a run of another agent gets its rule, limits, warnings and end from the audit log', () => {
  const index = new RunIndex()
  index.takeLogged(REQUEST)
  assert.equal(onlyOf(index).result, 'running')
  index.takeLogged({ ...KEY, event: 'started', pid: 7, containment: 'cgroup' })
  for (let at = 0; at < 3; at++) index.takeLogged({ ...KEY, event: 'warning', kind: 'stdout_cap_hit' })
  index.takeLogged({ ...KEY, event: 'exit', code: 2, signal: null, duration_ms: 12, stdout_bytes: 9, stderr_bytes: 0, truncated: true })
  const { result, code, duration_ms, side, facts } = onlyOf(index)
  assert.deepEqual([result, code, duration_ms, side], ['failed', 2, 12, 'incoming'])
  assert.deepEqual(
    [facts.matched_acl, facts.pid, facts.containment, facts.warnings, facts.truncated, facts.stdout_bytes],
    ['status', 7, 'cgroup', ['stdout_cap_hit'], true, 9],
  )
})

test('two agents may use one request ID, and a denial has its reason and the detail for the operator', () => {
  const index = new RunIndex()
  index.takeLogged(REQUEST)
  index.takeLogged({
    ...KEY,
    agent_id: 'c'.repeat(64),
    event: 'denial',
    ts: ts(1),
    argv: ['id'],
    reason: 'argv_not_allowed',
    detail: 'why',
  })
  const [denied, running] = index.list()
  assert.deepEqual(
    [denied?.result, denied?.reason, denied?.facts.detail, running?.result],
    ['denied', 'argv_not_allowed', 'why', 'running'],
  )
})

test('a requested run gets its result from events, and is unknown without one', () => {
  const index = new RunIndex()
  const asked = { ...KEY, event: 'asked', ts: ts(1), request_id: 'r9', argv: ['id'], stdin_bytes: 0, timeout_ms: null, fanout_id: 'f' }
  index.takeEvent(event('exec.started'))
  index.takeRequested(asked)
  index.takeRequested({ ...asked, argv: ['other'] })
  assert.deepEqual([onlyOf(index).argv, onlyOf(index).result, onlyOf(index).fanout_id], [['id'], 'running', 'f'])
  // The run has left the list of live runs, and no event reported its end.
  index.takeSessions([])
  assert.equal(onlyOf(index).result, 'unknown')
  index.takeEvent(event('exec.finished', { code: 0, duration_ms: 40, tail: 'out' }))
  index.takeEvent(event('exec.started'))
  assert.deepEqual([onlyOf(index).result, onlyOf(index).duration_ms, index.tail(keyOfMine('r9'))?.text], ['ok', 40, 'out'])
})

test('a log line that comes after the end of its run keeps the duration and the session', () => {
  const index = new RunIndex()
  index.takeEvent(event('exec.finished', { code: 0, duration_ms: 40, session: 's1' }))
  index.takeRequested({ ...KEY, event: 'asked', ts: ts(1), request_id: 'r9', argv: ['id'], stdin_bytes: 3, timeout_ms: null })
  const { argv, duration_ms, facts } = onlyOf(index)
  assert.deepEqual([argv, duration_ms, facts.session, facts.stdin_bytes], [['id'], 40, 's1', 3])
})

test('a request that did not arrive counts as failed, and one that its target refused as denied', () => {
  for (const [denial_reason, result] of [
    ['peer_unreachable', 'failed'],
    ['argv_not_allowed', 'denied'],
  ] as const) {
    const index = new RunIndex()
    index.takeEvent(event('exec.denied', { denial_reason }))
    assert.deepEqual([onlyOf(index).result, onlyOf(index).reason], [result, denial_reason])
  }
})

test('many runs of one agent do not evict the run of another, and the index stays bounded', () => {
  const index = new RunIndex()
  index.takeLogged({ ...REQUEST, agent_id: 'c'.repeat(64) })
  for (let at = 0; at < MAX_PAGE_RUNS + 500; at++) index.takeLogged({ ...REQUEST, request_id: `r${at}`, ts: ts(at) })
  assert.equal(index.list().length, MAX_PAGE_RUNS)
  assert.ok(index.isFull)
  assert.ok(index.list().some(({ agent_id }) => agent_id === 'c'.repeat(64)))
})

test('the count of suppressed refusals starts at a given time', () => {
  const index = new RunIndex()
  index.takeLogged({ event: 'refusals_suppressed', to: ts(1), count: 5 })
  index.takeLogged({ event: 'refusals_suppressed', to: ts(9), count: 7 })
  assert.deepEqual([index.suppressedSince(ts(0)), index.suppressedSince(ts(2)), index.suppressedSince(ts(10))], [12, 7, 0])
})

test('a local program refused before its run is listed with its command, but a refused file is not', () => {
  const index = new RunIndex()
  const refused = {
    event: 'refused',
    session_id: 's',
    client_name: 'reviewer',
    door: 'mcp',
    code: 'approval_denied',
    detail: 'no',
    chain: 'c',
  }
  index.takeLogged({ ...refused, ts: ts(1), n: 1, method: 'exec_status', argv: ['touch', 'x'] })
  index.takeLogged({ ...refused, ts: ts(2), n: 2, method: 'exec_status', argv: ['touch', 'x'] })
  index.takeLogged({ ...refused, ts: ts(3), n: 3, method: 'fs.read', argv: null })
  assert.deepEqual(
    index.list().map(({ who, argv, reason }) => [who, argv, reason]),
    [1, 2].map(() => ['reviewer', ['touch', 'x'], 'approval_denied']),
  )
})

test('a long command is cut at a limit, between two words or within one', () => {
  assert.deepEqual(firstWords(['a', 'b'], 10), { argv: ['a', 'b'], argv_cut: false })
  assert.deepEqual(firstWords(['aaaa', 'bbbb'], 6), { argv: ['aaaa', 'b'], argv_cut: true })
  assert.deepEqual(firstWords(['aaaa', 'bbbb'], 5), { argv: ['aaaa'], argv_cut: true })
  fc.assert(
    fc.property(fc.array(fc.string()), fc.integer({ min: 1, max: 40 }), (words, max) => {
      const { argv, argv_cut } = firstWords(words, max)
      assert.ok(argv.join('').length <= max)
      assert.equal(argv_cut, argv.join('\n') !== words.join('\n') || argv.length !== words.length)
    }),
  )
})

test('log lines of any form cause no error, and every run has a known result', () => {
  const value = fc.oneof(
    fc.string(),
    fc.integer(),
    fc.constant(null),
    fc.array(fc.string()),
    fc.boolean(),
    fc.dictionary(fc.string(), fc.string()),
  )
  const name = fc.constantFrom(
    'agent_id',
    'session_id',
    'request_id',
    'argv',
    'code',
    'signal',
    'ts',
    'executable',
    'env',
    'detach',
    'reason',
    'kind',
  )
  const kind = fc.constantFrom(
    'request',
    'started',
    'warning',
    'exit',
    'denial',
    'refused',
    'lost',
    'refusals_suppressed',
    'asked',
    'other',
  )
  const line = fc.tuple(kind, fc.dictionary(name, value)).map(([of, fields]) => ({ ...fields, event: of }))
  fc.assert(
    fc.property(fc.array(line, { maxLength: 20 }), (lines) => {
      const index = new RunIndex()
      for (const one of lines) {
        index.takeLogged(one)
        index.takeRequested(one)
      }
      for (const run of index.list()) assert.ok(RUN_RESULTS.includes(run.result) && Array.isArray(run.argv))
    }),
  )
})
