import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdir, readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'

import type { ApprovalClient } from '../../../src/clients/desk.ts'
import type { Decision } from '../../../src/protocol/desk/approval-request.ts'
import type { PendingApprovalRequest } from '../../../src/protocol/desk/messages.ts'
import { type FileCommand, fileCommandArgv } from '../../../src/protocol/file-command.ts'
import { MAX_WAITING_OF_AGENT } from '../../../src/protocol/limits/approvals.ts'
import { deskPlace } from '../../support/desk-place.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import type { FakeLink, FakeNetwork, ProbeRun } from '../../support/fake-network.ts'
import { until } from '../../support/mesh-of-daemons.ts'
import { hasProc, temporaryDirectory } from '../../support/processes.ts'

const linuxOnly = hasProc ? {} : { skip: 'needs /proc' }

interface Place {
  readonly host: ExecutorHost
  readonly network: FakeNetwork
  readonly link: FakeLink
  readonly human: ApprovalClient
  readonly root: string
  readonly file: string
  ask(command: FileCommand, stdin?: Buffer): Promise<ProbeRun>
  questions(count: number): Promise<readonly PendingApprovalRequest[]>
  decide(decision: Decision): Promise<PendingApprovalRequest>
}

/** A host whose approver decides about each file below one root. */
const askingHost = async (t: TestContext): Promise<Place> => {
  const root = join(await temporaryDirectory(t), 'srv')
  await mkdir(root)
  const desk = await deskPlace(t)
  const entryKeys = `[[exec.allow.files]]\nroot = "${root}"\nread = true\nwrite = true\ncreate_dirs = true\nask = true\n`
  const parts = await ExecutorHost.linked(t, { entryKeys, scripts: { hello: 'echo hi' }, desk: desk.link })
  const human = await desk.human()
  await human.subscribe(() => undefined)
  const questions: Place['questions'] = async (count) =>
    until(`${count} questions wait`, async () => {
      const { questions } = await human.pending()
      return questions.length === count && questions
    })
  const decide: Place['decide'] = async (decision) => {
    const [first] = await questions(1)
    await human.decide({ question_id: first!.question_id, permit_sha256: first!.question.permit_sha256, decision })
    return first!
  }
  const file = join(root, 'file')
  await writeFile(file, 'old text')
  const ask: Place['ask'] = async (command, stdin) => parts.link.ask(fileCommandArgv(command), stdin === undefined ? {} : { stdin })
  return { ...parts, human, root, file, ask, questions, decide }
}

const sha256 = (data: Buffer): string => createHash('sha256').update(data).digest('hex')

const write = (path: string, hash: string): FileCommand => ({
  op: 'write',
  path,
  upload: 'b'.repeat(32),
  offset: 0,
  parents: true,
  finish: { sha256: hash, mode: null, mtime_ms: null, expect: null },
})

const read = (path: string, offset = 0): FileCommand => ({ op: 'read', path, offset, length: 4, version: null })

const send = (run: ProbeRun, data: Buffer): void => run.send({ type: 'stdin', request_id: run.id, seq: 0, data, eof: true })

test('a file is written after an approver allows its hash, and the audit log names the approver', linuxOnly, async (t) => {
  const place = await askingHost(t)
  const data = Buffer.from('new text')
  const run = await place.ask(write(place.file, sha256(data)), data)
  send(run, data)
  const waiting = await run.frame('waiting')
  assert.deepEqual([waiting.reason, waiting.approvals_needed], ['human', 0])
  const { question } = await place.decide('allow_once')
  assert.deepEqual([question.file?.sha256, question.file?.size, question.file?.present?.size], [sha256(data), 8, 8])
  assert.equal((await run.exit()).code, 0, run.output('stderr').toString())
  assert.equal(await readFile(place.file, 'utf8'), 'new text')
  const line = (await place.host.lines()).find(({ event, request_id }) => event === 'request' && request_id === run.id)
  assert.match(String((line as Record<string, unknown> | undefined)?.['approved_by']), /^human:/)
})

