import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ANSWER_FRESH_MS, openApproval, sealAnswer, SpentAnswers } from '../../../src/policy/approval/approval.ts'
import type { Approval, ApprovalRequest } from '../../../src/policy/approval/approval.ts'
import { countStatements, type AgentsApproval } from '../../../src/policy/approval/statements.ts'
import { scrubbedEnvironment } from '../../../src/policy/environment.ts'
import type { Acl } from '../../../src/policy/mesh/acl.ts'
import { authorize, type Verdict } from '../../../src/policy/mesh/authorize.ts'
import { compareAcl } from '../../../src/policy/mesh/compare-acl.ts'
import { explain, explanationText } from '../../../src/policy/mesh/explain.ts'
import { Slots } from '../../../src/policy/slots.ts'
import { aclOf, aclText, ALICE, alice, asking, commandText, entryText, LAPTOP, MALLORY, readText } from '../../support/acl-text.ts'

const KEY = Buffer.alloc(32, 1)
const pattern = (argv: readonly string[]): string => `[[exec.allow.ask_patterns]]\nargv = ${JSON.stringify(argv)}\n`
const entry = (keys: string, ...rest: string[]): string =>
  `[[exec.allow]]\ndescription = "alice"\nagent_id = "${ALICE}"\nmachine_id = "${LAPTOP}"\n${keys}\n${rest.join('')}`
const file = (...entries: string[]): Acl => aclOf(aclText(entries))

const allowed = ({ permit_sha256 }: Pick<ApprovalRequest, 'permit_sha256'>): Approval => {
  const answer = { question_id: 'q_1', permit_sha256, by: 'human:test', reason: '', nonce: 'n', expires_at_ms: ANSWER_FRESH_MS }
  const opened = openApproval(sealAnswer({ ...answer, decision: 'allow' }, KEY), answer, { key: KEY, now: 1, spent: new SpentAnswers() })
  assert.ok(opened.kind === 'approval')
  return opened.approval
}
const decide = (
  acl: Acl,
  argv: readonly string[],
  more: { slots?: Slots; approval?: Approval; agents?: AgentsApproval | null; intent?: object; who?: typeof alice } = {},
): Verdict =>
  authorize(
    asking(argv, more.intent ?? {}),
    more.who ?? alice,
    { acl, slots: more.slots ?? new Slots(acl.caps), env: scrubbedEnvironment('/') },
    more.approval ?? null,
    more.agents ?? null,
  )
const questionOf = (verdict: Verdict): ApprovalRequest => {
  assert.ok(verdict.kind === 'ask', verdict.kind)
  return verdict.question
}
const saidOf = (verdict: Verdict): string => (verdict.kind === 'denied' ? verdict.reason : verdict.kind)

test('ask = "always" asks for each listed command, and only an allowed command takes a slot', () => {
  const acl = file(entry('ask = "always"', commandText(['true'])))
  const slots = new Slots(acl.caps)
  const question = questionOf(decide(acl, ['true'], { slots }))
  assert.deepEqual([question.ask, question.door, question.ask_fallback, slots.active], ['always', 'mesh', 'deny', 0])
  assert.equal(saidOf(decide(acl, ['true'], { slots, approval: allowed(question) })), 'permit')
  assert.equal(slots.active, 1)
  assert.equal(saidOf(decide(acl, ['echo'])), 'argv_not_allowed')
})

test('ask = "on-miss" asks for commands that only a pattern matches, and runs listed commands directly', () => {
  const acl = file(entry('ask = "on-miss"', commandText(['true']), pattern(['echo', '<INT>', '<ANY...>'])))
  assert.equal(saidOf(decide(acl, ['true'])), 'permit')
  for (const argv of [
    ['echo', '1'],
    ['echo', '2', 'x', '-y'],
  ])
    assert.equal(questionOf(decide(acl, argv)).ask, 'on-miss')
  for (const argv of [['echo'], ['echo', 'x'], ['false', '1']]) assert.equal(saidOf(decide(acl, argv)), 'argv_not_allowed')
  assert.equal(saidOf(decide(acl, ['echo', '1', '$(x)'])), 'shell_metachar_in_argv')
})

