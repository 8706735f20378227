import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { AppError } from '../../src/base/errors.ts'
import type { PageFiles } from '../../src/doors/page/services.ts'
import type { PageRunDetail } from '../../src/protocol/page-lists.ts'
import { buildPage } from '../../deploy/build-page.mjs'
import { pageFanout, pageHost, pagePeer, pageRun, pendingOf, type PageHost } from '../../test/support/page-host.ts'
import { until } from '../../test/support/processes.ts'
import type { Page } from 'playwright-core'
import { busyHost } from './busy-page.ts'
import { openPage, seriousFaults, skipsBrowser, WITHOUT_BROWSER, type BrowserPage } from './browser.ts'

/** Facts of a run in which every string is this text. */
const RUN_FACTS = (text: string): PageRunDetail['facts'] => ({
  door: text,
  session: text,
  matched_acl: text,
  approved_by: text,
  timeout_ms: 30_000,
  keep_bytes: 1_000_000,
  account: text,
  executable: text,
  cwd: text,
  env: [text],
  pid: 7,
  containment: 'cgroup',
  terminal: true,
  stdin_bytes: 5,
  stdout_bytes: 1_500,
  stderr_bytes: 0,
  truncated: true,
  detail: text,
  warnings: ['stdout_cap_hit'],
})

const files = async (): Promise<PageFiles> => (await buildPage()).files as PageFiles

const it = (title: string, body: (t: TestContext) => Promise<void>): void =>
  void test(`${title}${WITHOUT_BROWSER}`, { skip: skipsBrowser }, body)

/** A page that has followed its sign-in link. */
const signedIn = async (t: TestContext): Promise<PageHost & BrowserPage> => {
  const host = await pageHost(t, { files: await files() })
  const browser = await openPage(t)
  await browser.page.goto(host.server.newLink())
  await browser.page.getByText(/^Connected to x0xd of bob/).waitFor()
  await open(browser.page, 'Approvals')
  return { ...host, ...browser }
}

/** Opens a view by the navigation, which is in a menu on a phone. */
const open = async (page: Page, view: string): Promise<void> => {
  const link = page.getByRole('navigation', { includeHidden: true }).getByRole('link', { name: view, includeHidden: true })
  await link.waitFor({ state: 'attached' })
  if (!(await link.isVisible())) await page.getByRole('button', { name: /^Menu/ }).click()
  await link.click()
  await page.locator('main h2').first().waitFor()
}

/** A page of a host with much data, not signed in yet. */
const busyPage = async (t: TestContext): Promise<BrowserPage & { readonly host: PageHost }> => {
  const host = await pageHost(t, { files: await files(), sources: busyHost().sources })
  return { ...(await openPage(t)), host }
}

const VIEWS = ['Overview', 'Approvals', 'Peers', 'Runs', 'Fan-outs', 'Audit log', 'Trust', 'Enrolment', 'Policy'] as const

it('the link signs in once and leaves no code in the address or the history', async (t) => {
  const host = await pageHost(t, { files: await files() })
  const { page, complaints } = await openPage(t)
  await page.goto(host.origin)
  assert.equal(new URL(page.url()).pathname, '/sign-in')
  const link = host.server.newLink()
  await page.getByLabel('Or paste the link').fill(link)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByText(/^Connected to x0xd of bob/).waitFor()
  assert.equal(page.url(), `${host.origin}/`)
  assert.equal(await page.evaluate('document.cookie'), '')
  const { page: second } = await openPage(t)
  await second.goto(link)
  await second.getByText('this link was used').waitFor()
  assert.equal(second.url(), `${host.origin}/sign-in`)
  assert.deepEqual(complaints, [])
})