test('a refused file leaves the old file unchanged and no other file', linuxOnly, async (t) => {
  const place = await askingHost(t)
  const data = Buffer.from('new text')
  const run = await place.ask(write(place.file, sha256(data)), data)
  send(run, data)
  await place.decide('deny')
  assert.equal(await run.denial(), 'approval_denied')
  assert.equal(await readFile(place.file, 'utf8'), 'old text')
  assert.deepEqual([await readdir(place.root), await place.host.events(run.id)], [['file'], ['denial']])
})

test('bytes that do not match the approved hash never replace the file', linuxOnly, async (t) => {
  const place = await askingHost(t)
  const evil = Buffer.from('evil text')
  const run = await place.ask(write(place.file, sha256(Buffer.from('good text'))), evil)
  send(run, evil)
  await place.decide('allow_once')
  assert.equal((await run.exit()).code, 1)
  assert.match(run.output('stderr').toString(), /\(EBADMSG\)/)
  assert.equal(await readFile(place.file, 'utf8'), 'old text')
})

test('a file that changes after the approval request is neither read nor replaced', linuxOnly, async (t) => {
  const place = await askingHost(t)
  const data = Buffer.from('new text')
  for (const [command, stdin] of [
    [read(place.file), undefined],
    [write(place.file, sha256(data)), data],
  ] as const) {
    const run = await place.ask(command, stdin)
    if (stdin !== undefined) send(run, stdin)
    await place.questions(1)
    await writeFile(place.file, 'secret')
    await place.decide('allow_once')
    assert.equal(await run.denial(), 'approval_denied')
    assert.equal(run.output().length, 0)
    assert.equal(await readFile(place.file, 'utf8'), 'secret')
  }
})

test('concurrent reads of one file version share one approval request, and later reads need none', linuxOnly, async (t) => {
  const place = await askingHost(t)
  const runs = [await place.ask(read(place.file)), await place.ask(read(place.file, 4))]
  const hash = await place.ask({ op: 'hash', path: place.file, version: null })
  await runs[0]!.frame('waiting')
  await place.decide('allow_once')
  for (const run of [...runs, hash]) assert.equal((await run.exit()).code, 0)
  assert.deepEqual(
    runs.map((run) => run.output().toString()),
    ['old ', 'text'],
  )
  assert.equal((await (await place.ask(read(place.file))).exit()).code, 0)
  await writeFile(place.file, 'new text')
  const again = await place.ask(read(place.file))
  await place.decide('deny')
  assert.equal(await again.denial(), 'approval_denied')
})

test('a refusal applies to all concurrent reads of a file, but a cancel only to its own', linuxOnly, async (t) => {
  const place = await askingHost(t)
  const [first, second] = [await place.ask(read(place.file)), await place.ask(read(place.file))]
  await first.frame('waiting')
  first.send({ type: 'cancel', request_id: first.id })
  assert.equal(await first.denial(), 'approval_denied')
  await second.frame('waiting')
  const third = await place.ask(read(place.file, 4))
  await place.decide('deny')
  for (const run of [second, third]) assert.equal(await run.denial(), 'approval_denied')
})

test('approval requests for files have the same limit as those for commands', linuxOnly, async (t) => {
  const place = await askingHost(t)
  const runs: ProbeRun[] = []
  for (let at = 0; at < MAX_WAITING_OF_AGENT; at++) {
    await writeFile(join(place.root, `${at}`), 'x')
    runs.push(await place.ask(read(join(place.root, `${at}`))))
  }
  await place.questions(MAX_WAITING_OF_AGENT)
  const more = await place.ask(read(place.file))
  assert.equal(await more.denial(), 'concurrency_limit_reached')
  // A waiting run holds no slot, so files that need no approval can still be listed.
  assert.equal((await (await place.ask({ op: 'stat', path: place.file })).exit()).code, 0)
  for (const run of runs) run.send({ type: 'cancel', request_id: run.id })
  await place.questions(0)
})