test('an approval allows no command, requester or change that the ACL does not allow', () => {
  const acl = file(entry('ask = "always"', commandText(['true']), commandText(['echo', '<INT>'])))
  const question = questionOf(decide(acl, ['echo', '1']))
  for (const [argv, more, reason] of [
    [['echo', '2'], {}, 'approval_mismatch'],
    [['true'], {}, 'approval_mismatch'],
    [['echo', 'x'], {}, 'argv_not_allowed'],
    [['echo', '1'], { intent: { stdin_len: 1 } }, 'approval_mismatch'],
    [['echo', '1'], { intent: { timeout_ms: 1 } }, 'approval_mismatch'],
    [['echo', '1'], { intent: { cwd: '/' } }, 'cwd_not_allowed'],
    [['echo', '1'], { who: { ...alice, trust: 'reject_revoked' as const } }, 'trust_rejected'],
    [['echo', '1'], { who: { ...alice, agent_id: MALLORY } }, 'agent_machine_not_in_acl'],
  ] as const)
    assert.equal(saidOf(decide(acl, argv, { ...more, approval: allowed(question) })), reason, JSON.stringify(argv))
  const full = new Slots({ max_concurrent_per_agent: 1, max_concurrent_total: 1 })
  full.reserve(ALICE)
  assert.equal(saidOf(decide(acl, ['echo', '1'], { slots: full, approval: allowed(question) })), 'concurrency_limit_reached')
  const approval = allowed(question)
  assert.equal(saidOf(decide(acl, ['echo', '1'], { approval })), 'permit')
  assert.equal(saidOf(decide(acl, ['echo', '1'], { approval })), 'approval_mismatch')
})

test('with always_ask rules, listed commands of opaque programs ask and may get a grant, and transparent ones run', () => {
  const rules = 'always_ask = [{ argv = ["git", "push"], reason = "it publishes" }]'
  const listed = [
    ['/bin/sh', '/etc/profile'],
    ['env', 'true'],
    ['/usr/bin/sort', '/etc/hostname'],
  ]
  const acl = (keys: string): Acl => aclOf(aclText([entry('', ...[...listed, ['uptime']].map((argv) => commandText(argv)))], keys))
  for (const argv of listed) {
    assert.equal(saidOf(decide(acl(''), argv)), 'permit', argv.join(' '))
    const question = questionOf(decide(acl(rules), argv))
    assert.match(question.opaque ?? '', /may start other programs/)
    assert.match(question.always_ask ?? '', /so it may run a command that always asks$/)
    assert.notEqual(question.grant_sha256, null)
    assert.equal(saidOf(decide(acl(rules), argv, { approval: allowed(question) })), 'permit')
    const { asks } = explain({ acl: acl(rules), agent_id: ALICE, machine_id: LAPTOP, argv })
    assert.deepEqual([asks?.human, asks?.may_last], [true, true])
  }
  assert.equal(saidOf(decide(acl(rules), ['uptime'])), 'permit')
})

test('a command of an always_ask rule always asks, even through a wrapper, and cannot get a grant', () => {
  const rule = 'always_ask = [{ argv = ["echo", "<ANY...>"], reason = "it speaks" }]'
  const acl = aclOf(aclText([entryText([['echo', '1'], ['env', 'echo', '1'], ['true']])], rule))
  for (const argv of [
    ['echo', '1'],
    ['env', 'echo', '1'],
  ]) {
    const question = questionOf(decide(acl, argv))
    assert.deepEqual([question.always_ask, question.grant_sha256], ['it speaks', null])
  }
  assert.equal(saidOf(decide(acl, ['true'])), 'permit')
})

test('an entry with approvers needs their approval, and an approval of the operator does not replace it', () => {
  const approvers = `approvers = [{ agent_id = "${MALLORY}" }]`
  const alone = file(entry(approvers, commandText(['true'])))
  const question = questionOf(decide(alone, ['true']))
  assert.deepEqual([question.ask, question.approvers], ['off', { agent_ids: [MALLORY], needed: 1 }])
  assert.equal(saidOf(decide(alone, ['true'], { approval: allowed(question) })), 'approval_mismatch')
  const both = file(entry(`ask = "always"\n${approvers}`, commandText(['true'])))
  assert.equal(saidOf(decide(both, ['true'], { approval: allowed(questionOf(decide(both, ['true']))) })), 'approval_mismatch')
})

