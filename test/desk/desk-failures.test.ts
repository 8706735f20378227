import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, readFile, rename, rm } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'

import { systemClock } from '../../src/base/clock.ts'
import { DeskSocketLink } from '../../src/desk/engine-client.ts'
import { DESK_LINES, DESK_REQUESTS } from '../../src/protocol/limits/approvals.ts'
import { pathsIn, type DataPaths } from '../../src/clients/paths.ts'
import { openDesk as openHuman } from '../../src/clients/desk.ts'
import { programArguments } from '../../src/supervision/own-process.ts'
import { deskPlace, questionWaiting } from '../support/desk-place.ts'
import { questionOf } from '../support/approval-request.ts'
import { tempDir } from '../support/temp-dir.ts'

const never = new AbortController().signal
const nothing = (): void => undefined

test('if the approval log cannot be written, requests are denied and no grant or pattern is saved', async (t) => {
  const place = await deskPlace(t)
  const { human, asked, question_id } = await questionWaiting(place)
  const before = await readFile(place.paths.approvals, 'utf8')
  // A directory in place of the file cannot be written by any user, including root.
  await rename(place.paths.approvalsJournal, `${place.paths.approvalsJournal}.old`)
  await mkdir(place.paths.approvalsJournal)
  const decided = { question_id, permit_sha256: questionOf().permit_sha256 }
  await assert.rejects(human.decide({ ...decided, decision: 'allow_always' }), { code: 'journal_unavailable' })
  assert.equal(await readFile(place.paths.approvals, 'utf8'), before)
  await assert.rejects(human.decide({ ...decided, decision: 'allow_once' }), { code: 'approval_unavailable' })
  assert.equal((await asked).decision, 'deny')
  await assert.rejects(place.engine().ask(questionOf(), never, nothing), { code: 'approval_unavailable' })
  await assert.rejects(human.allowlist('allowlist_add', 'reviewer', '/usr/bin/git'), { code: 'journal_unavailable' })
  await rm(place.paths.approvalsJournal, { recursive: true })
})

test('if the service cannot read the saved modes, an engine gets an error instead of no modes', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  await human.setModes('reviewer', { host: 'sandbox', security: 'deny', ask: null, node: null, elevated: null })
  const open = place.engine()
  assert.equal((await open.override('s_1', 'reviewer'))?.security, 'deny')
  await chmod(place.paths.approvals, 0o666)
  for (const link of [open, place.engine(), place.link])
    await assert.rejects(link.override('s_1', 'reviewer'), { code: 'approval_unavailable' })
  await chmod(place.paths.approvals, 0o600)
  assert.equal((await open.override('s_1', 'reviewer'))?.security, 'deny')
})

test('without an approval service an engine uses no modes, but after a service stopped it runs nothing', async (t) => {
  const place = await deskPlace(t)
  const there = new DeskSocketLink({ ...place.paths, name: 'engine' })
  t.after(() => there.close())
  assert.equal(await there.override('s_1', null), null)
  await place.stop()
  await assert.rejects(there.override('s_1', null), { code: 'approval_unavailable', message: /the approval service has stopped/ })
  const later = place.engine()
  assert.equal(await later.override('s_1', 'reviewer'), null)
  await chmod(place.paths.approvals, 0o666)
  await assert.rejects(later.override('s_1', 'another'), { code: 'approval_unavailable' })
  await rm(place.paths.approvals)
  assert.equal(await later.override('s_1', 'reviewer'), null)
})

test('an engine that sends too many requests is slowed down or refused, and its open request remains', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  await human.subscribe(nothing)
  const pending = Promise.withResolvers<{ question_id: string }>()
  const engine = place.engine()
  const asked = engine.ask(questionOf(), never, pending.resolve)
  const { question_id } = await pending.promise
  const said = await Promise.allSettled(Array.from({ length: 2 * DESK_LINES.burst }, async () => engine.override('s_1', null)))
  assert.ok(said.some(({ status }) => status === 'fulfilled'))
  for (const one of said) if (one.status === 'rejected') assert.match(String(one.reason), /too many approval requests at once/)
  await human.decide({ question_id, permit_sha256: questionOf().permit_sha256, decision: 'allow_once' })
  assert.equal((await asked).decision, 'allow')
})

