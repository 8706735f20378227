import assert from 'node:assert/strict'
import { rm, writeFile } from 'node:fs/promises'
import { test } from 'node:test'

import { deskFindings } from '../../src/doctor/desk-check.ts'
import { pathsIn } from '../../src/clients/paths.ts'
import { deskPlace } from '../support/desk-place.ts'
import { watching } from '../support/desk-watcher.ts'
import { questionOf } from '../support/approval-request.ts'
import { tempDir } from '../support/temp-dir.ts'

const linesOf = async (paths: ReturnType<typeof pathsIn>): Promise<string[]> =>
  (await deskFindings(paths)).map(({ standing, topic, text }) => `${standing} ${topic} ${text}`)

test('the doctor shows the approvers, open requests and modes of each agent, and asks for no approval', async (t) => {
  const desk = await deskPlace(t)
  await desk.writeStore((store) => (store['agents'] = { 'a\u001b[2J': { ask: 'always' } }))
  const { approvals, approvalsSocket } = desk.paths
  assert.deepEqual(await linesOf(desk.paths), [
    `ok approval service it answers at ${approvalsSocket}; open: 0 approval requests`,
    'ok approvers none is connected, so requests that need approval are denied: run x0x approvals watch, or open x0x ui',
    `ok approval store ${approvals} is valid`,
    'ok modes default: security allowlist, ask on-miss, no approver connected: deny',
    'ok modes a\\x1b[2J: security allowlist, ask always, no approver connected: deny',
  ])
  const { next } = await watching(desk)
  const ending = new AbortController()
  const asked = desk.link.ask(questionOf(), ending.signal, () => undefined)
  await next()
  assert.deepEqual((await linesOf(desk.paths)).slice(0, 2), [
    `ok approval service it answers at ${approvalsSocket}; open: 1 approval request`,
    'ok approvers 1 approval client connected; the first answer counts',
  ])
  ending.abort()
  await asked.catch(() => undefined)
})

test('the doctor names each ineffective pattern and grant, and the command that replaces it', async (t) => {
  const desk = await deskPlace(t)
  await desk.writeStore((store) => {
    const allowlist = [
      { pattern: '/usr/bin/df' },
      { pattern: '/usr/bin/make', opaque: true },
      { pattern: '/usr/bin/git', lastUsedAt: 0, lastUsedCommand: '', lastResolvedPath: '' },
      { pattern: '/**' },
    ]
    store['agents'] = { codex: { allowlist } }
    // A grant of a release in which a grant for any program could last a month.
    const [made, day] = [Date.now() - 2 * 86_400_000, 86_400_000]
    store['grants'] = ['/usr/bin/git', '/usr/bin/df'].map((executable, at) => ({
      id: `g_${String(at).repeat(22)}`,
      grant_sha256: String(at).repeat(64),
      agent: 'codex',
      argv: ['x'],
      executable,
      cwd: '/',
      timeout_ms: 30_000,
      max_output_bytes: 1_024,
      created_at_ms: made,
      expires_at_ms: made + 30 * day,
      uses_left: null,
      by: 'human:x',
      last_used_at_ms: null,
    }))
  })
  const told = (await deskFindings(desk.paths)).filter(({ standing }) => standing === 'warn')
  assert.deepEqual(
    told.map(({ remedy }) => remedy),
    [
      'x0x approvals allowlist add codex /usr/bin/git --opaque',
      "x0x approvals allowlist remove codex '/**'",
      `x0x approvals revoke g_${'0'.repeat(22)}`,
    ],
  )
  assert.match(told[0]?.text ?? '', /^\/usr\/bin\/git of codex has no effect: .* codex could run anything with it$/)
  assert.match(told[1]?.text ?? '', /^\/\*\* of codex has no effect: it covers whole directories/)
})

test('a broken store, a foreign approval service and a missing one each come with a remedy', async (t) => {
  const desk = await deskPlace(t)
  await writeFile(desk.paths.approvals, '{')
  const broken = await deskFindings(desk.paths)
  assert.deepEqual([broken[2]?.standing, broken[2]?.topic], ['fail', 'approval store'])
  assert.match(broken[2]?.remedy ?? '', /^fix .*exec-approvals\.json, or move it away/)
  await writeFile(desk.paths.operatorKey, `${'08'.repeat(32)}\n`)
  const [foreign] = await deskFindings(desk.paths)
  assert.deepEqual([foreign?.standing, foreign?.remedy], ['warn', 'run this as the user of the approval service'])
  await rm(desk.paths.approvals)
  const [none] = await deskFindings(pathsIn(await tempDir(t)))
  assert.deepEqual([none?.standing, none?.topic], ['warn', 'approval service'])
  assert.match(`${none?.text} ${none?.remedy}`, /^no approval service answers at .* start x0xd --init, or x0x desk/)
})
