import assert from 'node:assert/strict'
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { test, type TestContext } from 'node:test'

import { judge } from '../../../src/policy/approval/judge.ts'
import { ANSWER_FRESH_MS, openApproval, sealAnswer, SpentAnswers } from '../../../src/policy/approval/approval.ts'
import type { Approval, ApprovalRequest } from '../../../src/policy/approval/approval.ts'
import { authorizeLocalRun } from '../../../src/policy/local/authorize.ts'
import type { LocalRunIntent } from '../../../src/policy/local/intent.ts'
import type { ExecInForce } from '../../../src/policy/local/local-asking.ts'
import { changedPin } from '../../../src/policy/file-mark.ts'
import { ASKING, policyOf, rightsOf, slotsOf } from '../../support/local-policy.ts'
import { tempDir } from '../../support/temp-dir.ts'

const KEY = Buffer.alloc(32, 1)
const FORCE: ExecInForce = {
  host: 'gateway',
  security: 'allowlist',
  ask: 'on-miss',
  ask_fallback: 'deny',
  door: 'mcp',
  label: 'coder',
  stdin: null,
  always_ask: [],
}

/** The approval that results if the approval service allows a request. */
const allowed = (question: ApprovalRequest): Approval => {
  const answer = {
    question_id: 'q_1',
    permit_sha256: question.permit_sha256,
    by: 'human:test',
    reason: '',
    nonce: 'n',
    expires_at_ms: ANSWER_FRESH_MS,
  }
  const spent = new SpentAnswers()
  const opened = openApproval(sealAnswer({ ...answer, decision: 'allow' }, KEY), answer, { key: KEY, now: 1, spent })
  assert.ok(opened.kind === 'approval')
  return opened.approval
}

type Ask = (
  intent?: Partial<LocalRunIntent>,
  exec?: Partial<ExecInForce>,
  approval?: Approval | null,
) => ReturnType<typeof authorizeLocalRun>

const setUp = async (t: TestContext): Promise<{ dir: string; ask: Ask; active: () => number }> => {
  const dir = await tempDir(t)
  await mkdir(join(dir, 'work'))
  await writeFile(join(dir, 'tool'), '#!/bin/sh\nexit 0\n')
  await chmod(join(dir, 'tool'), 0o755)
  const policy = { ...policyOf([join(dir, 'work')], { security: 'allow_pty = true\nallow_detach = true' }), allow_env: null }
  const rights = rightsOf(policy)
  const slots = slotsOf(rights.limits)
  const ask: Ask = (intent = {}, exec = {}, approval = null) =>
    authorizeLocalRun(
      { ...ASKING, argv: [join(dir, 'tool'), 'a'], ...intent },
      { path: join(dir, 'work'), descriptor: null },
      { policy, rights, slots, session_id: 's_1', exec: { ...FORCE, ...exec } },
      approval,
    )
  return { dir, ask, active: () => slots.active }
}

const questionOf = (verdict: ReturnType<Ask>): ApprovalRequest => {
  assert.ok(verdict.kind === 'ask', verdict.kind)
  return verdict.question
}
const codeOf = (verdict: ReturnType<Ask>): string => (verdict.kind === 'refused' ? verdict.code : verdict.kind)

test('B12: policy uses the real program of a path with `..` after a link, not the literal one', async (t) => {
  const { dir, ask } = await setUp(t)
  // As many parent steps as the link has levels, so that the literal path ends in /usr/bin.
  const up = dir.split('/').length
  const deep = join(dir, 'own', ...Array<string>(up).fill('d'))
  await mkdir(deep, { recursive: true })
  await mkdir(join(dir, 'own', 'usr', 'bin'), { recursive: true })
  const own = join(dir, 'own', 'usr', 'bin', 'sort')
  await writeFile(own, '#!/bin/sh\n', { mode: 0o755 })
  await symlink(deep, join(dir, 'link'))
  const program = `${dir}/link${'/..'.repeat(up)}/usr/bin/sort`
  assert.equal(resolve(program), '/usr/bin/sort')
  const question = questionOf(ask({ argv: [program] }))
  assert.deepEqual([question.executable, question.programs], [own, [own]])
  const listed = { security: 'allowlist', ask: 'on-miss', ask_fallback: null, allowlist: [{ pattern: '/usr/bin/sort' }] } as const
  const defaults = { security: 'deny', ask: 'on-miss', ask_fallback: 'deny' } as const
  assert.equal(judge(question, { defaults, agents: { coder: listed }, grants: [], home: '/root' }, 0).kind, 'ask')
})

