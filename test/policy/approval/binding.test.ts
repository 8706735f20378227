import assert from 'node:assert/strict'
import { appendFile, chmod, cp, link, mkdir, rename, stat, symlink, unlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { realPath } from '../../../src/base/path-resolution.ts'
import { ANSWER_FRESH_MS, openApproval, sealAnswer, SpentAnswers } from '../../../src/policy/approval/approval.ts'
import { permitFacts, type RequestedBy } from '../../../src/policy/approval/permit-facts.ts'
import type { Approval } from '../../../src/policy/approval/approval.ts'
import { authorizeTargetRun } from '../../../src/policy/local/authorize-target.ts'
import { askLocally, type ExecInForce } from '../../../src/policy/local/local-asking.ts'
import { sealPermit, type PermitFields } from '../../../src/policy/permit.ts'
import { UNCONFINED } from '../../../src/policy/mesh/confinement.ts'
import { ASKING, policyOf, rightsOf, slotsOf } from '../../support/local-policy.ts'
import { mutations, otherLists } from '../../support/mutations.ts'
import { tempDir } from '../../support/temp-dir.ts'

// An approval covers exactly the run that was shown. A change between the answer and the run makes the approval invalid.

interface Run {
  readonly fields: PermitFields
  readonly by: RequestedBy
}

const KEY = Buffer.alloc(32, 1)
const RULE = { argv: ['tool'], tokens: [{ kind: 'literal', text: 'tool' }], anyArguments: true, reason: 'r', line: 1 } as const

/** A run whose fields are all set, so that a test can change each of them. */
const setUp = async (t: TestContext): Promise<{ dir: string; run: Run }> => {
  const dir = await tempDir(t)
  await mkdir(join(dir, 'work'))
  await mkdir(join(dir, 'root'))
  await writeFile(join(dir, 'tool'), '#!/bin/sh\nexit 0\n')
  await chmod(join(dir, 'tool'), 0o755)
  await cp(join(dir, 'tool'), join(dir, 'other'))
  await writeFile(join(dir, 'work', 'x.sh'), 'exit 0\n')
  await symlink('../tool', join(dir, 'work', 'link'))
  await link(join(dir, 'tool'), join(dir, 'work', 'hard'))
  const { dev, ino } = await stat(join(dir, 'tool'), { bigint: true })
  const fields: PermitFields = {
    argv: ['tool', 'push -f', 'a'],
    executable: { path: join(dir, 'tool'), dev, ino },
    cwd: join(dir, 'work'),
    cwd_descriptor: null,
    env: { A: '1', PATH: '/usr/bin:/bin' },
    caps: {
      max_stdout_bytes: 1,
      max_stderr_bytes: 1,
      max_output_bytes: 1,
      max_stdin_bytes: 1,
      warn_stdout_bytes: 1,
      warn_stderr_bytes: 1,
      warn_duration_ms: 1,
      max_duration_ms: 1,
      timeout_ms: 1,
      timeout_clamped: false,
      keep_bytes: null,
    },
    terminal: { cols: 80, rows: 24, raw: true },
    record: true,
    watch: true,
    confinement: { ...UNCONFINED, max_memory_bytes: 1, max_processes: 1, max_cpu_secs: 1, nice: 1, run_as: 'ann' },
    account: { name: 'ann', uid: 1000, gid: 1000, home: '/home/ann' },
    sandbox: {
      engine: 'bubblewrap',
      image: { name: 'i', id: 'a'.repeat(64), root: join(dir, 'root'), env: { B: '1' } },
      network: false,
      writable: dir,
      readable: ['/srv'],
      unix_sockets: false,
      home: '/home/x',
      max_memory_bytes: 1,
      max_processes: 1,
    },
    pins: [],
    stand_in: null,
    matched_acl: 'rule',
    principal: { kind: 'mesh', agent_id: 'c'.repeat(64), machine_id: 'd'.repeat(64) },
  }
  const asker = { kind: 'mesh', agent_id: 'c'.repeat(64), machine_id: 'd'.repeat(64), name: 'carol' } as const
  const stdin = { bytes: 1, sha256: 'e'.repeat(64), text: 'e' }
  const target = { host: 'gateway', agent_id: 'f'.repeat(64) } as const
  return {
    dir,
    run: {
      fields,
      by: { door: 'mesh', asker, target, stdin, ask: 'off', variables: [], outlives: false, canWrite: () => false, always_ask: [RULE] },
    },
  }
}

const allowed = (permit_sha256: string): Approval => {
  const answer = { question_id: 'q_1', permit_sha256, by: 'human:test', reason: '', nonce: 'n', expires_at_ms: ANSWER_FRESH_MS }
  const opened = openApproval(sealAnswer({ ...answer, decision: 'allow' }, KEY), answer, { key: KEY, now: 1, spent: new SpentAnswers() })
  assert.ok(opened.kind === 'approval')
  return opened.approval
}

const EXEC = { host: 'gateway', security: 'full', ask: 'always', ask_fallback: 'deny', door: 'mcp', label: 'coder' } as const

/** The result of a run, with an approval of the permit that has this digest. */
const codeOf = ({ fields, by }: Run, permitSha256: string): string => {
  const exec: ExecInForce = { ...EXEC, stdin: by.stdin, always_ask: by.always_ask }
  const about = { ...fields, timeout_ms: 1, session_id: null, agent_id: null }
  const said = askLocally(about, permitFacts(fields, by), exec, allowed(permitSha256))
  return said === null ? 'permit' : said.kind === 'refused' ? said.code : said.kind
}
const shaOf = ({ fields, by }: Run): string => permitFacts(fields, by).permit_sha256

/** Fields that an approval does not bind, with the reason. */
const UNBOUND: Readonly<Record<string, string>> = {
  'fields.cwd_descriptor': 'its number says nothing: which directory it holds is bound',
  'fields.pins': 'is made of what is looked at, which is bound',
  'by.asker.name': 'is for a human to read',
  'by.variables': 'are variables of the environment, which is bound',
  'fields.stand_in': 'is made of what is looked at, which is bound',
  'by.stdin.text': 'is what the hash is of',
  'by.canWrite': 'says which files can be written: those are bound, and have a test of their own',
  'by.always_ask': 'its reason is bound, and has a test of its own',
}

const others = ({ fields, by }: Run): [at: string, other: Run][] => [
  ...mutations(fields, 'fields').map(([at, other]): [string, Run] => [at, { fields: other as PermitFields, by }]),
  ...mutations(by, 'by').map(([at, other]): [string, Run] => [at, { fields, by: other as RequestedBy }]),
]

const isUnbound = (at: string): boolean => Object.hasOwn(UNBOUND, at)
/** Every permit has these tables, and a digest needs them. */
const isWhole = (at: string): boolean => /^(fields\.(argv|executable|cwd|env|caps|principal|confinement)|by\.(asker|target))$/.test(at)

test('B13 B14: a change of any part of a run, sandboxed or not, invalidates an approval "once"', async (t) => {
  const { run } = await setUp(t)
  const onHost: Run = { ...run, fields: { ...run.fields, sandbox: null } }
  for (const base of [run, onHost]) {
    const sha = shaOf(base)
    assert.equal(codeOf(base, sha), 'permit')
    const tried = new Set<string>()
    for (const [at, other] of others(base)) {
      tried.add(at)
      const part = at.startsWith('by.') ? other.by : other.fields
      const isGone = (part as unknown as Record<string, unknown>)[at.split('.')[1]!] === null
      if (isUnbound(at) || (isWhole(at) && isGone)) continue
      assert.equal(codeOf(other, sha), 'approval_mismatch', at)
    }
    // Each part of the permit must have been changed by at least one case above.
    const parts = Object.keys(sealPermit(base.fields)).map((key) => `fields.${key}`)
    const untried = parts.filter((part) => ![...tried].some((at) => at === part || at.startsWith(`${part}.`)) && !isUnbound(part))
    assert.deepEqual(untried, base === onHost ? ['fields.sandbox'] : [])
  }
  assert.equal(codeOf(run, shaOf(onHost)), 'approval_mismatch')
  assert.equal(codeOf(onHost, shaOf(run)), 'approval_mismatch')
})

/** Fields that "always" does not cover. */
const isOfOneRun = (at: string): boolean =>
  /^fields\.(caps|record|watch|principal|matched_acl|terminal\.(cols|rows))(\.|$)|^by\.ask$/.test(at)

test('B11: a change of any other part of a run changes the digest of "always" or removes it', async (t) => {
  const { run } = await setUp(t)
  const base: Run = { fields: { ...run.fields, sandbox: null }, by: { ...run.by, always_ask: [] } }
  const { grant_sha256 } = permitFacts(base.fields, base.by)
  assert.notEqual(grant_sha256, null)
  for (const [at, { fields, by }] of others(base)) {
    const part = at.startsWith('by.') ? by : fields
    const isGone = (part as unknown as Record<string, unknown>)[at.split('.')[1]!] === null
    if (isUnbound(at) || isOfOneRun(at) || (isWhole(at) && isGone)) continue
    assert.notEqual(permitFacts(fields, by).grant_sha256, grant_sha256, at)
  }
})

test('another path to the same working directory invalidates an approval', async (t) => {
  const { dir, run } = await setUp(t)
  await symlink('work', join(dir, 'again'))
  const asked: Run = { ...run, fields: { ...run.fields, sandbox: null } }
  assert.equal(codeOf({ ...asked, fields: { ...asked.fields, cwd: join(dir, 'again') } }, shaOf(asked)), 'approval_mismatch')
})

test('an approval is invalid if stdin is then open, absent, or not known by its hash', async (t) => {
  const { run } = await setUp(t)
  for (const stdin of [null, 'open', { bytes: 1, sha256: null, text: null }] as const)
    assert.equal(codeOf({ ...run, by: { ...run.by, stdin } }, shaOf(run)), 'approval_mismatch')
})

test('an approval is invalid if an always-ask rule was added or its reason changed after it', async (t) => {
  const { run } = await setUp(t)
  const unlisted: Run = { fields: { ...run.fields, sandbox: null }, by: { ...run.by, always_ask: [] } }
  const listed = (reason: string): Run => ({ ...unlisted, by: { ...unlisted.by, always_ask: [{ ...RULE, reason }] } })
  assert.equal(codeOf(listed('r'), shaOf(unlisted)), 'approval_mismatch')
  assert.equal(codeOf(listed('r'), shaOf(listed('it publishes'))), 'approval_mismatch')
  assert.equal(codeOf(listed('r'), shaOf(listed('r'))), 'permit')
})

test('an approval for another host binds words, target, time limit, session, interface, label, stdin and always-ask rules', () => {
  const policy = policyOf(['/usr'], { security: 'allow_targets = ["bob", "carol"]' })
  const ask = (
    argv: readonly string[],
    more: Partial<ExecInForce> = {},
    over: { target?: string; session?: string; timeout_ms?: number } = {},
  ) => {
    const { target = 'bob', session = 's_1', timeout_ms = 5 } = over
    const rights = rightsOf(policy, { target })
    const exec: ExecInForce = { ...EXEC, host: 'node', stdin: null, always_ask: [], ...more }
    const context = { rights, slots: slotsOf(rights.limits), session_id: session, exec }
    return (approval: Approval | null) => authorizeTargetRun({ ...ASKING, cwd: null, argv, timeout_ms }, context, approval)
  }
  const run = ask(['tool', 'a'])
  const asked = run(null)
  assert.ok(asked.kind === 'ask')
  const said = (verdict: ReturnType<typeof run>): string => (verdict.kind === 'refused' ? verdict.code : verdict.kind)
  const answered = (other: typeof run): string => said(other(allowed(asked.question.permit_sha256)))
  assert.equal(answered(run), 'permit')
  const changed = [
    ...otherLists(['tool', 'a']).flatMap((argv) => (argv.some((word) => word.includes('\0')) ? [] : [ask(argv)])),
    ask(['tool', 'a'], { stdin: 'open' }),
    ask(['tool', 'a'], { label: 'other' }),
    ask(['tool', 'a'], { door: 'stdio' }),
    ask(['tool', 'a'], { always_ask: [RULE] }),
    ask(['tool', 'a'], {}, { target: 'carol' }),
    ask(['tool', 'a'], {}, { session: 's_2' }),
    ask(['tool', 'a'], {}, { timeout_ms: 6 }),
  ]
  for (const other of changed) assert.equal(answered(other), 'approval_mismatch')
})

type Meddle = (dir: string) => Promise<unknown>

const replaced =
  (path: string, by: string): Meddle =>
  async (dir) =>
    rename(join(dir, by), join(dir, path))
const linked =
  (path: string, to: string): Meddle =>
  async (dir) => {
    await unlink(join(dir, path))
    await symlink(to, join(dir, path))
  }

/** Changes to the files of a run, with its program and argv. Everything else stays the same. */
const MEDDLING: readonly [what: string, program: string, argv: readonly string[], Meddle][] = [
  ['appended content', 'tool', ['tool'], (dir) => appendFile(join(dir, 'tool'), '\n')],
  ['the same content in another file', 'tool', ['tool'], replaced('tool', 'other')],
  ['a link in place of the file', 'tool', ['tool'], linked('tool', 'other')],
  ['removal of the file', 'tool', ['tool'], (dir) => unlink(join(dir, 'tool'))],
  [
    'a hard link to another file in place of the file',
    'tool',
    ['tool'],
    async (dir) => unlink(join(dir, 'tool')).then(() => link(join(dir, 'other'), join(dir, 'tool'))),
  ],
  ['content appended through the other hard link', 'work/hard', ['hard'], (dir) => appendFile(join(dir, 'tool'), '\n')],
  ['another target of the link', 'work/link', ['link'], linked('work/link', '../other')],
  ['content appended to the target of the link', 'work/link', ['link'], (dir) => appendFile(join(dir, 'tool'), '\n')],
  ['a link through another directory', 'work/link', ['link'], linked('work/link', '../root/tool')],
  [
    'another directory at the same path',
    'tool',
    ['tool'],
    async (dir) => rename(join(dir, 'work'), join(dir, 'old')).then(() => mkdir(join(dir, 'work'))),
  ],
  ['content appended to the script', '/bin/sh', ['sh', 'x.sh'], (dir) => appendFile(join(dir, 'work', 'x.sh'), 'exit 1\n')],
  ['another script', '/bin/sh', ['sh', 'x.sh'], replaced('work/x.sh', 'other')],
  ['a link to another script', '/bin/sh', ['sh', 'x.sh'], linked('work/x.sh', '../tool')],
  ['removal of the script', '/bin/sh', ['sh', 'x.sh'], (dir) => unlink(join(dir, 'work', 'x.sh'))],
  ['content appended to a program behind a wrapper', '/usr/bin/env', ['env', './hard'], (dir) => appendFile(join(dir, 'tool'), '\n')],
  [
    'content appended to a script behind a wrapper',
    '/usr/bin/env',
    ['env', 'sh', 'x.sh'],
    (dir) => appendFile(join(dir, 'work', 'x.sh'), '\n'),
  ],
]

for (const [what, program, argv, meddle] of MEDDLING)
  test(`B15 B16 B25: ${what} (argv ${argv.join(' ')}) invalidates the approval, and any "always" that binds it`, async (t) => {
    const { dir, run } = await setUp(t)
    const path = program.startsWith('/') ? program : join(dir, program)
    const executable = { ...run.fields.executable, path }
    const asked: Run = { fields: { ...run.fields, sandbox: null, argv, executable }, by: { ...run.by, always_ask: [] } }
    const before = permitFacts(asked.fields, asked.by)
    assert.equal(codeOf(asked, before.permit_sha256), 'permit')
    await meddle(dir)
    assert.equal(codeOf(asked, before.permit_sha256), 'approval_mismatch')
    const { grant_sha256 } = permitFacts(asked.fields, asked.by)
    // "Always" binds the path of the working directory, not the directory itself.
    assert.ok(what.includes('directory at') || grant_sha256 === null || grant_sha256 !== before.grant_sha256)
  })

test('a grant for a run does not cover the same run detached', async (t) => {
  const { run } = await setUp(t)
  const { fields, by } = { fields: { ...run.fields, sandbox: null }, by: { ...run.by, always_ask: [] } }
  const before = permitFacts(fields, by).grant_sha256
  const detached = permitFacts(fields, { ...by, outlives: true }).grant_sha256
  assert.notEqual(before, null)
  assert.notEqual(detached, before)
})

test('a transparent program that the requester can write is opaque', async (t) => {
  const { run } = await setUp(t)
  const path = realPath('/usr/bin/df')
  const { dev, ino } = await stat(path, { bigint: true })
  const fields: PermitFields = { ...run.fields, argv: ['df'], executable: { path, dev, ino }, sandbox: null }
  const opaqueWhere = (canWrite: RequestedBy['canWrite']): string | null => permitFacts(fields, { ...run.by, canWrite }).opaque
  assert.equal(
    opaqueWhere(() => false),
    null,
  )
  assert.equal(
    opaqueWhere((place) => place === path),
    `the requester can write ${path}`,
  )
  assert.equal(
    opaqueWhere((place) => place === '/usr'),
    `the requester can write ${path}`,
  )
})