it('an approval request is shown whole, and Allow once sends the hash of what was shown', async (t) => {
  const { page, desk, complaints } = await signedIn(t)
  const pending = pendingOf('one', { argv: ['git', 'push', '--force', '', 'a b'], env_names: ['GIT_DIR'] })
  desk.ask(pending)
  await page.getByRole('article').waitFor()
  const words = await page.getByRole('list', { name: 'The command, word by word' }).getByRole('listitem').allTextContents()
  assert.deepEqual(words, ['"git"', '"push"', '"--force"', '""', '"a b"'])
  const text = (await page.getByRole('article').textContent()) ?? ''
  for (const part of ['"/usr/bin/git"', '"/srv/app"', '"GIT_DIR"', pending.question.permit_sha256, 'reviewer'])
    assert.ok(text.includes(part), part)
  assert.match((await page.getByRole('timer').textContent()) ?? '', /^[12]:[0-5]\d$/)
  await until(async () => (await page.title()) === '(1) x0x')
  await page.waitForTimeout(700)
  await page.getByRole('button', { name: 'Allow once' }).click()
  while (desk.decided.length === 0) await page.waitForTimeout(10)
  assert.deepEqual(desk.decided, [
    {
      question_id: pending.question_id,
      permit_sha256: pending.question.permit_sha256,
      decision: 'allow_once',
      expires_in_ms: null,
      uses: null,
    },
  ])
  for (const listener of desk.listeners)
    listener({ type: 'settled', question_id: pending.question_id, decision: 'allow_once', by: 'human:x0x ui' })
  await page.getByText('allow once by human:x0x ui').waitFor()
  await until(async () => (await page.title()) === 'x0x')
  assert.deepEqual(complaints, [])
})

it('stdin, values of variables and files that the requester can write are shown whole, line by line', async (t) => {
  const { page, desk } = await signedIn(t)
  const file = { path: '/srv/app/deploy.sh', sha256: 'd'.repeat(64) }
  desk.ask(
    pendingOf('one', {
      argv: ['sh'],
      stdin: { bytes: 30, sha256: 'e'.repeat(64), text: 'echo harmless\ntouch \u202e/x\n' },
      variables: [{ name: 'MAKEFLAGS', value: '--eval=$(shell touch /x)' }],
      script: file,
      writable: [file],
    }),
  )
  await page.getByRole('article').waitFor()
  const lines = await page.getByRole('list', { name: 'The input, line by line' }).getByRole('listitem').allTextContents()
  assert.deepEqual(lines, ['"echo harmless\\n"', '"touch \\u202e/x\\n"'])
  const text = (await page.getByRole('article').textContent()) ?? ''
  for (const part of [
    '"MAKEFLAGS" = "--eval=$(shell touch /x)"',
    `"${file.path}" SHA-256 ${file.sha256} the requester can write this file`,
  ])
    assert.ok(text.includes(part), `${part} in ${text}`)
  desk.ask(pendingOf('two', { stdin: { bytes: 30, sha256: 'e'.repeat(64), text: null } }))
  await page.getByText('This cannot be allowed: its stdin is not readable text').waitFor()
  assert.equal(await page.getByRole('button', { name: 'Allow once' }).count(), 1)
})

it('terminal escapes, bidirectional and invisible characters and letters of other scripts are shown as escapes', async (t) => {
  const { page, desk } = await signedIn(t)
  const bad = 'a\u202egnp.exe\u2069\u200b\x1b[2J\r\n\t\u00a0b'
  desk.ask(
    pendingOf('one', { argv: ['echo', bad, 'р\u0430ypal', '<img src=x onerror=alert(1)>'], cwd: '/srv/\u202eppa', why: 'x\u202ey\u0007' }),
  )
  await page.getByRole('article').waitFor()
  const text = (await page.getByRole('article').textContent()) ?? ''
  for (const hidden of '\u202e\u2069\u200b\x1b\u00a0\u0007') assert.ok(!text.includes(hidden))
  assert.ok(text.includes('"a\\u202egnp.exe\\u2069\\u200b\\x1b[2J\\r\\n\\t\\xa0b"'), text)
  assert.ok(text.includes('Not ASCII: U+0440 U+0430'))
  assert.ok(text.includes('"/srv/\\u202eppa"'))
  assert.equal(await page.locator('article img').count(), 0)
  assert.equal(await page.evaluate("getComputedStyle(document.querySelector('.token')).unicodeBidi"), 'isolate')
})

