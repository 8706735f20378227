import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { buildPage } from '../../deploy/build-page.mjs'
import type { PageFiles } from '../../src/doors/page/services.ts'
import { NO_RUN_FACTS } from '../../src/programs/ui/run-index.ts'
import type { PageRun, PageRunDetail } from '../../src/protocol/page-lists.ts'
import { pageHost, pageRun } from '../../test/support/page-host.ts'
import { until } from '../../test/support/processes.ts'
import { openPage, screenshots, seriousFaults, skipsBrowser, WITHOUT_BROWSER } from './browser.ts'

const it = (title: string, body: (t: TestContext) => Promise<void>): void =>
  void test(`${title}${WITHOUT_BROWSER}`, { skip: skipsBrowser }, body)

/** Terminal escapes, bidirectional and invisible characters, and markup, as a hostile program writes them. */
const HOSTILE = 'one \x1b[2J\x07 t\u202ewo\u200b <img src=x onerror=alert(1)>\r\n'
const SHOWN = 'one \\x1b[2J\\x07 t\\u202ewo\\u200b <img src=x onerror=alert(1)>\n'
const LINES = Array.from({ length: 200 }, (_, at) => `line ${at}: ${at % 50 === 7 ? 'Error' : 'fine'}\n`).join('')

interface Shown {
  readonly run?: Partial<PageRun>
  readonly text?: string
  readonly truncated?: boolean
}

/** The page of one run, whose output `write` extends. */
const runPage = async (t: TestContext, { run = {}, text = HOSTILE + LINES, truncated = false }: Shown = {}) => {
  let output: PageRunDetail['output'] = { text, truncated }
  const host = await pageHost(t, {
    files: (await buildPage()).files as PageFiles,
    sources: {
      run: async () => ({ run: pageRun('r1', run), facts: NO_RUN_FACTS, output, output_problem: null, denial: null }),
    },
  })
  const { page, complaints } = await openPage(t)
  await page.goto(host.server.newLink())
  await page.getByText(/^Connected to/).waitFor()
  await page.evaluate("location.hash = '#/runs/asked%20r1'")
  const find = page.getByLabel('Find in the output', { exact: true }).and(page.locator('input'))
  await find.waitFor()
  const status = async (words: string): Promise<void> => page.locator('.find [role=status]').getByText(words, { exact: true }).waitFor()
  const write = (more: string): void => void (output = { text: `${output?.text}${more}`, truncated })
  return { page, complaints, find, status, write }
}

/** Text of the current hit, and whether it is in the visible part of the output. */
const presentHit = `(() => {
  const [hit, output] = [document.querySelector('.hit.present'), document.querySelector('.output')]
  const [inner, outer] = [hit.getBoundingClientRect(), output.getBoundingClientRect()]
  return { text: hit.textContent, before: hit.previousSibling.textContent.split('\\n').at(-1), isSeen: inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1 && inner.top >= 0 && inner.bottom <= innerHeight }
})()`

it('a search in the output counts its hits, moves by buttons and keys, and scrolls each hit into view', async (t) => {
  const { page, find, status, complaints } = await runPage(t)
  const hit = async () => page.evaluate<{ text: string; before: string; isSeen: boolean }>(presentHit)
  // `/` moves the focus to the search field, as in the lists.
  await page.keyboard.press('/')
  await until(async () => find.evaluate((field) => field.matches(':focus')))
  await page.keyboard.type('error')
  // The fifth hit is in the markup of the output, which is shown as text.
  await status('1 of 5')
  assert.equal(await page.locator('.output mark').count(), 5)
  await page.keyboard.press('Enter')
  await status('2 of 5')
  assert.deepEqual(await hit(), { text: 'Error', before: 'line 7: ', isSeen: true })
  await page.keyboard.press('Shift+Enter')
  await page.keyboard.press('Shift+Enter')
  await status('5 of 5')
  assert.deepEqual(await hit(), { text: 'Error', before: 'line 157: ', isSeen: true })
  await page.getByRole('button', { name: 'Next' }).click()
  await status('1 of 5')
  await page.getByRole('button', { name: 'Previous' }).click()
  await status('5 of 5')
  // Outside of the search field, single keys move between hits.
  await page.keyboard.press('N')
  await status('4 of 5')
  await page.keyboard.press('n')
  await status('5 of 5')
  await find.fill('.*')
  await status('Not found')
  assert.equal(await page.getByRole('button', { name: 'Next' }).isDisabled(), true)
  // The search finds the text as it is shown, with visible escapes.
  await find.fill('\\x1b[2J')
  await status('1 of 1')
  await page.keyboard.press('Escape')
  assert.equal(await find.inputValue(), '')
  assert.equal(await page.locator('.output mark').count(), 0)
  assert.equal(new URL(page.url()).hash, '#/runs/asked%20r1')
  await page.keyboard.press('?')
  await page.getByText('next and previous hit in the output').waitFor()
  assert.deepEqual(complaints, [])
})

