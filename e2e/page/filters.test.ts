import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { buildPage } from '../../deploy/build-page.mjs'
import { systemClock } from '../../src/base/clock.ts'
import type { PageFiles } from '../../src/doors/page/services.ts'
import { pageHost } from '../../test/support/page-host.ts'
import { peerListOf } from '../../test/support/peer-daemon.ts'
import { until } from '../../test/support/processes.ts'
import { openPage, screenshots, seriousFaults, skipsBrowser, WITHOUT_BROWSER } from './browser.ts'

const it = (title: string, body: (t: TestContext) => Promise<void>): void =>
  void test(`${title}${WITHOUT_BROWSER}`, { skip: skipsBrowser }, body)

const HOUR_MS = 60 * 60_000
const ago = (ms: number): string => new Date(Date.now() - ms).toISOString()

/** Its right-to-left override would show the end of the option reversed. */
const FOREIGN = '0.2\u202e9.0'

const PEERS = [
  { name: 'web1', isLinked: true, seen: ago(0), version: '0.3.0' },
  { name: 'web2', isLinked: true, seen: ago(0), version: '0.10.0' },
  { name: 'web3', isLinked: true, seen: ago(0), version: FOREIGN },
  { name: 'db1', isLinked: false, seen: ago(2 * HOUR_MS), version: null },
  { name: 'db2', isLinked: false, seen: ago(48 * HOUR_MS), version: null },
  { name: 'db3', isLinked: false, seen: null, version: null },
]

it('peers are filtered by version and by the time without a sign of them, and the address keeps both', async (t) => {
  const list = peerListOf(PEERS, systemClock)
  const host = await pageHost(t, { files: (await buildPage()).files as PageFiles, sources: { peers: async (query) => list.peers(query) } })
  const { page, complaints } = await openPage(t)
  await page.goto(host.server.newLink())
  await page.getByText(/^Connected to x0xd of bob/).waitFor()
  await page.evaluate("location.hash = '#/peers?order=version'")
  const versions = page.getByLabel('Version')
  await until(async () => (await versions.locator('option').count()) === 4)
  assert.deepEqual(await versions.locator('option').allTextContents(), ['any', '0.2\\u202e9.0', '0.3.0', '0.10.0'])
  await versions.selectOption('0.10.0')
  await page.getByText('1 to 1 of 1 peers').waitFor()
  await page.getByRole('link', { name: 'web2' }).waitFor()
  await versions.selectOption(FOREIGN)
  await page.getByRole('link', { name: 'web3' }).waitFor()
  assert.equal((await page.locator('body').textContent())?.includes('\u202e'), false)
  await page.getByLabel('Not seen for').selectOption('1 day')
  await page.getByText('No peer matches these filters.').waitFor()
  assert.match(new URL(page.url()).hash, /version=.*unseen=day/)
  await screenshots(page, 'filters')
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme })
    assert.deepEqual(await seriousFaults(page), [], scheme)
  }
  await page.getByRole('button', { name: 'Clear the filters' }).click()
  await page.getByText('1 to 6 of 6 peers').waitFor()
  assert.equal(new URL(page.url()).hash, '#/peers?order=version')
  await page.getByLabel('Not seen for').selectOption('1 hour')
  await page.getByText('1 to 3 of 3 peers').waitFor()
  await page.reload()
  await page.getByText('1 to 3 of 3 peers').waitFor()
  assert.equal(await page.getByLabel('Not seen for').inputValue(), 'hour')
  await page.setViewportSize({ width: 390, height: 844 })
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390)
  assert.deepEqual(complaints, [])
})