test('an approval of too few agents, or of agents that a narrower ACL does not name, is refused', () => {
  const [carol, dave] = ['c'.repeat(64), 'd'.repeat(64)]
  const needing = (needed: number, ...agents: string[]): Acl =>
    file(entry(`approvers = [${agents.map((id) => `{ agent_id = "${id}" }`)}]\napprovals_needed = ${needed}`, commandText(['true'])))
  const asked = needing(1, carol, dave)
  const { permit_sha256, approvers } = questionOf(decide(asked, ['true']))
  assert.ok(approvers !== null)
  const word = (): AgentsApproval | null =>
    countStatements([{ agent_id: carol, decision: 'allow', permit_sha256 }], {
      request_sha256: Buffer.alloc(32),
      permit_sha256,
      target: { agentId: MALLORY, machineId: LAPTOP },
      requester: ALICE,
      approvers: approvers.agent_ids,
      needed: approvers.needed,
      expires_at_ms: 1,
    })
  for (const [acl, said] of [
    [asked, 'permit'],
    [needing(1, carol), 'permit'],
    [needing(1, dave), 'approval_mismatch'],
    [needing(2, carol, dave), 'approval_mismatch'],
  ] as const) {
    assert.notEqual(compareAcl(asked, acl).verdict, 'widens')
    assert.equal(saidOf(decide(acl, ['true'], { agents: word() })), said)
  }
})

test('the keys for approvals are read strictly, and each problem names its line', () => {
  const problems = (keys: string, ...rest: string[]): string => readText(aclText([entry(keys, ...rest)])).problems.join('\n')
  const listed = commandText(['true'])
  for (const [keys, rest, problem] of [
    ['ask = "off"', [listed], /acl\.toml:\d+: exec\.allow\[0\]\.ask: must be "always" or "on-miss"/],
    ['ask = true', [listed], /\.ask: must be "always" or "on-miss"/],
    ['ask = "on-miss"', [listed], /\.ask: is "on-miss", but the entry has no ask_patterns/],
    ['', [listed, pattern(['x'])], /\.ask_patterns: has no effect without ask/],
    ['ask = "always"', [pattern(['<ANY...>'])], /must be after the program/],
    ['ask = "always"', [pattern(['x', '<ANY...>', 'y'])], /must be the last token/],
    ['ask = "always"', [], /\.commands: has no command/],
    ['approvals_needed = 1', [listed], /\.approvals_needed: is given, and the entry has no approvers/],
    ['approvers = []', [listed], /\.approvers: must be a list of at least one/],
    [`approvers = [{ agent_id = "${ALICE}" }]`, [listed], /is the agent of this entry, which cannot approve/],
    [`approvers = [{ agent_id = "${MALLORY}" }, { agent_id = "${MALLORY}" }]`, [listed], /is listed twice/],
    [`approvers = [{ agent_id = "${MALLORY}" }]\napprovals_needed = 2`, [listed], /is 2, above the number of approvers \(1\)/],
    [`approvers = [{ agent_id = "${MALLORY}", name = "x" }]`, [listed], /name: unknown key; known keys: agent_id/],
    ['approvers = ["x"]', [listed], /must be a table/],
  ] as const)
    assert.match(problems(keys, ...rest), problem, keys)
  assert.equal(problems('ask = "on-miss"', pattern(['echo', '<ANY...>'])), '')
})

test('explain shows who must approve a command, and that the ACL alone does not allow it', () => {
  const acl = file(entry(`ask = "on-miss"\napprovers = [{ agent_id = "${MALLORY}" }]`, pattern(['echo', '<ANY...>'])))
  const explanation = explain({ acl, agent_id: ALICE, machine_id: LAPTOP, argv: ['echo', 'x'] })
  assert.deepEqual(
    [explanation.allowed, explanation.reason, explanation.asks?.human, explanation.asks?.approvals_needed],
    [false, null, true, 1],
  )
  assert.deepEqual([explanation.matched?.pattern, explanation.matched?.command], [true, 0])
  assert.equal(explanation.gates.at(-1)?.result, 'ask')
  assert.match(explanationText(explanation, ['echo', 'x']), /^asks {5}\["echo", "x"\]\nwhy {6}no command of the ACL lists it/)
})
