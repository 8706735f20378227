import assert from 'node:assert/strict'
import { open, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { parseLine } from '../../src/journal/parse-line.ts'
import { errnoOf } from '../../src/base/errors.ts'
import { readStore } from '../../src/desk/store-format.ts'
import type { ApprovalClient } from '../../src/clients/desk.ts'
import { deskPlace } from '../support/desk-place.ts'
import { questionOf } from '../support/approval-request.ts'
import { NO_DISK, smallDisk } from '../support/small-disk.ts'

const never = new AbortController().signal
const nothing = (): void => undefined

/** Uses every free byte of the disk, including those in the last page of the log. */
const fill = async (path: string, human: ApprovalClient): Promise<void> => {
  const file = await open(path, 'w')
  try {
    for (let size = 64 * 1024; size > 0; size = size === 1 ? 0 : size >> 1)
      await (async () => {
        for (;;) if ((await file.write(Buffer.alloc(size))).bytesWritten < size) return
      })().catch((error: unknown) => assert.equal(errnoOf(error), 'ENOSPC'))
  } finally {
    await file.close()
  }
  for (let n = 0; (await human.setModes('s_0', null).catch(() => null)) !== null; n++) assert.ok(n < 64, 'there is room without end')
}

test('on a full disk every request is denied, the store stays intact, and requests work again when there is space', async (t) => {
  const dir = await smallDisk(t, 1_024)
  if (dir === null) return t.skip(NO_DISK)
  const place = await deskPlace(t, { dir })
  const human = await place.human()
  await human.subscribe(nothing)
  const wait = async (changed: Parameters<typeof questionOf>[0]) => {
    const pending = Promise.withResolvers<{ question_id: string }>()
    const asked = place.link.ask(questionOf(changed), never, pending.resolve)
    const { question_id } = await pending.promise
    return { asked, decided: { question_id, permit_sha256: questionOf(changed).permit_sha256 } }
  }
  const first = await wait({})
  await human.decide({ ...first.decided, decision: 'allow_always', uses: 3 })
  const other = { grant_sha256: 'd'.repeat(64), permit_sha256: 'c'.repeat(64) }
  const second = await wait(other)
  const before = await readFile(place.paths.approvals, 'utf8')
  await fill(join(dir, 'full'), human)
  // A use that cannot be counted and a decision that cannot be written have no effect and leave no grant.
  await assert.rejects(place.link.ask(questionOf(), never, nothing), { code: 'approval_unavailable', message: /cannot be written/ })
  await assert.rejects(human.decide({ ...second.decided, decision: 'allow_always' }))
  await assert.rejects(human.allowlist('allowlist_add', 'reviewer', '/usr/bin/git'))
  await assert.rejects(human.decide({ ...second.decided, decision: 'allow_once' }), { code: 'approval_unavailable' })
  assert.equal((await second.asked).decision, 'deny')
  assert.equal(await readFile(place.paths.approvals, 'utf8'), before)
  await rm(join(dir, 'full'))
  // The first request may fail until the service checks the disk again.
  const third = await wait(other).catch(async () => wait(other))
  await human.decide({ ...third.decided, decision: 'allow_once' })
  assert.equal((await third.asked).decision, 'allow')
  for (const left of [1, 0]) {
    assert.match((await place.link.ask(questionOf(), never, nothing)).by, /^grant:/)
    assert.equal((await human.grants())[0]?.uses_left, left)
  }
  assert.equal(readStore(await readFile(place.paths.approvals), 'file').grants.length, 1)
  // A line that the full disk cut off is invalid and marked as such.
  const lines = (await readFile(place.paths.approvalsJournal, 'utf8')).split('\n').map((line) => parseLine(Buffer.from(line)))
  const approved = lines.filter((line) => line?.event === 'approval' && line.reason.startsWith('always'))
  assert.equal(approved.length, 1, 'no line says of a grant that it is there where it is not')
})

test('a decision that cannot be logged leaves no grant, even if the store can be written', async (t) => {
  const [store, journal] = [await smallDisk(t, 1_024), await smallDisk(t, 1_024)]
  if (store === null || journal === null) return t.skip(NO_DISK)
  const place = await deskPlace(t, { dir: store, journal })
  const human = await place.human()
  await human.subscribe(nothing)
  const pending = Promise.withResolvers<{ question_id: string }>()
  const ending = new AbortController()
  const asked = place.link.ask(questionOf(), ending.signal, pending.resolve)
  const { question_id } = await pending.promise
  await fill(join(journal, 'full'), human)
  const decided = { question_id, permit_sha256: questionOf().permit_sha256, decision: 'allow_always' as const }
  await assert.rejects(human.decide(decided), { code: 'journal_unavailable' })
  assert.deepEqual(await human.grants(), [])
  assert.equal((await human.pending()).questions.length, 1)
  await rm(join(journal, 'full'))
  const { grant_id } = await human.decide(decided).catch(async () => human.decide(decided))
  assert.equal((await human.grants())[0]?.id, grant_id)
  assert.equal((await asked).decision, 'allow')
})
