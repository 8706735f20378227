import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import { RULES_REFRESH_MS, TargetRules } from '../../../src/doors/tools/target-rules.ts'
import type { RulesJson } from '../../../src/protocol/api/rules.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const answerOf = (...argvs: readonly (readonly string[])[]): RulesJson => ({
  ok: true,
  request_id: '0192d3a0-0000-7000-8000-000000000001',
  agent_id: 'a1'.repeat(32),
  machine_id: 'b2'.repeat(32),
  denial_reason: null,
  rules: argvs.map((argv) => ({
    description: null,
    argv: [...argv],
    timeout_ms: 1,
    max_stdout_bytes: 1,
    max_stderr_bytes: 1,
    max_stdin_bytes: 0,
    detach: null,
    terminal: false,
    record: false,
    watch: false,
  })),
  left_out: 2,
})

const rulesWith = (ask: (signal: AbortSignal) => Promise<RulesJson>) => {
  const clock = new ManualClock()
  const asked = { count: 0, changes: 0 }
  const counted = async (signal: AbortSignal): Promise<RulesJson> => {
    asked.count += 1
    return ask(signal)
  }
  const rules = new TargetRules({ ask: counted, clock }, { target: 'bob', reserved: [] })
  rules.onChanged(() => (asked.changes += 1))
  return { rules, clock, asked }
}

const namesOf = ({ known }: TargetRules): string[] => known.commands.map(({ name }) => name)

test('simultaneous refreshes send one request, and the next request waits for the refresh interval', async () => {
  const { rules, clock, asked } = rulesWith(async () => answerOf(['true']))
  assert.equal(rules.known.problem, 'the target has not answered yet')
  assert.deepEqual(await Promise.all([rules.refresh(), rules.refresh()]), [true, true])
  assert.equal(await rules.refresh(), false)
  assert.deepEqual([asked.count, asked.changes, namesOf(rules), rules.known.left_out, rules.known.problem], [1, 1, ['bob_true'], 2, null])
  await clock.advance(RULES_REFRESH_MS)
  assert.equal(await rules.refresh(), false)
  assert.deepEqual([asked.count, asked.changes], [2, 1])
})

test('a listener is notified of changes until it unsubscribes', async () => {
  const answers = [answerOf(['true']), answerOf(['true'], ['false']), answerOf()]
  const { rules, clock, asked } = rulesWith(async () => answers.shift()!)
  let heard = 0
  const stop = rules.onChanged(() => (heard += 1))
  for (const names of [['bob_true'], ['bob_true', 'bob_false'], []]) {
    assert.equal(await rules.refresh(), true)
    assert.deepEqual(namesOf(rules), names)
    await clock.advance(RULES_REFRESH_MS)
    if (names.length === 2) stop()
  }
  assert.deepEqual([heard, asked.changes], [2, 3])
})

test('a failed or invalid answer keeps the known rules and records the problem', async () => {
  const answers: (() => RulesJson)[] = [
    () => answerOf(['true']),
    () => {
      throw new AppError('peer_unreachable', 'nobody there')
    },
    () => ({ ...answerOf(), ok: false, denial_reason: 'trust_rejected' }),
    () => answerOf(['sh', '<ANY>']),
  ]
  const { rules, clock } = rulesWith(async () => answers.shift()!())
  await rules.refresh()
  for (const problem of [/nobody there/, /does not say which commands it allows: trust_rejected/, /unknown template/]) {
    await clock.advance(RULES_REFRESH_MS)
    assert.equal(await rules.refresh(), false)
    assert.match(rules.known.problem ?? '', problem)
    assert.deepEqual(namesOf(rules), ['bob_true'])
  }
})

test('a request without an answer is abandoned after 25 s', async () => {
  const never = async (signal: AbortSignal): Promise<RulesJson> =>
    new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))
  const { rules, clock, asked } = rulesWith(never)
  const first = rules.refresh()
  await clock.advance(25_000)
  assert.equal(await first, false)
  assert.match(rules.known.problem ?? '', /did not answer/)
  assert.equal(asked.count, 1)
})

test('file rules do not become tools', async () => {
  const { rules } = rulesWith(async () => answerOf(['uptime'], ['@read', '/srv/app/'], ['@write', '/srv/app/']))
  await rules.refresh()
  assert.deepEqual(namesOf(rules), ['bob_uptime'])
})
