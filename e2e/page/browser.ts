import { existsSync } from 'node:fs'
import type { TestContext } from 'node:test'

import axe from 'axe-core'
import { chromium, type BrowserContextOptions, type Page } from 'playwright-core'

const BROWSERS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']

const browserPath = BROWSERS.find((path) => existsSync(path))

/** Suffix for titles of tests that no browser can run. */
export const WITHOUT_BROWSER = browserPath === undefined ? ' (skipped: no chromium is installed)' : ''
export const skipsBrowser = browserPath === undefined

export interface BrowserPage {
  readonly page: Page
  /** Errors of scripts, and resources that the content security policy blocked. */
  readonly complaints: string[]
}

/** Opens a page in a new browser, which is closed after the test. */
export const openPage = async (
  t: Pick<TestContext, 'after'>,
  options: BrowserContextOptions = {},
  args: readonly string[] = [],
): Promise<BrowserPage> => {
  const browser = await chromium.launch({ executablePath: browserPath!, args: ['--disable-dev-shm-usage', '--disable-gpu', ...args] })
  t.after(() => browser.close())
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce', ...options })
  context.setDefaultTimeout(30_000)
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('pageerror', (error) => complaints.push(String(error)))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  return { page, complaints }
}

interface AxeResult {
  readonly violations: readonly {
    readonly id: string
    readonly impact: string | null
    readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[]
  }[]
}

/** Accessibility faults that axe-core rates as serious or worse, each with its first place. */
export const seriousFaults = async (page: Page): Promise<string[]> => {
  await page.evaluate(axe.source)
  const { violations } = await page.evaluate<AxeResult>('axe.run(document, { resultTypes: ["violations"] })')
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes[0]?.html ?? ''} ${nodes[0]?.failureSummary ?? ''}`)
}

/**
 * Takes screenshots of the page, at three widths in light and dark, into the directory in X0X_SCREENSHOTS. Without this variable it takes
 * none. Some of them are used in pages of docs/.
 */
export const screenshots = async (page: Page, name: string): Promise<void> => {
  const directory = process.env['X0X_SCREENSHOTS']
  if (directory === undefined) return
  for (const width of [1920, 1280, 390]) {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
      await page.setViewportSize({ width, height: width === 390 ? 844 : 800 })
      await page.evaluate('scrollTo(0, 0)')
      await page.screenshot({ path: `${directory}/page-${name}-${width}-${colorScheme}.png` })
    }
  }
  await page.emulateMedia({ colorScheme: 'light' })
  await page.setViewportSize({ width: 1280, height: 900 })
}