it('text from daemons and logs cannot reorder or hide other text in any view', async (t) => {
  const bad = 'x\u202ey\u200b'
  const run = pageRun('one', { who: bad, on: bad, argv: [bad], started_at: bad, result: 'denied', reason: bad, request_id: bad })
  const peer = pagePeer(bad, { labels: { [bad]: bad }, path: bad, version: bad, last_seen: bad, addresses: [bad] })
  const contact = { name: bad, agent_id: 'a'.repeat(64), trust: 'known', machines: [], labels: { [bad]: bad } } as const
  const slice = { from: 0, total: 1, problems: [bad] }
  const line = { ts: bad, event: bad, more: bad, chain: 'c', n: 0 }
  const request = { ts: bad, event: 'request', request_id: 'r', agent_id: 'a', argv: [bad], chain: 'c', n: 1 }
  const host = await pageHost(t, {
    files: await files(),
    sources: {
      about: async () => ({ version: '0', daemon: bad, data_dir: bad, agent_id: null, machine_id: null, name: bad }),
      runs: async () => ({ ...slice, rows: [run], older: true }),
      run: async () => ({
        run,
        facts: RUN_FACTS(bad),
        output: { text: bad, truncated: true },
        output_problem: bad,
        denial: { cause: bad, next: [bad] },
      }),
      fanouts: async () => ({ rows: [{ ...pageFanout('f', { ok: 1 }), argv: [bad] }], problems: [bad] }),
      peers: async () => ({ ...slice, rows: [peer], labels: [bad], versions: [bad], versions_missing: 1 }),
      contacts: async () => ({ ...slice, rows: [{ ...contact, revoked: false, revoked_machines: [] }], machines: {} }),
      journal: async () => ({
        ...slice,
        rows: [{ lines: [line] }, { lines: [request] }],
        journals: ['audit', bad],
        names: { a: bad },
        more: true,
        unread: 2,
      }),
    },
  })
  const { page } = await openPage(t)
  await page.goto(host.server.newLink())
  await page.getByText(/^Connected to/).waitFor()
  for (const [address, expected] of [
    ['#/runs', 4],
    [`#/runs/${encodeURIComponent('asked one')}`, 8],
    ['#/fanouts', 2],
    ['#/fanouts/f', 3],
    ['#/peers', 5],
    [`#/peers/${encodeURIComponent(peer.machine_id!)}`, 5],
    ['#/trust', 3],
    ['#/audit', 4],
  ] as const) {
    await page.evaluate(`location.hash = ${JSON.stringify(address)}`)
    await page
      .locator('main')
      .getByText('\\u202e')
      .nth(expected - 1)
      .waitFor()
    const text = (await page.locator('body').textContent()) ?? ''
    for (const hidden of '\u202e\u200b') assert.ok(!text.includes(hidden), `${address}: ${JSON.stringify(text)}`)
  }
  // The page says what a list leaves out.
  assert.match((await page.locator('main').textContent()) ?? '', /2 lines are too long.*Older entries are in this file/)
  await page.evaluate("location.hash = '#/runs'")
  await page.getByText('The logs have older runs').waitFor()
})

