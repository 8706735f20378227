import assert from 'node:assert/strict'
import { readFile, stat } from 'node:fs/promises'
import { test } from 'node:test'

import type { ApprovalRequest } from '../../src/protocol/desk/approval-request.ts'
import { deskPlace, type DeskPlaceHandle } from '../../test/support/desk-place.ts'
import { runCli } from '../../test/support/fake-daemon.ts'
import { until } from '../../test/support/mesh-of-daemons.ts'
import { questionOf } from '../../test/support/approval-request.ts'
import { typedCli } from '../../test/support/typed-cli.ts'

// The command line with a real approval service. An engine sends approval requests over its socket.

const ask = (place: DeskPlaceHandle, changed: Partial<ApprovalRequest> = {}) =>
  place.engine('x0x mcp').ask(questionOf(changed), new AbortController().signal, () => undefined)

const cliOf =
  ({ paths }: DeskPlaceHandle) =>
  async (...argv: string[]) =>
    runCli(['--data-dir', paths.dir, ...argv])

/** The approval service holds a request only while an approval client is connected. */
const pendingId = async (place: DeskPlaceHandle): Promise<string> =>
  until('a question', async () => {
    const { stdout } = await cliOf(place)('--json', 'approvals', 'pending')
    return (JSON.parse(stdout) as { questions: { question_id: string }[] }).questions[0]?.question_id ?? null
  })

test('the command line shows a request and allows it once, the engine gets the answer, and the history has it', async (t) => {
  const place = await deskPlace(t)
  await (await place.human('watching')).subscribe(() => undefined)
  const cli = cliOf(place)
  const answer = ask(place)
  const id = await pendingId(place)
  const approved = await cli('approvals', 'approve', id.slice(0, 12))
  assert.deepEqual([approved.status, approved.stderr], [0, ''])
  assert.deepEqual([(await answer).decision, (await answer).by], ['allow', 'human:x0x approvals'])
  const late = await cli('approvals', 'deny', id)
  assert.equal(late.status, 1)
  const { stdout } = await cli('approvals', 'history')
  assert.match(stdout, new RegExp(`question +${id} .* git push origin\n[^]*approval +${id} +allowed +human:x0x approvals`))
})

test('O7: modes are set for a session, shown, removed by off, and stored only after a save', async (t) => {
  const place = await deskPlace(t)
  const cli = cliOf(place)
  const mode = async (...argv: string[]): Promise<string> => {
    const { status, stdout, stderr } = await cli('exec-mode', ...argv, '--agent', 'reviewer')
    assert.equal(status, 0, stderr)
    return stdout.split('\n')[0]!
  }
  const engine = place.engine()
  assert.equal(await mode('set', 'host=node', 'node=bob'), 'reviewer: host=node node=bob')
  assert.equal(await mode('/elevated', 'ask'), 'reviewer: host=node node=bob /elevated ask')
  assert.deepEqual(await engine.override('reviewer', 'reviewer'), {
    host: 'gateway',
    security: 'full',
    ask: 'always',
    node: 'bob',
    elevated: null,
  })
  assert.equal(await mode('/elevated', 'off'), 'reviewer: host=node node=bob')
  await place.restart()
  assert.equal(await mode('show'), 'reviewer: as configured')
  await mode('set', 'ask=always')
  await mode('save')
  // A later save adds to the stored entry and does not drop what narrows it.
  await mode('off')
  await mode('set', 'security=allowlist')
  await mode('save')
  await place.restart()
  assert.equal(await place.engine().override('reviewer', 'reviewer'), null)
  assert.deepEqual((await place.store())['agents']['reviewer'], { security: 'allowlist', ask: 'always' })
  // A mode for one session or for all sessions of an agent is listed next to the saved mode, and can be removed.
  await mode('/elevated', 'full')
  await cli('exec-mode', 'set', 'ask=off', '--session', 's_1')
  const { stdout: listed } = await cli('exec-mode', 'list')
  for (const line of [
    /^reviewer +\/elevated full +human:x0x approvals, /m,
    /^s_1 +ask=off +human:/m,
    /^reviewer +security=allowlist ask=always +saved$/m,
  ])
    assert.match(listed, line)
  const { stdout: shown } = await cli('exec-mode', 'show', '--session', 's_1', '--agent', 'reviewer')
  assert.deepEqual(shown.split('\n').slice(0, 4), [
    's_1: ask=off',
    'all sessions of reviewer: /elevated full',
    'together: host=gateway security=full ask=off',
    'the store says: security=allowlist ask=always, no approver connected: deny',
  ])
  await cli('exec-mode', 'off', '--session', 's_1')
  await mode('/elevated', 'off')
  // The store has no field for a host, so the command reports that the host is not saved.
  await mode('set', 'host=gateway', 'ask=always')
  assert.match((await cli('exec-mode', 'save', '--agent', 'reviewer')).stderr, /host and node are not saved/)
  await mode('off', '--saved')
  assert.equal((await cli('exec-mode', 'save', '--agent', 'reviewer')).status, 1)
  assert.match((await cli('exec-mode', 'list')).stdout, /^no modes are set/)
  assert.equal(await place.engine().override('s_1', 'reviewer'), null)
})

test('O8: a new store has the documented format and the safest settings, and only its user can read it', async (t) => {
  const place = await deskPlace(t, { security: 'deny' })
  const store = await place.store()
  assert.deepEqual(Object.keys(store).slice(0, 4), ['version', 'socket', 'defaults', 'agents'])
  assert.deepEqual([store['version'], store['agents']], [1, {}])
  assert.deepEqual(store['defaults'], { security: 'deny', ask: 'on-miss', askFallback: 'deny' })
  assert.deepEqual(Object.keys(store['socket']), ['path', 'token'])
  for (const path of [place.paths.approvals, place.paths.approvalsSocket, place.paths.approvalsJournal])
    assert.equal((await stat(path)).mode & 0o777, 0o600, path)
  await cliOf(place)('approvals', 'allowlist', 'add', 'reviewer', '/usr/bin/git', '--opaque')
  await place.writeStore((now) => (now['defaults'].security = 'allowlist'))
  assert.equal((await ask(place)).decision, 'allow')
  const used = await until('the last use', async () => {
    const [one] = (await place.store())['agents'].reviewer.allowlist
    return 'lastUsedAt' in one ? one : null
  })
  assert.deepEqual([used.pattern, used.lastUsedCommand, used.lastResolvedPath], ['/usr/bin/git', 'git push origin', '/usr/bin/git'])
  assert.ok(!(await readFile(place.paths.approvalsJournal, 'utf8')).includes(store['socket'].token))
})

test('an approval client at a terminal decides a request, and after its end no approver is connected', async (t) => {
  const place = await deskPlace(t)
  const cli = typedCli(['--data-dir', place.paths.dir, 'approvals', 'watch'])
  await cli.until(/no open requests/)
  const first = ask(place)
  await cli.until(/a once/)
  cli.type('a')
  assert.equal((await first).decision, 'allow')
  await cli.until(/allowed once: q_/)
  const second = ask(place, { argv: ['git', 'pull'], permit_sha256: 'c'.repeat(64), grant_sha256: 'd'.repeat(64) })
  await cli.until(/a once/)
  cli.type('q')
  assert.equal(await cli.status, 0)
  assert.equal((await second).decision, 'no_ui')
})
