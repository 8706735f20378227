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

/** What a desk that allows makes of a question. */
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

test('B12: a program behind `..` of a link is the one that runs, to a human and to an allowlist, and not the one that its text says', async (t) => {
  const { dir, ask } = await setUp(t)
  // As many names above it as the link has, so that the text of the path ends in /usr/bin.
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

test('a run on this host is a question first, which takes no slot, and then a permit for exactly that', async (t) => {
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

test('O4: what a place denies is denied, and of this host the desk is always asked, which knows its store', async (t) => {
  const { ask } = await setUp(t)
  assert.equal(codeOf(ask({}, { security: 'deny' })), 'command_denied')
  assert.equal(codeOf(ask({}, { security: 'full', ask: 'off' })), 'ask')
})

test('an approval is good for one run', async (t) => {
  const { ask } = await setUp(t)
  const approval = allowed(questionOf(ask()))
  assert.equal(codeOf(ask({}, {}, approval)), 'permit')
  assert.equal(codeOf(ask({}, {}, approval)), 'approval_mismatch')
  const likeness = { ...allowed(questionOf(ask())) }
  assert.equal(codeOf(ask({}, {}, likeness)), 'approval_mismatch')
})

test('B11: "always" is for what can be bound: no missing script, no open stdin, no keyboard, nothing that a rule always asks for', async (t) => {
  const { dir, ask } = await setUp(t)
  await writeFile(join(dir, 'work', 'x.sh'), '')
  await writeFile(join(dir, 'x.sh'), '')
  assert.notEqual(questionOf(ask()).grant_sha256, null)
  // An exact opaque command may be allowed for some hours, with a warning.
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

test('what may last binds neither session nor the size of limits, and all else: that it outlives its requester too', async (t) => {
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
