import assert from 'node:assert/strict'
import { linkSync, mkdirSync, renameSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'

import { mtimeText, versionOf } from '../../../src/base/mtime.ts'
import { ANSWER_FRESH_MS, type Approval, openApproval, sealAnswer, SpentAnswers } from '../../../src/policy/approval/approval.ts'
import { scrubbedEnvironment } from '../../../src/policy/environment.ts'
import type { Acl } from '../../../src/policy/mesh/acl.ts'
import { ApprovedReads } from '../../../src/policy/mesh/file-asking.ts'
import { authorize, type Principal, type Verdict } from '../../../src/policy/mesh/authorize.ts'
import type { FileRunPermit } from '../../../src/policy/mesh/authorize-file.ts'
import { explain, explanationText } from '../../../src/policy/mesh/explain.ts'
import { Slots } from '../../../src/policy/slots.ts'
import type { ApprovalRequest, RequestedFile } from '../../../src/protocol/desk/approval-request.ts'
import { type FileCommand, fileCommandArgv } from '../../../src/protocol/file-command.ts'
import { APPROVED_READ_MS, MAX_APPROVED_READS } from '../../../src/protocol/limits/approvals.ts'
import { aclOf, aclText, ALICE, alice, asking, ELSEWHERE, entryText, filesText, LAPTOP, MALLORY } from '../../support/acl-text.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { hasProc, temporaryDirectory } from '../../support/processes.ts'

const linuxOnly = hasProc ? {} : { skip: 'needs /proc' }
const KEY = Buffer.alloc(32, 1)
const SHA = 'ab'.repeat(32)
const OTHER_SHA = 'cd'.repeat(32)

/** The approval that results if the approval service allows a request. */
const allowed = ({ permit_sha256 }: ApprovalRequest): Approval => {
  const answer = { question_id: 'q_1', permit_sha256, by: 'human:test', reason: '', nonce: 'n', expires_at_ms: ANSWER_FRESH_MS }
  const opened = openApproval(sealAnswer({ ...answer, decision: 'allow' }, KEY), answer, { key: KEY, now: 1, spent: new SpentAnswers() })
  assert.ok(opened.kind === 'approval')
  return opened.approval
}

interface Asked {
  readonly approval?: Approval
  readonly stdin?: number
  readonly who?: Principal
}

/** A root with a file, and a policy that asks about it. */
class Place {
  readonly root: string
  readonly file: string
  readonly clock = new ManualClock()
  readonly reads = new ApprovedReads({ clock: this.clock })
  acl: Acl

  constructor(directory: string, keys: Record<string, string | number | boolean> = {}) {
    this.root = join(directory, 'srv')
    this.file = join(this.root, 'file')
    mkdirSync(this.root)
    writeFileSync(this.file, 'old text')
    this.acl = this.aclWith(keys)
  }

  static async of(t: TestContext, keys: Record<string, string | number | boolean> = {}): Promise<Place> {
    return new Place(await temporaryDirectory(t), keys)
  }

  aclWith(keys: Record<string, string | number | boolean>): Acl {
    const table = filesText(this.root, { write: true, create_dirs: true, ask: true, ...keys })
    return aclOf(aclText([entryText([]) + table, entryText([], { agent_id: MALLORY }) + table]))
  }

  ask(command: FileCommand, { approval, stdin, who = alice }: Asked = {}): Verdict {
    const intent = asking(fileCommandArgv(command), stdin === undefined ? {} : { stdin_len: stdin, stdin_sha256: SHA })
    const context = { acl: this.acl, slots: new Slots(this.acl.caps), env: scrubbedEnvironment('/'), reads: this.reads }
    return authorize(intent, who, context, approval ?? null)
  }

  write(more: Partial<Extract<FileCommand, { op: 'write' }>> = {}, path = this.file): FileCommand {
    const finish = { sha256: SHA, mode: null, mtime_ms: null, expect: null }
    return { op: 'write', path, upload: '0'.repeat(32), offset: 0, parents: true, finish, ...more }
  }

  read(more: Partial<Extract<FileCommand, { op: 'read' }>> = {}, path = this.file): FileCommand {
    return { op: 'read', path, offset: 0, length: 8, version: null, ...more }
  }

  get version(): string {
    return versionOf(statSync(this.file, { bigint: true }))
  }
}

const questionOf = (verdict: Verdict): ApprovalRequest & { readonly file: RequestedFile } => {
  assert.ok(verdict.kind === 'ask', verdict.kind)
  assert.ok(verdict.question.file !== undefined)
  return { ...verdict.question, file: verdict.question.file }
}
const permitOf = (verdict: Verdict): FileRunPermit => {
  assert.ok(verdict.kind === 'files', verdict.kind === 'denied' ? verdict.detail : verdict.kind)
  verdict.slot.release()
  return verdict.permit
}
const saidOf = (verdict: Verdict): string => (verdict.kind === 'denied' ? verdict.reason : verdict.kind)

test('a write asks with the details that the target sees, and the permit replaces only that file', linuxOnly, async (t) => {
  const place = await Place.of(t)
  const question = questionOf(place.ask(place.write(), { stdin: 5 }))
  const { mtimeNs } = statSync(place.file, { bigint: true })
  assert.deepEqual(question.file, {
    action: 'write',
    path: place.file,
    leads_to: null,
    size: 5,
    sha256: SHA,
    present: { size: 8, mtime: mtimeText(mtimeNs) },
    creates: [],
    mode: null,
    owner: null,
  })
  assert.deepEqual([question.ask, question.ask_fallback, question.grant_sha256, question.asker.kind], ['always', 'deny', null, 'mesh'])
  assert.match(question.why, /^the files table of "alice on her laptop" says ask = true \(line \d+\)$/)
  const { command, limits } = permitOf(place.ask(place.write(), { stdin: 5, approval: allowed(question) }))
  assert.ok(command.op === 'write')
  assert.deepEqual([command.finish?.expect, command.finish?.sha256, limits.create_dirs], [place.version, SHA, true])
})

test('a new file asks with its mode and the directories to create', linuxOnly, async (t) => {
  const place = await Place.of(t, { mode: '0640' })
  const path = join(place.root, 'a/b/file')
  const { file, ...question } = questionOf(place.ask(place.write({}, path), { stdin: 1 }))
  assert.deepEqual([file.present, file.mode, file.creates], [null, '0640', [join(place.root, 'a'), join(place.root, 'a/b')]])
  const { command } = permitOf(place.ask(place.write({}, path), { stdin: 1, approval: allowed({ ...question, file }) }))
  assert.ok(command.op === 'write')
  assert.equal(command.finish?.expect, 'absent')
})

for (const [what, change] of [
  ['another SHA-256', (place: Place) => place.write({ finish: { sha256: OTHER_SHA, mode: null, mtime_ms: null, expect: null } })],
  ['another path', (place: Place) => place.write({}, join(place.root, 'other'))],
  ['another mode', (place: Place) => place.write({ finish: { sha256: SHA, mode: 0o600, mtime_ms: null, expect: null } })],
  ['another size', (place: Place) => place.write({ offset: 1 })],
  ['a read', (place: Place) => place.read()],
  [
    'an append',
    (place: Place) => ({ op: 'append' as const, path: place.file, mtime: mtimeText(statSync(place.file, { bigint: true }).mtimeNs) }),
  ],
  ['a directory', (place: Place) => ({ op: 'mkdir' as const, path: join(place.root, 'd'), mode: null })],
] as readonly (readonly [string, (place: Place) => FileCommand])[])
  test(`${what} is not covered by the approval of a write`, linuxOnly, async (t) => {
    const place = await Place.of(t)
    const question = questionOf(place.ask(place.write(), { stdin: 5 }))
    const command = change(place)
    const stdin = command.op === 'write' || command.op === 'append' ? { stdin: 5 } : {}
    assert.equal(saidOf(place.ask(command, { ...stdin, approval: allowed(question) })), 'approval_mismatch')
  })

test('an approval is valid only for its requester, and only once', linuxOnly, async (t) => {
  const place = await Place.of(t)
  const question = questionOf(place.ask(place.write(), { stdin: 5 }))
  const mallory = { ...alice, agent_id: MALLORY }
  assert.equal(saidOf(place.ask(place.write(), { stdin: 5, approval: allowed(question), who: mallory })), 'approval_mismatch')
  const approval = allowed(question)
  permitOf(place.ask(place.write(), { stdin: 5, approval }))
  assert.equal(saidOf(place.ask(place.write(), { stdin: 5, approval })), 'approval_mismatch')
})

for (const [what, change] of [
  ['was changed', (place: Place) => writeFileSync(place.file, 'new text')],
  ['was exchanged', (place: Place) => renameSync(join(place.root, '../other'), place.file)],
  [
    'became a link',
    (place: Place) => {
      renameSync(place.file, join(place.root, 'moved'))
      symlinkSync('moved', place.file)
    },
  ],
  ['got a second name', (place: Place) => linkSync(place.file, join(place.root, 'second'))],
] as readonly (readonly [string, (place: Place) => void])[])
  test(`a file that ${what} after the request is neither replaced nor read`, linuxOnly, async (t) => {
    const place = await Place.of(t)
    writeFileSync(join(place.root, '../other'), 'new text')
    const [write, read] = [questionOf(place.ask(place.write(), { stdin: 5 })), questionOf(place.ask(place.read()))]
    change(place)
    assert.equal(saidOf(place.ask(place.write(), { stdin: 5, approval: allowed(write) })), 'approval_mismatch')
    assert.equal(saidOf(place.ask(place.read(), { approval: allowed(read) })), 'approval_mismatch')
  })

test('an approval binds the rights of the files table', linuxOnly, async (t) => {
  const place = await Place.of(t)
  const question = questionOf(place.ask(place.write(), { stdin: 5 }))
  place.acl = place.aclWith({ max_file_bytes: 100 })
  assert.equal(saidOf(place.ask(place.write(), { stdin: 5, approval: allowed(question) })), 'approval_mismatch')
})

test('an approved version is read and hashed again without a request, but no other version, path or requester', linuxOnly, async (t) => {
  const place = await Place.of(t)
  const question = questionOf(place.ask(place.read()))
  assert.deepEqual([question.file.action, question.file.size, question.file.sha256], ['read', 8, null])
  const { command } = permitOf(place.ask(place.read(), { approval: allowed(question) }))
  const { version } = place
  assert.ok(command.op === 'read')
  assert.equal(command.version, version)
  permitOf(place.ask(place.read({ offset: 4, version })))
  const hash = permitOf(place.ask({ op: 'hash', path: place.file, version: null })).command
  assert.ok(hash.op === 'hash')
  assert.equal(hash.version, version)
  for (const who of [
    { ...alice, agent_id: MALLORY },
    { ...alice, machine_id: ELSEWHERE },
  ] as const)
    assert.notEqual(place.ask(place.read(), { who }).kind, 'files')
  linkSync(place.file, join(place.root, 'same'))
  writeFileSync(place.file, 'new text')
  questionOf(place.ask(place.read()))
  questionOf(place.ask(place.read({}, join(place.root, 'same'))))
})

test('approved reads are forgotten after a time, above a maximum number, and by a new process', linuxOnly, async (t) => {
  const place = await Place.of(t)
  const approve = (): void => void permitOf(place.ask(place.read(), { approval: allowed(questionOf(place.ask(place.read()))) }))
  approve()
  await place.clock.advance(APPROVED_READ_MS - 1)
  permitOf(place.ask(place.read()))
  await place.clock.advance(1)
  approve()
  for (let at = 0; at < MAX_APPROVED_READS; at++) place.reads.add(`${at}`, ALICE)
  questionOf(place.ask(place.read()))
  const acl = place.acl
  const fresh = authorize(asking(fileCommandArgv(place.read())), alice, { acl, slots: new Slots(acl.caps), env: scrubbedEnvironment('/') })
  assert.equal(fresh.kind, 'ask')
})

test('names, sizes and unfinished uploads need no approval, and uploads create no directory', linuxOnly, async (t) => {
  const place = await Place.of(t)
  for (const command of [
    { op: 'stat', path: place.file },
    { op: 'list', path: place.root, recursive: true },
    { op: 'upload', path: place.file, upload: '0'.repeat(32) },
  ] as const)
    permitOf(place.ask(command))
  assert.equal(permitOf(place.ask(place.write({ finish: null }), { stdin: 5 })).limits.create_dirs, false)
  const below = place.write({ finish: null }, join(place.root, 'a/b/file'))
  const { file } = questionOf(place.ask(below, { stdin: 5 }))
  assert.deepEqual([file.action, file.path, file.creates], ['mkdir', join(place.root, 'a/b'), [join(place.root, 'a')]])
  assert.equal(permitOf(place.ask({ ...below, parents: false } as FileCommand, { stdin: 5 })).limits.create_dirs, false)
})

test('a command that cannot have an effect does not ask, and its permit can only fail', linuxOnly, async (t) => {
  const place = await Place.of(t)
  symlinkSync('/etc/passwd', join(place.root, 'out'))
  const nothing = (command: FileCommand, stdin?: number): FileCommand =>
    permitOf(place.ask(command, stdin === undefined ? {} : { stdin })).command
  for (const path of [join(place.root, 'none'), place.root, join(place.root, 'out')]) {
    const command = nothing(place.read({}, path))
    assert.ok(command.op === 'read')
    assert.equal(command.version, '0')
  }
  const stale = nothing(place.read({ version: '1.2.3' }))
  assert.ok(stale.op === 'read')
  assert.equal(stale.version, '0')
  const finish = { sha256: SHA, mode: null, mtime_ms: null, expect: 'absent' as const }
  for (const command of [place.write({ finish }), place.write({}, place.root), place.write({}, join(place.root, 'out'))]) {
    const bound = nothing(command, 5)
    assert.ok(bound.op === 'write')
    assert.equal(bound.finish?.sha256, '')
  }
  const append = nothing({ op: 'append', path: place.file, mtime: '2026-01-01T00:00:00.000000000Z' }, 5)
  assert.ok(append.op === 'append')
  assert.equal(append.mtime, '')
  assert.equal(permitOf(place.ask({ op: 'mkdir', path: place.root, mode: null })).limits.create_dirs, false)
})

test('a link within the root is shown with its target', linuxOnly, async (t) => {
  const place = await Place.of(t)
  symlinkSync('file', join(place.root, 'link'))
  const { file } = questionOf(place.ask(place.read({}, join(place.root, 'link'))))
  assert.deepEqual([file.path, file.leads_to], [join(place.root, 'link'), place.file])
})

const entry = (root: string, keys: string, tableKeys = {}): Acl =>
  aclOf(
    aclText([
      `[[exec.allow]]\nagent_id = "${ALICE}"\nmachine_id = "${LAPTOP}"\n${keys}\n${filesText(root, { write: true, ...tableKeys })}`,
    ]),
  )

test('ask = "always" and approvers of an entry apply to its files', linuxOnly, async (t) => {
  const place = await Place.of(t)
  place.acl = entry(place.root, 'ask = "always"')
  assert.match(questionOf(place.ask(place.read())).why, /says ask = "always"/)
  const approvers = `approvers = [{ agent_id = "${MALLORY}" }]`
  place.acl = entry(place.root, approvers)
  const byAgents = questionOf(place.ask(place.read()))
  assert.deepEqual([byAgents.ask, byAgents.approvers], ['off', { agent_ids: [MALLORY], needed: 1 }])
  place.acl = entry(place.root, approvers, { ask: true })
  const both = questionOf(place.ask(place.read()))
  assert.deepEqual([both.ask, both.approvers?.agent_ids], ['always', [MALLORY]])
  assert.equal(saidOf(place.ask(place.read(), { approval: allowed(both) })), 'approval_mismatch')
  // An approval that was given before the entry named approvers does not count.
  place.acl = entry(place.root, '', { ask: true })
  permitOf(place.ask(place.read(), { approval: allowed(questionOf(place.ask(place.read()))) }))
  place.acl = entry(place.root, approvers, { ask: true })
  questionOf(place.ask(place.read()))
})

test('explain shows that files ask, even files that do not exist', linuxOnly, async (t) => {
  const place = await Place.of(t)
  for (const command of [place.read(), place.read({}, join(place.root, 'none')), place.write()]) {
    const argv = fileCommandArgv(command)
    const explanation = explain({ acl: place.acl, agent_id: ALICE, machine_id: LAPTOP, argv })
    assert.deepEqual([explanation.allowed, explanation.asks?.human], [false, true])
    assert.match(explanationText(explanation, argv), /^asks {5}/)
    assert.match(explanationText(explanation, argv), /approval by an approver of this machine, each time/)
  }
  const stat = explain({ acl: place.acl, agent_id: ALICE, machine_id: LAPTOP, argv: ['@stat', place.file] })
  assert.deepEqual([stat.allowed, stat.asks], [true, null])
})