it('the policy view shows the source of each setting, and takes back modes and grants', async (t) => {
  const changes: unknown[] = []
  const settings = [
    { name: 'host', value: 'gateway', from: '[tools.exec] of the file' },
    { name: 'security', value: 'deny', from: 'the approvals store, which is stricter' },
  ] as const
  const agent = { agent: 'rev\u202eiewer', config: '/c.toml', settings, session: 'security=full' }
  const grant = {
    id: 'g_0000000000000000000000',
    grant_sha256: 'a'.repeat(64),
    agent: 'reviewer',
    argv: ['git', 'fetch'],
    executable: '/usr/bin/git',
    cwd: '/srv',
    timeout_ms: 30_000,
    max_output_bytes: 1_048_576,
    created_at_ms: 0,
    expires_at_ms: Date.now(),
    uses_left: 2,
    by: 'human:x',
    last_used_at_ms: null,
  }
  const others = [{ name: 's_\u202eone', modes: 'ask=off', by: 'human:x0x approvals' }] as const
  let grants = Array.from({ length: 21 }, (_, at) => ({ ...grant, argv: ['git', `fetch-${at}`], id: `g_${String(at).padStart(22, '0')}` }))
  const host = await pageHost(t, {
    files: await files(),
    sources: {
      modes: async () => ({ agents: [agent, { ...agent, agent: null, session: null }], others, grants, problems: [] }),
      revoke: async (id) => {
        changes.push(id)
        grants = grants.filter((one) => one.id !== id)
        return { revoked: true }
      },
      takeBackModes: async (...what) => {
        changes.push(what)
        return {}
      },
    },
  })
  const { page, complaints } = await openPage(t)
  await page.goto(host.server.newLink())
  await open(page, 'Policy')
  await page.getByText('by the approvals store, which is stricter').first().waitFor()
  assert.ok(((await page.locator('main').textContent()) ?? '').includes('"rev\\u202eiewer"'))
  await page.getByRole('button', { name: 'Take it back' }).first().click()
  await page.getByRole('article').filter({ hasText: '"s_\\u202eone"' }).getByRole('button', { name: 'Take it back' }).click()
  await page.getByRole('button', { name: 'The first 20 of 21 grants: show all' }).click()
  await page.getByText('"fetch-20"').waitFor()
  assert.deepEqual(await seriousFaults(page), [])
  await page.getByRole('button', { name: 'Revoke' }).last().click()
  await page.getByText('"fetch-20"').waitFor({ state: 'detached' })
  assert.deepEqual(changes, [['rev\u202eiewer'], ['s_\u202eone'], 'g_0000000000000000000020'])
  assert.deepEqual(complaints, [])
})

it('Always needs an end and a count, always-ask commands do not offer it, and an overlong request can only be denied', async (t) => {
  const { page, desk } = await signedIn(t)
  const pending = pendingOf('one')
  desk.ask(pending)
  await page.getByRole('button', { name: 'Always …' }).click()
  await page.getByLabel('It ends').selectOption('in a day')
  await page.getByLabel('Uses at most').fill('3')
  await page.waitForTimeout(700)
  await page.getByRole('button', { name: 'Always allow' }).click()
  while (desk.decided.length === 0) await page.waitForTimeout(10)
  assert.deepEqual(
    { ...desk.decided[0] },
    {
      question_id: pending.question_id,
      permit_sha256: pending.question.permit_sha256,
      decision: 'allow_always',
      expires_in_ms: 86_400_000,
      uses: 3,
    },
  )
  const each = pendingOf('two', { always_ask: 'it leaves this host', asker: { kind: 'local', label: 'two' } })
  desk.ask({ ...each, decisions: ['allow_once', 'deny'] })
  const card = page.locator(`[data-question="${each.question_id}"]`)
  await card.getByText('it leaves this host').waitFor()
  assert.equal(await card.getByRole('button', { name: 'Always' }).count(), 0)
  assert.equal(await card.getByRole('button', { name: 'Allow once' }).count(), 1)
  const long = pendingOf('three', { argv: ['echo', 'x'.repeat(40_000)], asker: { kind: 'local', label: 'three' } })
  desk.ask(long)
  const longCard = page.locator(`[data-question="${long.question_id}"]`)
  await longCard.getByText('too long to show').waitFor()
  assert.deepEqual(await longCard.getByRole('button').allTextContents(), ['Deny'])
})

it('a click on a list that has just changed allows nothing, and an earlier decision of another approver is shown', async (t) => {
  const { page, desk } = await signedIn(t)
  const pending = pendingOf('one')
  desk.ask(pending)
  await page.evaluate(
    'new Promise((done) => { const look = () => { const button = document.querySelector("article .primary"); if (button === null) return setTimeout(look, 1); button.click(); done() }; look() })',
  )
  await page.getByText('The list has just changed').waitFor()
  assert.deepEqual(desk.decided, [])
  desk.refuses = new AppError('conflict', 'human:x0x approvals has denied it before', { data: { won_by: 'human:x0x approvals' } })
  await page.waitForTimeout(700)
  await page.getByRole('button', { name: 'Allow once' }).click()
  await page.getByText('human:x0x approvals has denied it before').waitFor()
})