test('a run on this host first asks without a slot, and then gets a permit for exactly that run', async (t) => {
  const { dir, ask, active } = await setUp(t)
  const question = questionOf(ask())
  assert.equal(active(), 0)
  assert.deepEqual(
    [question.argv, question.cwd, question.asker, question.target.host, question.programs],
    [[join(dir, 'tool'), 'a'], join(dir, 'work'), { kind: 'local', label: 'coder' }, 'gateway', [join(dir, 'tool')]],
  )
  assert.match(question.permit_sha256, /^[0-9a-f]{64}$/)
  const verdict = ask({}, {}, allowed(question))
  assert.ok(verdict.kind === 'permit')
  assert.equal(active(), 1)
  assert.deepEqual(verdict.permit.argv, question.argv)
  assert.equal(changedPin(verdict.permit.pins), null)
})

test('O4: security deny refuses a run at once, and every other run on this host asks the approval service', async (t) => {
  const { ask } = await setUp(t)
  assert.equal(codeOf(ask({}, { security: 'deny' })), 'command_denied')
  assert.equal(codeOf(ask({}, { security: 'full', ask: 'off' })), 'ask')
})

test('an approval is valid for one run', async (t) => {
  const { ask } = await setUp(t)
  const approval = allowed(questionOf(ask()))
  assert.equal(codeOf(ask({}, {}, approval)), 'permit')
  assert.equal(codeOf(ask({}, {}, approval)), 'approval_mismatch')
  const likeness = { ...allowed(questionOf(ask())) }
  assert.equal(codeOf(ask({}, {}, likeness)), 'approval_mismatch')
})

test('B11: "always" is unavailable for a writable or missing script, open stdin, a terminal, and an always-ask rule', async (t) => {
  const { dir, ask } = await setUp(t)
  await writeFile(join(dir, 'work', 'x.sh'), '')
  await writeFile(join(dir, 'x.sh'), '')
  assert.notEqual(questionOf(ask()).grant_sha256, null)
  // A grant of an exact opaque command may last for some hours. The approver sees a warning.
  for (const intent of [
    { argv: ['/bin/sh', join(dir, 'x.sh')] },
    { argv: ['/bin/sh', '-c', '$0 "$@"', 'x'] },
    { argv: ['/usr/bin/env', 'sh'] },
  ]) {
    const { grant_sha256, opaque } = questionOf(ask(intent))
    assert.notEqual(grant_sha256, null)
    assert.match(opaque ?? '', /may start other programs/)
  }
  const rule = { argv: ['tool'], tokens: [{ kind: 'literal', text: 'tool' }], anyArguments: true, reason: 'r', line: 1 } as const
  for (const [intent, exec] of [
    [{ argv: ['/bin/sh', 'missing.sh'] }, {}],
    [{ argv: ['/bin/sh', 'x.sh'] }, {}],
    [{}, { stdin: 'open' }],
    [{ terminal: { cols: 80, rows: 24 } }, {}],
    [{}, { always_ask: [rule] }],
  ] as const)
    assert.equal(questionOf(ask(intent, exec)).grant_sha256, null, JSON.stringify([intent, exec]))
  assert.equal(questionOf(ask({}, { always_ask: [rule] })).always_ask, 'r')
})

test('a grant binds detachment, environment, label, interface and stdin, but not the size of the time limit', async (t) => {
  const { ask } = await setUp(t)
  const one = questionOf(ask())
  assert.equal(questionOf(ask({ timeout_ms: 5 })).grant_sha256, one.grant_sha256)
  for (const [intent, exec] of [
    [{ detach: true }, {}],
    [{ env: { A: '1' } }, {}],
    [{}, { label: 'other' }],
    [{}, { door: 'stdio' }],
    [{}, { stdin: { bytes: 1, sha256: 'a'.repeat(64), text: 'a' } }],
  ] as const)
    assert.notEqual(questionOf(ask(intent, exec)).grant_sha256, one.grant_sha256)
})
