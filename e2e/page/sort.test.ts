import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Locator, Page } from 'playwright-core'

import { buildPage } from '../../deploy/build-page.mjs'
import type { PageFiles } from '../../src/doors/page/services.ts'
import { pageHost } from '../../test/support/page-host.ts'
import { until } from '../../test/support/processes.ts'
import { openPage, screenshots, seriousFaults, skipsBrowser, WITHOUT_BROWSER, type BrowserPage } from './browser.ts'
import { busyHost } from './busy-page.ts'

const it = (title: string, body: (t: TestContext) => Promise<void>): void =>
  void test(`${title}${WITHOUT_BROWSER}`, { skip: skipsBrowser }, body)

const busy = async (t: TestContext, width = 1280): Promise<BrowserPage> => {
  const host = await pageHost(t, { files: (await buildPage()).files as PageFiles, sources: busyHost().sources })
  const browser = await openPage(t, { viewport: { width, height: 900 } })
  await browser.page.goto(host.server.newLink())
  await browser.page.getByText(/^Connected to x0xd of bob/).waitFor()
  return browser
}

const heading = (page: Page, name: string): Locator => page.getByRole('columnheader', { name, exact: true })

/** Waits until the first row has this text. */
const firstRow = async (page: Page, text: RegExp): Promise<void> =>
  until(async () => text.test((await page.locator('tbody tr').first().textContent()) ?? ''))

it('a heading sorts all peers in both directions, and a link and a reload keep the order', async (t) => {
  const { page, complaints } = await busy(t)
  await page.evaluate("location.hash = '#/peers'")
  await firstRow(page, /^web1linked/)
  assert.equal(await heading(page, 'Name').getAttribute('aria-sort'), 'none')
  await page.getByRole('button', { name: 'Name', exact: true }).focus()
  await page.keyboard.press('Enter')
  await page.keyboard.press('Enter')
  await firstRow(page, /^web1000/)
  assert.equal(await heading(page, 'Name').getAttribute('aria-sort'), 'descending')
  assert.equal(new URL(page.url()).hash, '#/peers?order=-name')
  await page.getByRole('button', { name: 'Next' }).click()
  await firstRow(page, /^web950/)
  await page.reload()
  await firstRow(page, /^web950/)
  await page.getByRole('button', { name: 'Round trip' }).click()
  await page.getByRole('button', { name: 'Round trip' }).click()
  await page.getByText('1 to 50 of 1,000 peers').waitFor()
  await firstRow(page, /^web4.*48\.2 ms/)
  await page.getByRole('button', { name: 'Round trip' }).click()
  await firstRow(page, /^web1linked/)
  assert.equal(new URL(page.url()).hash, '#/peers')
  assert.deepEqual(complaints, [])
})

it('a heading sorts all runs, and an unknown order in an address is the default one', async (t) => {
  const { page, complaints } = await busy(t)
  await page.evaluate("location.hash = '#/runs?order=-took'")
  // Running ones have taken longest. The first of them began before all others.
  await firstRow(page, /^running.*apt-get update.*web1000/)
  assert.equal(await heading(page, 'Took').getAttribute('aria-sort'), 'descending')
  assert.equal(await heading(page, 'Began').getAttribute('aria-sort'), 'none')
  await page.getByRole('button', { name: 'Began' }).click()
  await firstRow(page, /web1000/)
  assert.equal(new URL(page.url()).hash, '#/runs?order=began')
  await page.getByRole('button', { name: 'Result', exact: true }).click()
  await firstRow(page, /^exit 2/)
  await page.evaluate("location.hash = '#/runs?order=size'")
  await until(async () => (await heading(page, 'Result').getAttribute('aria-sort')) === 'none')
  await firstRow(page, /^exit 0df -h.*web112 ms/)
  assert.deepEqual(complaints, [])
})

it('a phone has the headings as buttons above the cards', async (t) => {
  const { page } = await busy(t, 390)
  for (const view of ['peers', 'runs'] as const) {
    await page.evaluate(`location.hash = '#/${view}?order=${view === 'peers' ? '-seen' : 'who'}'`)
    await page.locator('th[aria-sort=ascending], th[aria-sort=descending]').waitFor()
    await page.setViewportSize({ width: 390, height: 844 })
    await page.getByRole('button', { name: view === 'peers' ? 'Last seen' : 'Who and where' }).waitFor()
    assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, view)
    assert.deepEqual(await seriousFaults(page), [], view)
    await screenshots(page, `sorted-${view}`)
  }
})