it('a search with very many hits marks only some of them and counts all', async (t) => {
  const { page, find, status } = await runPage(t, { text: 'a'.repeat(20_000) })
  await find.fill('a')
  await status('1 of 20,000')
  await page.getByRole('button', { name: 'Previous' }).click()
  await status('20,000 of 20,000')
  assert.ok((await page.locator('.output mark').count()) <= 400)
  assert.equal((await page.locator('.output').textContent())?.length, 20_000)
})

it('Copy and Download give the text as shown, with visible escapes, and the file has a safe name', async (t) => {
  const { page, find, complaints } = await runPage(t, { run: { on: '../\u202eweb1/.exe', request_id: 'a/../b\0.sh' }, truncated: true })
  await page.getByText('Earlier output is not kept. Find, Copy and Download have this end of at most 20,000 characters.').waitFor()
  await find.fill('line 7')
  const began = page.waitForEvent('download')
  await page.getByRole('button', { name: 'Download' }).click()
  const download = await began
  assert.equal(download.suggestedFilename(), 'x0x-web1-exe-a-b-sh-end.txt')
  assert.equal(await readFile(await download.path(), 'utf8'), SHOWN + LINES)
  await page.getByRole('button', { name: 'Copy' }).click()
  await page.getByText('Copied the end of the output.').waitFor()
  await page.evaluate("document.body.prepend(Object.assign(document.createElement('textarea'), { id: 'pasted' }))")
  await page.locator('#pasted').focus()
  await page.keyboard.press('Control+V')
  assert.equal(await page.locator('#pasted').inputValue(), SHOWN + LINES)
  assert.deepEqual(complaints, [])
})

it('a complete output has a plain file name, and the page says if the browser refuses to copy', async (t) => {
  const { page } = await runPage(t)
  assert.equal(await page.getByText('Earlier output is not kept').count(), 0)
  const began = page.waitForEvent('download')
  await page.getByRole('button', { name: 'Download' }).click()
  assert.equal((await began).suggestedFilename(), 'x0x-web1-r1.txt')
  await page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
  await page.getByRole('button', { name: 'Copy' }).click()
  await page.getByText('The browser refused to copy. Select the text, then copy it.').waitFor()
})

it('a search pauses the output of a running command, and the output continues after a click on Pause', async (t) => {
  const running = { result: 'running', code: null, duration_ms: null } as const
  const { page, find, status, write } = await runPage(t, { run: running })
  const output = page.getByRole('region', { name: 'Output so far' })
  await find.fill('fine')
  await status('1 of 196')
  write('line 200: fine\n')
  await page.getByText('Paused. There is new output.').waitFor()
  assert.ok(!((await output.textContent()) ?? '').includes('line 200'))
  await page.getByRole('button', { name: 'Pause' }).click()
  await status('1 of 197')
})

it('the output view has no serious accessibility fault in light and dark, and fits every screen width', async (t) => {
  const running = { result: 'running', code: null, duration_ms: null, argv: ['journalctl', '-u', 'nginx', '-f'] } as const
  const { page, find, status } = await runPage(t, { run: running, text: `${HOSTILE}${LINES}${'long-word-'.repeat(100)}`, truncated: true })
  await find.fill('error')
  await status('1 of 5')
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    assert.deepEqual(await seriousFaults(page), [], colorScheme)
  }
  for (const width of [390, 768, 1280, 1920]) {
    await page.setViewportSize({ width, height: 844 })
    assert.equal(await page.evaluate('document.documentElement.scrollWidth'), width)
  }
  await screenshots(page, 'output')
  await page.getByRole('button', { name: 'Stop', exact: true }).click()
  await page.getByRole('dialog').waitFor()
  assert.deepEqual(await seriousFaults(page), [])
  await screenshots(page, 'stop')
})
