import assert from 'node:assert/strict'
import { chmod, copyFile, readFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { deskFindings } from '../../src/doctor/desk-check.ts'
import { deskPlace } from '../support/desk-place.ts'
import { questionOf } from '../support/approval-request.ts'
import { runCli } from '../support/fake-daemon.ts'

const never = new AbortController().signal
const nothing = (): void => undefined

/** An approval service with a store that release 0.2.0 wrote. */
const oldPlace = async (t: TestContext) => {
  const place = await deskPlace(t)
  await copyFile(new URL('stores/exec-approvals-0.2.0.json', import.meta.url), place.paths.approvals)
  await chmod(place.paths.approvals, 0o600)
  // Set the creation time of the grant to an hour ago.
  const now = Date.now()
  await place.writeStore((store) => Object.assign(store['grants'][0], { created_at_ms: now - 3_600_000, expires_at_ms: now + 86_400_000 }))
  await place.restart()
  return place
}

const REMEDIES = [
  'x0x approvals allowlist add reviewer /usr/bin/git --opaque',
  "x0x approvals allowlist remove reviewer '/usr/bin/*'",
  "x0x approvals allowlist remove reviewer '/**'",
  'x0x approvals revoke g_L2ncUKorQYMKnJqCQ3e_HA',
  'x0x exec-mode set security=deny --agent reviewer && x0x exec-mode save --agent reviewer',
  'x0x exec-mode set security=full ask=off --agent builder && x0x exec-mode save --agent builder',
  'x0x exec-mode off --saved --agent courier',
]

test('the doctor and the list name each ineffective row of an old store and the command that restores it', async (t) => {
  const place = await oldPlace(t)
  const warned = (await deskFindings(place.paths)).filter(({ standing, topic }) => standing === 'warn' && topic === 'approval store')
  assert.deepEqual(
    warned.map(({ remedy }) => remedy),
    REMEDIES,
  )
  const list = async (...argv: string[]) => (await runCli(['--data-dir', place.paths.dir, ...argv, 'approvals', 'list'])).stdout
  const { ineffective } = JSON.parse(await list('--json')) as { ineffective: { remedy: string }[] }
  assert.deepEqual(
    ineffective.map(({ remedy }) => remedy),
    REMEDIES,
  )
  const text = await list()
  for (const remedy of REMEDIES) {
    const line = remedy.replaceAll('x0x ', `x0x --data-dir ${place.paths.dir} `)
    assert.ok(text.includes(`  Try: ${line}\n`), line)
  }
  assert.match(text, /^has no effect: saved host=sandbox security=deny of reviewer: /m)
})

test('an old store allows no agent more than before, and an agent with saved modes runs nothing, with or without a service', async (t) => {
  const place = await oldPlace(t)
  const human = await place.human()
  await human.subscribe(nothing)
  const saved = { code: 'approval_unavailable', message: /saved modes for reviewer \(host=sandbox security=deny\)/ }
  for (const link of [place.link, place.engine()]) {
    await assert.rejects(link.override('s_1', 'reviewer'), saved)
    assert.equal(await link.override('s_1', 'other'), null)
  }
  const answer = await place.link.ask(questionOf({ session_id: 's_1', security: 'full' }), never, nothing)
  assert.deepEqual([answer.decision, answer.by], ['deny', 'desk'])
  // The old grant has no effect, so the service asks an approver.
  const pending = Promise.withResolvers<unknown>()
  const ending = new AbortController()
  const asked = place.link.ask(questionOf({ asker: { kind: 'local', label: 'other' } }), ending.signal, pending.resolve)
  await Promise.race([pending.promise, asked.then(({ by }) => assert.fail(`it was decided by ${by}`))])
  ending.abort(new Error('over'))
  await asked.catch(nothing)
  await place.stop()
  await assert.rejects(place.engine().override('s_1', 'reviewer'), saved)
})

test('the listed commands work and move the old modes into the rows of the store', async (t) => {
  const place = await oldPlace(t)
  for (const line of REMEDIES.flatMap((remedy) => remedy.split(' && '))) {
    const argv = line.replaceAll("'", '').split(' ').slice(1)
    const { status, stderr } = await runCli(['--data-dir', place.paths.dir, ...argv])
    assert.equal(status, 0, `${line}: ${stderr}`)
  }
  const { agents, grants, modes } = JSON.parse(await readFile(place.paths.approvals, 'utf8'))
  assert.deepEqual(grants, [])
  assert.equal(modes, undefined)
  assert.deepEqual(agents['builder'], { security: 'full', ask: 'off' })
  assert.deepEqual(agents['reviewer'], {
    allowlist: [{ pattern: '/usr/bin/df' }, { pattern: '/usr/bin/git', opaque: true }],
    security: 'deny',
  })
  assert.equal((await deskFindings(place.paths)).filter(({ standing }) => standing === 'warn').length, 0)
  assert.equal(await place.engine().override('s_1', 'courier'), null)
})