it('a flood of one requester shows three requests and a count, and does not hide requests of others', async (t) => {
  const { page, desk } = await signedIn(t)
  for (let at = 0; at < 12; at++) desk.ask(pendingOf(`f-${at}-`, { asker: { kind: 'local', label: 'flood' } }))
  desk.ask(pendingOf('late', { asker: { kind: 'local', label: 'quiet' } }))
  for (const listener of desk.listeners) listener({ type: 'flood', flood: { asker: 'flood', count: 40, last_at_ms: Date.now() } })
  await page.getByText('9 more from "flood" (a label), through mcp').waitFor()
  await page.getByText('40 more from flood').waitFor()
  assert.equal(await page.locator('article:visible').count(), 4)
  await page.getByText('13 requests for you').waitFor()
})

it('single keys can move and deny, but no single key allows', async (t) => {
  const { page, desk } = await signedIn(t)
  const [one, two] = [pendingOf('one'), pendingOf('two')]
  desk.ask(one)
  desk.ask({ ...two, asked_at_ms: two.asked_at_ms + 1 })
  await page.locator(`[data-question="${two.question_id}"]`).waitFor()
  await page.waitForTimeout(700)
  await page.keyboard.press('j')
  await page.keyboard.press('j')
  for (const key of 'abcefghilmnopqrstuvwxyz0A'.split('')) await page.keyboard.press(key)
  for (const key of ['Enter', 'Space']) await page.keyboard.press(key)
  assert.deepEqual(desk.decided, [])
  await page.keyboard.press('d')
  while (desk.decided.length === 0) await page.waitForTimeout(10)
  const [denied] = desk.decided.map(({ question_id, decision }) => [question_id, decision])
  assert.deepEqual(denied, [two.question_id, 'deny'])
  await page.keyboard.press('6')
  await page.getByRole('heading', { name: 'Audit log' }).waitFor()
  await page.keyboard.press('?')
  await page.getByText('no single key that allows a command').waitFor()
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  await page.keyboard.press('/')
  await until(async () => page.evaluate('document.activeElement.matches("[data-search]")'))
})

it('no view is wider than the screen on phones and wide monitors, even with long names', async (t) => {
  const { page, host } = await busyPage(t)
  await page.goto(host.server.newLink())
  await page.getByText(/^Connected to/).waitFor()
  for (const width of [390, 768, 1280, 1920]) {
    await page.setViewportSize({ width, height: 844 })
    for (const view of VIEWS) {
      await open(page, view)
      await page.locator('main .quiet, main .empty, main table, main .entries, main .card').first().waitFor()
      assert.equal(await page.evaluate('document.documentElement.scrollWidth'), width, `${view} at ${width}`)
    }
  }
})

it('no view has an accessibility fault that axe-core rates as serious, in light and dark and with open details', async (t) => {
  const { page, host, complaints } = await busyPage(t)
  await page.goto(host.server.newLink())
  await page.getByText(/^Connected to/).waitFor()
  host.desk.ask(pendingOf('one', { always_ask: 'it leaves this host', argv: ['git', 'p\u0430sh'], opaque: 'a hook may run anything' }))
  await page.getByRole('link', { name: /waits for your decision/ }).waitFor()
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    for (const view of VIEWS) {
      await open(page, view)
      assert.deepEqual(await seriousFaults(page), [], `${view} ${colorScheme}`)
    }
    for (const address of ['#/runs/asked%20denied', '#/fanouts/f', `#/peers/${'web1'.padEnd(64, '0')}`]) {
      await page.evaluate(`location.hash = ${JSON.stringify(address)}`)
      await page.locator('main .crumbs').waitFor()
      assert.deepEqual(await seriousFaults(page), [], `${address} ${colorScheme}`)
    }
    await open(page, 'Trust')
    await page.getByRole('button', { name: 'Change web1' }).first().click()
    await page.getByRole('dialog').waitFor()
    assert.deepEqual(await seriousFaults(page), [], `dialog ${colorScheme}`)
    await page.keyboard.press('Escape')
  }
  assert.deepEqual(complaints, [])
})