test(
  'a store in a read-only directory gets no grant, and the request remains open',
  { skip: process.geteuid?.() === 0 ? 'root writes there all the same' : false },
  async (t) => {
    const place = await deskPlace(t)
    const { human, asked, question_id } = await questionWaiting(place)
    await chmod(place.paths.dir, 0o500)
    const decided = { question_id, permit_sha256: questionOf().permit_sha256 }
    await assert.rejects(human.decide({ ...decided, decision: 'allow_always' }))
    await chmod(place.paths.dir, 0o700)
    assert.equal((await human.pending()).questions.length, 1)
    await human.decide({ ...decided, decision: 'allow_once' })
    assert.equal((await asked).decision, 'allow')
  },
)

/** Starts the service and waits until it prints its ready line. */
const startDesk = async (t: TestContext, paths: DataPaths): Promise<ChildProcess> => {
  const program = new URL('../../src/programs/desk/main.ts', import.meta.url).pathname
  const child = spawn(process.execPath, [...programArguments(program), '--data-dir', paths.dir], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => child.kill('SIGKILL'))
  const [said] = (await once(child.stdout, 'data')) as [Buffer]
  assert.match(said.toString(), /^x0x desk: approval service for /)
  return child
}

test('a killed x0x desk denies open requests, and its successor closes them in the log and knows the saved modes', async (t) => {
  const paths = pathsIn(await tempDir(t))
  const first = await startDesk(t, paths)
  const human = await openHuman(paths, 'terminal')
  t.after(() => human.close())
  await human.saveModes('reviewer', { security: 'allowlist', ask: null })
  await human.subscribe(nothing)
  const engine = new DeskSocketLink({ ...paths, name: 'engine' })
  t.after(() => engine.close())
  const pending = Promise.withResolvers<unknown>()
  const asked = engine.ask(questionOf(), never, pending.resolve)
  await pending.promise
  const ended = once(first, 'exit')
  first.kill('SIGKILL')
  await assert.rejects(asked, { code: 'approval_unavailable' })
  await ended
  // Rotate the log. The open request is now in the renamed file.
  await rename(paths.approvalsJournal, `${paths.approvalsJournal}.1`)
  const second = await startDesk(t, paths)
  const again = await openHuman(paths, 'terminal')
  t.after(() => again.close())
  assert.equal((await again.pending()).questions.length, 0)
  const {
    lines: [question, gone],
  } = (await again.history(2)) as { lines: [Record<string, unknown>, Record<string, unknown>] }
  assert.deepEqual([question['event'], gone['outcome'], gone['question_id']], ['question', 'desk_gone', question['question_id']])
  assert.equal((await again.modes({ session: null, agent: 'reviewer' }))['security'], 'allowlist')
  assert.equal((await engine.ask(questionOf(), never, nothing)).decision, 'no_ui')
  const third = spawn(process.execPath, second.spawnargs.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] })
  t.after(() => third.kill('SIGKILL'))
  let said = ''
  third.stderr.setEncoding('utf8').on('data', (text: string) => (said += text))
  assert.deepEqual(await once(third, 'close'), [1, null])
  assert.match(said, new RegExp(`run by .*pid ${second.pid}`))
  const over = once(second, 'exit')
  second.kill('SIGINT')
  assert.deepEqual(await over, [130, null])
})

test('an approval service that stops while a request waits for its rate limit denies it', { timeout: 30_000 }, async (t) => {
  const place = await deskPlace(t)
  let at = 0
  const engine = new DeskSocketLink({ ...place.paths, name: 'engine' }, { ...systemClock, monotonic: () => at })
  t.after(() => engine.close())
  await Promise.all(Array.from({ length: DESK_REQUESTS.burst }, async () => engine.override('s_1', null)))
  const denied = assert.rejects(engine.ask(questionOf(), never, nothing), { code: 'approval_unavailable' })
  // The engine is connected, but the rate limit gives it no turn before the clock advances.
  await nextTurn()
  await place.stop()
  at = 1_000
  await denied
})

test('a request withdrawn while it is being recorded is closed exactly once in the approval log', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  await human.subscribe(nothing)
  const ending = new AbortController()
  const asked = place.link.ask(questionOf(), ending.signal, nothing)
  ending.abort(new Error('gone'))
  await assert.rejects(asked, { message: 'gone' })
  await place.restart()
  const outcomes = (await place.journal()).filter(({ event }) => event === 'approval').map(({ outcome }) => outcome)
  assert.deepEqual(outcomes, ['withdrawn'])
})
